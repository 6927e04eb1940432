//! The lane of one engine: sends each call to the database as the seed plans it, and checks the engine on the way.

use std::collections::VecDeque;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use symphony_relay::breaker::BreakerState;
use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired};
use symphony_relay::lease::{LeaseWatch, Term};
use symphony_relay::listener::Listener;
use symphony_relay::metrics::Meter;
use symphony_relay::trace::SpanStatus;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::faults::{Answer, Call, CallPlan, DispatchEnd};
use super::state::{LeaseRecord, Shared, State};
use super::trace::Event;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) row: u64,
    pub(crate) token: u64,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} under token {}", self.row, self.token)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The result of a dispatch, and the lease under which it was dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) token: u64,
    pub(crate) end: DispatchEnd,
}

/// A claimed row. Dropping it ends its dispatch, and its turn.
pub(crate) struct Job {
    lease: Lease,
    route: &'static str,
    key: Option<u32>,
    state: Shared,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.state.lock().job_dropped(self.lease, self.key);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SwarmLane {
    pub(crate) state: Shared,
    pub(crate) engine: usize,
    pub(crate) relayer: usize,
    pub(crate) term: Term,
    pub(crate) call_timeout: Duration,
    pub(crate) records_abandoned: bool,
}

/// A call in flight, until it returns or is dropped.
struct InFlight<'a> {
    lane: &'a SwarmLane,
    call: Call,
    leases: Vec<Lease>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let state = &mut *self.lane.state.lock();
        state.engines[self.lane.engine].in_flight[self.call as usize] -= 1;
        for lease in &self.leases {
            if let Some(record) = state.leases.get_mut(&lease.token) {
                record.in_call = false;
            }
        }
    }
}

impl SwarmLane {
    /// Plans and records a call, and checks it with `check`.
    fn send(&self, call: Call, leases: Vec<Lease>, check: impl FnOnce(&mut State)) -> (InFlight<'_>, CallPlan) {
        let state = &mut *self.state.lock();
        let plan = state.plan_call(call, self.relayer);
        let event = match (call, state.engines[self.engine].last_claim.as_ref()) {
            (Call::Claim, Some((_, capacity))) => Event::ClaimSent { total: capacity.total(), plan },
            _ => Event::Sent { call, rows: leases.clone(), plan },
        };
        if !state.is_frozen() {
            state.record(Some(self.engine), event);
            state.check_call(self.engine, call);
            check(state);
        }
        state.engines[self.engine].in_flight[call as usize] += 1;
        if matches!(call, Call::Complete | Call::Release) {
            for lease in &leases {
                if let Some(record) = state.leases.get_mut(&lease.token) {
                    record.in_call = true;
                }
            }
        }
        (InFlight { lane: self, call, leases }, plan)
    }

    /// Carries out a call: the database executes it even if the engine has given up on it by then.
    async fn carry_out<T: Send + 'static>(
        &self,
        sent: &InFlight<'_>,
        plan: CallPlan,
        execute: impl FnOnce(&mut State, Duration) -> Result<T, LaneError> + Send + 'static,
    ) -> Result<T, LaneError> {
        let (call, engine) = (sent.call, self.engine);
        let run = move |state: &mut State| {
            state.record(Some(engine), Event::Executed(call));
            let now = state.now();
            execute(state, now)
        };
        if self.state.lock().is_frozen() {
            return std::future::pending().await;
        }
        let result = match plan.executed_after {
            None => None,
            Some(wait) if wait.is_zero() => Some(run(&mut self.state.lock())),
            Some(wait) => {
                let (answer, answered) = oneshot::channel();
                let state = self.state.clone();
                tokio::spawn(async move {
                    sleep(wait).await;
                    let result = run(&mut state.lock());
                    let _ = answer.send(result);
                });
                answered.await.ok()
            }
        };
        if !plan.answered_after.is_zero() {
            sleep(plan.answered_after).await;
        }
        match (plan.answer, result) {
            _ if self.state.lock().is_frozen() => std::future::pending().await,
            (Answer::Returned, Some(result)) => {
                self.state.lock().record(Some(engine), Event::Answered(call));
                result
            }
            (Answer::Never, _) => std::future::pending().await,
            (Answer::Refused, _) => Err(LaneError::Refused("injected".to_owned())),
            // Without a message on stderr.
            (Answer::Panic, _) => resume_unwind(Box::new("injected")),
            (Answer::Lost | Answer::Returned, _) => Err(LaneError::Unavailable("injected".to_owned())),
        }
    }

    /// Whether an answer that arrives now to a call that was decided then arrives before the timeout.
    fn is_in_time(state: &State, decided: Duration, limit: Duration) -> bool {
        state.now() < decided + limit
    }
}

