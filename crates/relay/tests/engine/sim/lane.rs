//! The fake lane, its listener, and the meter that records metrics.

use std::sync::Arc;
use std::time::Duration;

use symphony_relay::breaker::BreakerState;
use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired};
use symphony_relay::lease::{LeaseWatch, Term};
use symphony_relay::listener::Listener;
use symphony_relay::metrics::Meter;
use symphony_relay::trace::{Origin, SpanStatus};
use symphony_relay::wake::Cause;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{Call, INSTANT, Job, Lease, Outcome, RecordedCall, S, Sim};

/// Counts a running dispatch until it is dropped, also if it is cancelled.
struct Running(Sim);

impl Running {
    fn new(sim: &Sim) -> Self {
        let mut state = sim.state();
        state.running += 1;
        state.max_running = state.max_running.max(state.running);
        Self(sim.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state().running -= 1;
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
        self.state().term
    }

    fn lease(&self, job: &Job) -> Lease {
        job.lease
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        &job.route
    }

    fn route_count(&self) -> usize {
        self.state().routes
    }

    fn origin(&self, job: &Job) -> Origin {
        Origin { attempt: Some(job.attempt), producer: None }
    }

    fn span_status(&self, outcome: &Outcome) -> SpanStatus {
        SpanStatus::ok(if *outcome == Outcome::Paid { "PAID" } else { "OTHER" })
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        assert!(capacity.total() > 0, "a claim without capacity");
        let number = self.state().calls.len();
        self.call(Call::Claim, capacity.total()).await?;
        let (state, now) = (&mut *self.state(), Instant::now());
        let expires = now + state.term.length();
        let mut jobs: Vec<Job> = Vec::new();
        let first = state.rows.iter().find(|(_, row)| !row.ended).map(|(id, _)| *id).filter(|_| state.in_order);
        for (id, row) in state.rows.iter_mut().filter(|(id, _)| first.is_none_or(|first| first == **id)) {
            let free = row.lease.is_none_or(|(_, end)| end <= now);
            if let Some((token, _)) = row.lease.filter(|_| state.repeats_leases && !free && !row.ended) {
                jobs.push(row.job(*id, token));
            }
            if row.ended {
                continue;
            }
            let of_route = jobs.iter().filter(|job| job.route == row.route).count();
            let has_capacity = !state.respects_capacity || of_route < capacity.for_route(&row.route);
            if !row.ended && free && row.due <= now && has_capacity && jobs.len() < capacity.total() {
                state.tokens += 1;
                row.lease = Some((state.tokens, expires));
                jobs.push(row.job(*id, state.tokens));
            }
        }
        let first_attempts = capacity.first_attempts().filter(|_| state.selects_first_attempts);
        for route in first_attempts {
            let newest = state.rows.iter_mut().rev().find(|(_, row)| {
                *row.route == *route && row.attempts == 0 && row.lease.is_none() && row.due <= now
            });
            if let Some((id, row)) = newest.filter(|_| jobs.len() < capacity.total()) {
                state.tokens += 1;
                row.lease = Some((state.tokens, expires));
                jobs.push(row.job(*id, state.tokens));
            }
        }
        state.calls[number].rows = jobs.len();
        Ok(Claim::new(jobs))
    }

    async fn wait_for_turn(&self, job: &mut Job) -> bool {
        if self.read(|state| state.waiting_for_turn.contains(&job.lease.id)) {
            std::future::pending::<()>().await;
        }
        true
    }

    async fn dispatch(&self, job: Job, lease: LeaseWatch) -> DispatchResult<Outcome> {
        let _running = Running::new(self);
        assert!(!lease.remaining().is_zero(), "started without time left");
        let behavior = {
            let mut state = self.state();
            let at = state.start.elapsed();
            state.calls.push(RecordedCall { call: Call::Dispatch, at, size: 1, rows: 0 });
            state.dispatched.push((job.lease.id, at));
            let of_row = state.row_behaviors.get(&job.lease.id);
            of_row.or_else(|| state.behaviors.get(&job.route)).copied().unwrap_or(INSTANT)
        };
        if !behavior.latency.is_zero() {
            sleep(behavior.latency).await;
        }
        assert!(!behavior.panics, "injected");
        self.state().finished.push(job.lease.id);
        DispatchResult { outcome: behavior.outcome, latency: behavior.latency, signal: behavior.signal }
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
        let (state, now) = (&mut *self.state(), Instant::now());
        let mut answers = Vec::new();
        for completion in completions {
            let row = state.rows.get_mut(&completion.lease.id).expect("a row");
            let holds = row.lease.is_some_and(|(token, end)| token == completion.lease.token && end > now);
            answers.push(if row.ended {
                CompletionResult::AlreadyTerminal
            } else if !holds {
                CompletionResult::LeaseLost
            } else if state.rejected_by_backstop.contains(&completion.lease.id) {
                CompletionResult::Backstop
            } else {
                row.lease = None;
                row.attempts += 1;
                state.ledger.push((completion.lease.id, completion.outcome));
                match completion.outcome {
                    Outcome::Retry(wait) => row.due = now + wait,
                    Outcome::Unknown => row.due = now + 3600 * S,
                    Outcome::Paid | Outcome::Poison => row.ended = true,
                }
                if row.ended {
                    state.ended_at.insert(completion.lease.id, state.start.elapsed());
                }
                CompletionResult::Recorded {
                    state: "PAID",
                    retry_scheduled: !row.ended,
                    unblocks_rows: row.ended && state.in_order,
                }
            });
        }
        if lost { Err(LaneError::Unavailable("the answer was lost".to_owned())) } else { Ok(answers) }
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        self.call(Call::Renew, leases.len()).await?;
        let (state, now) = (&mut *self.state(), Instant::now());
        let expires = now + state.term.length();
        let mut held = Vec::new();
        for lease in leases {
            let row = state.rows.get_mut(&lease.id).expect("a row");
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
        let (state, now) = (&mut *self.state(), Instant::now());
        let mut count = 0;
        for lease in leases {
            let row = state.rows.get_mut(&lease.id).expect("a row");
            if row.lease.is_some_and(|(token, end)| token == lease.token && end > now) {
                row.lease = None;
                count += 1;
            }
        }
        Ok(count)
    }

    async fn repair(&self) -> Result<Repaired, LaneError> {
        self.call(Call::Repair, 0).await?;
        Ok(self.state().repairs.pop_front().unwrap_or_default())
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        self.call(Call::NextDue, 0).await?;
        let (state, now) = (self.state(), Instant::now());
        if state.always_due {
            return Ok(Some(Duration::ZERO));
        }
        let waiting = state.rows.values().filter(|row| !row.ended && row.lease.is_none() && row.due > now);
        Ok(waiting.map(|row| row.due - now).min())
    }
}

/// A listener that delivers each notification by itself and reports a lost connection.
pub(crate) struct SimListener {
    pub(super) sim: Sim,
    pub(super) notifications: Option<mpsc::UnboundedReceiver<()>>,
}

impl Listener for SimListener {
    async fn arm(&mut self) -> Result<(), LaneError> {
        self.sim.call(Call::Arm, 0).await?;
        let mut state = self.sim.state();
        if state.notifications.is_none() {
            let (sender, receiver) = mpsc::unbounded_channel();
            (state.notifications, self.notifications) = (Some(sender), Some(receiver));
        }
        state.armed = true;
        Ok(())
    }

    async fn disarm(&mut self) -> Result<(), LaneError> {
        self.sim.call(Call::Disarm, 0).await?;
        self.sim.state().armed = false;
        Ok(())
    }

    async fn notified(&mut self) -> Result<(), LaneError> {
        let Some(notifications) = &mut self.notifications else {
            return Err(LaneError::Unavailable("never connected".to_owned()));
        };
        notifications.recv().await.ok_or_else(|| LaneError::Unavailable("connection lost".to_owned()))
    }
}

impl Meter for Sim {
    fn wakeup(&self, cause: Cause) {
        self.state().causes.push(cause);
    }
    fn breaker(&self, route: &str, state: BreakerState) {
        self.state().breaker_states.push((route.to_owned(), state));
    }
    fn listener_connected(&self, connected: bool) {
        self.state().connected.push(connected);
    }
    fn lease_lost(&self) {
        self.state().lost += 1;
    }
    fn backstop(&self) {
        self.state().backstops += 1;
    }
    fn quarantined(&self, total: u64) {
        self.state().quarantined.push(total);
    }
}
