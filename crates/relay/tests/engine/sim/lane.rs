//! The fake lane, its listener, and the meter that records metrics.

use std::sync::Arc;
use std::time::Duration;

use symphony_relay::breaker::Health;
use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired};
use symphony_relay::lease::{LeaseWatch, Term};
use symphony_relay::listener::Listener;
use symphony_relay::metrics::Meter;
use symphony_relay::trace::End;
use symphony_relay::wake::Cause;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Call, Job, Lease, Made, Outcome, PROMPT, S, Sim};

/// Counts a running dispatch as long as it lives, cut off or not.
struct Running(Sim);

impl Running {
    fn new(sim: &Sim) -> Self {
        let mut world = sim.world();
        world.running += 1;
        world.most_running = world.most_running.max(world.running);
        Self(sim.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.world().running -= 1;
    }
}

impl Lane for Sim {
    type Job = Job;
    type Lease = Lease;
    type Outcome = Outcome;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn term(&self) -> Term {
        self.world().term
    }

    fn lease(&self, job: &Job) -> Lease {
        job.lease
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        &job.route
    }

    fn end(&self, outcome: &Outcome) -> End {
        End::well(if *outcome == Outcome::Paid { "PAID" } else { "OTHER" })
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        assert!(capacity.total() > 0, "a claim without room");
        let number = self.world().made.len();
        self.call(Call::Claim, capacity.total()).await?;
        let (world, now) = (&mut *self.world(), Instant::now());
        let expires = now + world.term.length();
        let mut jobs: Vec<Job> = Vec::new();
        let first = world.rows.iter().find(|(_, row)| !row.ended).map(|(id, _)| *id).filter(|_| world.in_order);
        for (id, row) in world.rows.iter_mut().filter(|(id, _)| first.is_none_or(|first| first == **id)) {
            let free = row.lease.is_none_or(|(_, end)| end <= now);
            if let Some((token, _)) = row.lease.filter(|_| world.repeats && !free && !row.ended) {
                jobs.push(Job { lease: Lease { id: *id, token }, route: row.route.clone() });
            }
            let of_route = jobs.iter().filter(|job| job.route == row.route).count();
            let room = !world.respects_capacity || of_route < capacity.for_route(&row.route);
            if !row.ended && free && row.due <= now && room && jobs.len() < capacity.total() {
                world.tokens += 1;
                row.lease = Some((world.tokens, expires));
                jobs.push(Job { lease: Lease { id: *id, token: world.tokens }, route: row.route.clone() });
            }
        }
        world.made[number].got = jobs.len();
        Ok(Claim::new(jobs))
    }

    async fn dispatch(&self, job: Job, lease: LeaseWatch) -> DispatchResult<Outcome> {
        let _running = Running::new(self);
        assert!(!lease.remaining().is_zero(), "started without time");
        let manner = {
            let mut world = self.world();
            let at = world.start.elapsed();
            world.made.push(Made { call: Call::Dispatch, at, size: 1, got: 0 });
            world.dispatched.push((job.lease.id, at));
            world.manners.get(&job.route).copied().unwrap_or(PROMPT)
        };
        if !manner.takes.is_zero() {
            sleep(manner.takes).await;
        }
        assert!(!manner.panics, "to order");
        self.world().finished.push(job.lease.id);
        DispatchResult { outcome: manner.outcome, latency: manner.takes, signal: manner.signal }
    }

    fn abandoned(&self, _: &Lease) -> Option<Outcome> {
        Some(Outcome::Unknown)
    }