impl Lane for SwarmLane {
    type Job = Job;
    type Lease = Lease;
    type Outcome = Outcome;

    fn name(&self) -> &'static str {
        "swarm"
    }

    fn term(&self) -> Term {
        self.term
    }

    fn lease(&self, job: &Job) -> Lease {
        job.lease
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        job.route
    }

    fn span_status(&self, _: &Outcome) -> SpanStatus {
        SpanStatus::ok("ENDED")
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        let (decided, expires) = {
            let state = &mut *self.state.lock();
            state.check_claim(self.engine, capacity);
            (state.decided(), state.now() + self.term.length())
        };
        let (sent, plan) = self.send(Call::Claim, Vec::new(), |_| {});
        let (engine, requested) = (self.engine, capacity.clone());
        let (leases, taken_over) = self
            .carry_out(&sent, plan, move |state, now| {
                let (leases, taken_over) = state.database.claim(&requested, now);
                for lease in &leases {
                    let route = state.database.rows[&lease.row].plan.route;
                    state.leases.insert(lease.token, LeaseRecord::new(*lease, engine, route, expires));
                }
                state.record(Some(engine), Event::Claimed(leases.clone()));
                Ok((leases, taken_over))
            })
            .await?;
        let state = &mut *self.state.lock();
        let now = state.now();
        let in_time = Self::is_in_time(state, decided, self.call_timeout);
        let mut jobs = Vec::new();
        for lease in leases {
            if let Some(record) = state.leases.get_mut(&lease.token) {
                (record.delivered, record.in_time) = (now, in_time);
            }
            let engine = &mut state.engines[self.engine];
            engine.unsettled.insert(lease.token);
            let plan = state.database.rows[&lease.row].plan;
            if let Some(key) = plan.key {
                engine.turns.entry(key).or_default().push_back(lease.token);
            }
            jobs.push(Job { lease, route: plan.route, key: plan.key, state: self.state.clone() });
        }
        Ok(Claim { taken_over, ..Claim::new(jobs) })
    }

    async fn wait_for_turn(&self, job: &mut Job) -> bool {
        let Some(key) = job.key else { return true };
        let ended = Arc::clone(&self.state.lock().engines[self.engine].turn_ended);
        let mut has_waited = false;
        loop {
            let mut notified = std::pin::pin!(ended.notified());
            notified.as_mut().enable();
            {
                let state = self.state.lock();
                let engine = &state.engines[self.engine];
                if engine.turns.get(&key).and_then(VecDeque::front) == Some(&job.lease.token) {
                    return !has_waited || engine.succeeded.get(&key) == Some(&true);
                }
            }
            has_waited = true;
            notified.await;
        }
    }

    async fn dispatch(&self, job: Job, lease: LeaseWatch) -> DispatchResult<Outcome> {
        let plan = {
            let state = &mut *self.state.lock();
            state.check_dispatch(job.lease, lease.remaining());
            state.dispatch_started(job.lease);
            state.plan_dispatch(job.lease)
        };
        if !plan.latency.is_zero() {
            sleep(plan.latency).await;
        }
        if self.state.lock().is_frozen() {
            std::future::pending::<()>().await;
        }
        if plan.result == DispatchEnd::Panic {
            resume_unwind(Box::new("injected"));
        }
        self.state.lock().dispatch_returned(job.lease, job.key, plan.result);
        let outcome = Outcome { token: job.lease.token, end: plan.result };
        DispatchResult { outcome, latency: plan.latency, signal: plan.signal }
    }

    fn abandoned(&self, lease: &Lease) -> Option<Outcome> {
        let state = &mut *self.state.lock();
        let now = state.now();
        if let Some(record) = state.leases.get_mut(&lease.token) {
            record.abandoned = true;
            if !self.records_abandoned {
                record.settled = Some(now);
            }
        }
        self.records_abandoned.then_some(Outcome { token: lease.token, end: DispatchEnd::Unknown })
    }

    async fn complete(
        &self,
        completions: &[Arc<Completion<Lease, Outcome>>],
    ) -> Result<Vec<CompletionResult>, LaneError> {
        let decided = self.state.lock().decided();
        let leases: Vec<_> = completions.iter().map(|completion| completion.lease).collect();
        let (sent, plan) = self.send(Call::Complete, leases.clone(), |state| state.check_completions(completions));
        let batch: Vec<_> = completions.iter().map(|completion| (completion.lease, completion.outcome)).collect();
        let engine = self.engine;
        let result = self
            .carry_out(&sent, plan, move |state, now| {
                let results = state.database.complete(&batch, now);
                for ((lease, _), result) in batch.iter().zip(results.iter().flatten()) {
                    state.record(Some(engine), Event::Completed(*lease, result.clone()));
                }
                results.map_err(|()| LaneError::Refused("a poison row".to_owned()))
            })
            .await;
        let ends = match &result {
            Ok(_) => true,
            Err(LaneError::Refused(_)) => leases.len() == 1,
            Err(LaneError::Unavailable(_)) => false,
        };
        self.settle(&leases, ends, decided, self.call_timeout);
        result
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        let (decided, expires) = {
            let state = self.state.lock();
            (state.decided(), state.now() + self.term.length())
        };
        let (sent, plan) = self.send(Call::Renew, leases.to_vec(), |state| state.check_renewal(leases));
        let (engine, renewed) = (self.engine, leases.to_vec());
        let held = self
            .carry_out(&sent, plan, move |state, now| {
                let held = state.database.renew(&renewed, now);
                for (lease, held) in renewed.iter().zip(&held) {
                    state.record(Some(engine), Event::Renewed { lease: *lease, held: *held });
                }
                Ok(held)
            })
            .await?;
        let state = &mut *self.state.lock();
        let now = state.now();
        let in_time = Self::is_in_time(state, decided, self.call_timeout.min(self.term.length() / 6));
        for (lease, held) in leases.iter().zip(&held) {
            let Some(record) = state.leases.get_mut(&lease.token) else { continue };
            if *held {
                record.expires = record.expires.max(expires);
            } else if in_time && record.dropped.is_none() {
                record.lost = Some(now);
            }
        }
        Ok(held)
    }

    async fn release(&self, leases: &[Lease]) -> Result<usize, LaneError> {
        let decided = self.state.lock().decided();
        let (sent, plan) = self.send(Call::Release, leases.to_vec(), |state| state.check_release(leases));
        for lease in leases {
            self.state.lock().leases.entry(lease.token).and_modify(|record| record.release_sent = true);
        }
        let to_release = leases.to_vec();
        let result =
            self.carry_out(&sent, plan, move |state, now| Ok(state.database.release(&to_release, now))).await;
        let ends = !matches!(result, Err(LaneError::Unavailable(_)));
        self.settle(leases, ends, decided, self.call_timeout);
        result
    }

    async fn repair(&self) -> Result<Repaired, LaneError> {
        let (sent, plan) = self.send(Call::Repair, Vec::new(), |_| {});
        self.carry_out(&sent, plan, |state, now| Ok(state.database.repair(now))).await
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        let (sent, plan) = self.send(Call::NextDue, Vec::new(), |_| {});
        self.carry_out(&sent, plan, |state, now| Ok(state.database.next_due(now))).await
    }
}