    async fn complete(
        &self,
        completions: &[Arc<Completion<Lease, Outcome>>],
    ) -> Result<Vec<CompletionResult>, LaneError> {
        let lost = self.loses_answer(Call::Complete);
        self.call(Call::Complete, completions.len()).await?;
        if completions.iter().any(|completion| completion.outcome == Outcome::Poison) {
            return Err(LaneError::Refused("poison".to_owned()));
        }
        let (world, now) = (&mut *self.world(), Instant::now());
        let mut answers = Vec::new();
        for completion in completions {
            let row = world.rows.get_mut(&completion.lease.id).expect("a row");
            let holds = row.lease.is_some_and(|(token, end)| token == completion.lease.token && end > now);
            answers.push(if row.ended {
                CompletionResult::AlreadyTerminal
            } else if !holds {
                CompletionResult::LeaseLost
            } else if world.doubled.contains(&completion.lease.id) {
                CompletionResult::Backstop
            } else {
                row.lease = None;
                world.ledger.push((completion.lease.id, completion.outcome));
                match completion.outcome {
                    Outcome::Later(wait) => row.due = now + wait,
                    Outcome::Unknown => row.due = now + 3600 * S,
                    Outcome::Paid | Outcome::Poison => row.ended = true,
                }
                CompletionResult::Recorded {
                    state: "PAID",
                    retry_scheduled: !row.ended,
                    unblocks_rows: row.ended && world.in_order,
                }
            });
        }
        if lost { Err(LaneError::Unavailable("the answer was lost".to_owned())) } else { Ok(answers) }
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        self.call(Call::Renew, leases.len()).await?;
        let (world, now) = (&mut *self.world(), Instant::now());
        let expires = now + world.term.length();
        let mut held = Vec::new();
        for lease in leases {
            let row = world.rows.get_mut(&lease.id).expect("a row");
            let holds = row.lease.is_some_and(|(token, end)| token == lease.token && end > now);
            if holds {
                row.lease = Some((lease.token, expires));
            }
            held.push(holds);
        }
        Ok(held)
    }

    async fn release(&self, leases: &[Lease]) -> Result<usize, LaneError> {
        self.call(Call::Release, leases.len()).await?;
        let (world, now) = (&mut *self.world(), Instant::now());
        let mut count = 0;
        for lease in leases {
            let row = world.rows.get_mut(&lease.id).expect("a row");
            if row.lease.is_some_and(|(token, end)| token == lease.token && end > now) {
                row.lease = None;
                count += 1;
            }
        }
        Ok(count)
    }

    async fn repair(&self) -> Result<Repaired, LaneError> {
        self.call(Call::Repair, 0).await?;
        Ok(self.world().repairs.pop_front().unwrap_or_default())
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        self.call(Call::NextDue, 0).await?;
        let (world, now) = (self.world(), Instant::now());
        if world.says_now {
            return Ok(Some(Duration::ZERO));
        }
        let waiting = world.rows.values().filter(|row| !row.ended && row.lease.is_none() && row.due > now);
        Ok(waiting.map(|row| row.due - now).min())
    }
}

/// Each notification comes by itself; a cut connection says so.
pub(crate) struct SimListener {
    pub(super) sim: Sim,
    pub(super) notifications: Option<mpsc::UnboundedReceiver<()>>,
}

impl Listener for SimListener {
    async fn arm(&mut self) -> Result<(), LaneError> {
        self.sim.call(Call::Arm, 0).await?;
        let mut world = self.sim.world();
        if world.notifications.is_none() {
            let (sender, receiver) = mpsc::unbounded_channel();
            (world.notifications, self.notifications) = (Some(sender), Some(receiver));
        }
        world.armed = true;
        Ok(())
    }

    async fn disarm(&mut self) -> Result<(), LaneError> {
        self.sim.call(Call::Disarm, 0).await?;
        self.sim.world().armed = false;
        Ok(())
    }

    async fn notified(&mut self) -> Result<(), LaneError> {
        let Some(notifications) = &mut self.notifications else {
            return Err(LaneError::Unavailable("never connected".to_owned()));
        };
        notifications.recv().await.ok_or_else(|| LaneError::Unavailable("cut".to_owned()))
    }
}

impl Meter for Sim {
    fn wakeup(&self, cause: Cause) {
        self.world().wakes.push(cause);
    }
    fn breaker(&self, route: &str, health: Health) {
        self.world().health.push((route.to_owned(), health));
    }
    fn listener_connected(&self, connected: bool) {
        self.world().connected.push(connected);
    }
    fn lease_lost(&self) {
        self.world().lost += 1;
    }
    fn backstop(&self) {
        self.world().backstops += 1;
    }
    fn quarantined(&self, total: u64) {
        self.world().quarantined.push(total);
    }
}