impl SwarmLane {
    /// The engine has an answer for these leases, if it arrived in time.
    fn settle(&self, leases: &[Lease], ends: bool, decided: Duration, limit: Duration) {
        let state = &mut *self.state.lock();
        if ends && Self::is_in_time(state, decided, limit) {
            let now = state.now();
            for lease in leases {
                state.leases.entry(lease.token).and_modify(|record| record.settled = Some(now));
            }
        }
    }
}

/// Receives the notifications of one engine.
pub(crate) struct SwarmListener {
    pub(crate) lane: SwarmLane,
    pub(crate) notifications: Option<mpsc::UnboundedReceiver<()>>,
}

impl Listener for SwarmListener {
    async fn arm(&mut self) -> Result<(), LaneError> {
        let (sent, plan) = self.lane.send(Call::Arm, Vec::new(), |_| {});
        self.lane.carry_out(&sent, plan, |_, _| Ok(())).await?;
        let engine = &mut self.lane.state.lock().engines[self.lane.engine];
        if engine.notifications.is_none() {
            let (sender, receiver) = mpsc::unbounded_channel();
            (engine.notifications, self.notifications) = (Some(sender), Some(receiver));
        }
        engine.armed = true;
        Ok(())
    }

    async fn disarm(&mut self) -> Result<(), LaneError> {
        self.lane.state.lock().engines[self.lane.engine].armed = false;
        Ok(())
    }

    async fn notified(&mut self) -> Result<(), LaneError> {
        let lost = || LaneError::Unavailable("the connection is lost".to_owned());
        self.notifications.as_mut().ok_or_else(lost)?.recv().await.ok_or_else(lost)
    }
}

impl Meter for SwarmLane {
    fn breaker(&self, route: &str, state: BreakerState) {
        self.state.lock().breaker_changed(self.engine, route, state);
    }
}
