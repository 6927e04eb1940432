//! How the engine handles the results of dispatches and of database calls.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

use crate::breaker::{Attempt, BreakerState};
use crate::call_backoff::CallBackoff;
use crate::claim_capacity::ClaimCapacity;
use crate::completion_batcher::PendingCompletion;
use crate::lane::{Claim, Completion, CompletionResult, Lane, LaneError, Repaired, RouteSignal};
use crate::metrics::{ClaimFill, Meter};
use crate::simulation::{PlantedBug, is_planted};

use super::calls::{CallResult, ClaimResult, LanePending};
use super::dispatches::{DispatchEnd, EndedDispatch};
use super::state::EngineState;

impl<L: Lane> EngineState<L> {
    /// Takes every other result that is ready, so that one step handles them together.
    pub(super) fn take_ready(&mut self, now: Instant) {
        while let Some(ended) = self.dispatches.ready() {
            self.on_dispatch_ended(ended, now);
        }
        while let Some(result) = self.calls.ready() {
            self.on_call_returned(result, now);
        }
    }

    /// A dispatch ended: its slot is free, and its outcome goes to the completion batcher.
    pub(super) fn on_dispatch_ended(&mut self, (id, end): EndedDispatch<L>, now: Instant) {
        self.renewal.ended(id);
        let Some(dispatch) = self.dispatches.remove(id) else { return };
        if !(matches!(end, DispatchEnd::Cancelled) && is_planted(PlantedBug::CancelledSlotLeaks)) {
            self.meter.in_flight(&dispatch.route, self.slots.free(&dispatch.route, dispatch.started, now));
        }
        if self.slots.is_awaited(&dispatch.route, now) {
            self.wake.capacity_freed();
        }
        let until = dispatch.until.get();
        // It was cancelled while it waited for its turn: nothing was sent, so its outcome is not unknown.
        let end = match end {
            DispatchEnd::Cancelled if !dispatch.lost && !dispatch.until.is_dispatched() => DispatchEnd::NotStarted,
            end => end,
        };
        let trace_id = dispatch.trace_id;
        let finished = matches!(end, DispatchEnd::Finished(_));
        let (signal, outcome) = match end {
            DispatchEnd::Finished(finished) => {
                self.meter.dispatch_finished(&dispatch.route, finished.latency, finished.signal);
                (finished.signal, Some(finished.outcome))
            }
            DispatchEnd::NotStarted => {
                self.releases.push(dispatch.lease.clone(), until);
                self.report_to_breaker(&dispatch.route, dispatch.attempt, RouteSignal::Neutral, now);
                return;
            }
            DispatchEnd::Panicked => {
                tracing::error!(lease = %dispatch.lease, route = %dispatch.route, trace_id = trace_id.map(display),
                    "the dispatch panicked");
                (RouteSignal::Failing, self.abandon(&dispatch.route, &dispatch.lease))
            }
            DispatchEnd::Cancelled => (RouteSignal::Neutral, self.abandon(&dispatch.route, &dispatch.lease)),
        };
        self.report_to_breaker(&dispatch.route, dispatch.attempt, signal, now);
        match outcome {
            Some(outcome) if !dispatch.lost => {
                let completion = Arc::new(Completion { lease: dispatch.lease, outcome });
                self.completions
                    .push(PendingCompletion { completion, route: dispatch.route, until, trace_id }, now);
            }
            outcome => {
                tracing::info!(lease = %dispatch.lease, route = %dispatch.route, trace_id = trace_id.map(display),
                    "a dispatch ended after its lease was lost: not recorded");
                self.held.remove(&dispatch.lease);
                // Of a cancelled dispatch the lane knows more than its outcome here.
                if let Some(outcome) = outcome.filter(|_| finished) {
                    self.lane.unrecorded(&Completion { lease: dispatch.lease, outcome });
                }
            }
        }
    }

    fn abandon(&mut self, route: &str, lease: &L::Lease) -> Option<L::Outcome> {
        self.summary.abandoned += 1;
        self.meter.dispatch_abandoned(route);
        self.lane.abandoned(lease)
    }

    fn report_to_breaker(&mut self, route: &Arc<str>, attempt: Attempt, signal: RouteSignal, now: Instant) {
        if attempt.probe && signal == RouteSignal::Neutral && is_planted(PlantedBug::NeutralProbeKeepsProbing) {
            return;
        }
        let changed = self.breakers.record_result(route, attempt, signal, now);
        if let Some(state) = changed {
            self.breaker_changed(route, state);
        }
        // Rows of the route were held back, or another of them is to probe it.
        if changed == Some(BreakerState::Closed) || self.breakers.wants_probe(route) {
            self.wake.capacity_freed();
        }
    }

    /// A database call returned.
    pub(super) fn on_call_returned(&mut self, result: CallResult<L>, now: Instant) {
        match result {
            CallResult::Claimed { capacity, sent, claim, late } => {
                if let Some(late) = late {
                    self.calls.await_late_claim(late, sent, sent + self.term.length());
                }
                self.claimed(&capacity, sent, claim, now);
            }
            CallResult::ClaimedLate { sent, claim } => {
                self.log_taken_over(&claim.taken_over);
                for lease in claim.jobs.iter().map(|job| self.lane.lease(job)) {
                    if self.held.insert(lease.clone()) {
                        self.summary.claimed += 1;
                        self.releases.push(lease, sent + self.term.length());
                    }
                }
            }
            CallResult::Completed { batch, results } => self.completed(batch, results, now),
            CallResult::Renewed { dispatches, sent, held } => self.renewed(&dispatches, sent, held, now),
            CallResult::Released { leases, count } => self.released(leases, count, now),
            CallResult::Repaired(repaired) => self.repaired(repaired, now),
            CallResult::NextDue(wait) => match wait {
                Ok(wait) => self.wake.next_due_in(wait, now),
                Err(error) => {
                    self.meter.call_failed("next_due");
                    tracing::debug!(%error, "the due time of the next scheduled row is unknown");
                    self.wake.next_due_failed(now);
                }
            },
        }
    }

    fn claimed(&mut self, capacity: &ClaimCapacity, sent: Instant, claim: ClaimResult<L>, now: Instant) {
        self.claiming = false;
        let Claim { jobs, taken_over, is_rate_limited, asked } = match claim {
            Ok(claim) => claim,
            Err(error) => {
                self.wake.claim_failed(&error, now);
                log_failure(&*self.meter, "claim", &error, &self.wake.backoff);
                return;
            }
        };
        log_recovery("claim", &mut self.wake.backoff);
        self.log_taken_over(&taken_over);
        let (rows, asked) = (jobs.len(), asked.unwrap_or(capacity.total()));
        let started = self.start(jobs, capacity, sent, now);
        let fill = match rows {
            0 => ClaimFill::Empty,
            rows if rows >= asked => ClaimFill::Full,
            _ => ClaimFill::Partial,
        };
        self.meter.claim(fill, rows, now.saturating_duration_since(sent));
        self.wake.claimed(asked, started, now);
        if is_rate_limited {
            self.wake.scheduled();
        }
        if self.slots.has_capacity_for_saturated(&self.capacity(now)) {
            self.wake.capacity_freed();
        }
    }

    fn completed(
        &mut self,
        batch: Vec<LanePending<L>>,
        results: Result<Vec<CompletionResult>, LaneError>,
        now: Instant,
    ) {
        let count = batch.len();
        let results = results.and_then(|results| {
            if results.len() == count {
                Ok(results)
            } else {
                Err(LaneError::Refused(format!("{} results for {count} rows", results.len())))
            }
        });
        match results {
            Ok(results) => {
                self.completions.call_returned();
                log_recovery("complete", &mut self.completions.backoff);
                for (pending, result) in batch.into_iter().zip(results) {
                    self.on_completion(&pending, result);
                }
            }
            Err(LaneError::Unavailable(_)) if is_planted(PlantedBug::LostCompletion) => {
                self.completions.call_returned();
            }
            Err(error @ LaneError::Unavailable(_)) => {
                self.completions.retry(batch, now);
                log_failure(&*self.meter, "complete", &error, &self.completions.backoff);
            }
            Err(LaneError::Refused(message)) if count > 1 => {
                self.meter.call_failed("complete");
                tracing::error!(
                    rows = count,
                    message,
                    "a batch of completions was refused: its rows are sent one by one"
                );
                self.completions.split(batch);
            }
            Err(LaneError::Refused(message)) => {
                self.completions.call_returned();
                self.meter.call_failed("complete");
                for pending in batch {
                    self.give_up(&pending, &message);
                }
            }
        }
    }

    fn on_completion(&mut self, pending: &LanePending<L>, result: CompletionResult) {
        let (lease, trace_id) = (&pending.completion.lease, pending.trace_id);
        match result {
            CompletionResult::Recorded { state, retry_scheduled, unblocks_rows } => {
                self.meter.attempt(&pending.route, state);
                self.lane.recorded(&pending.route, &pending.completion, state);
                self.summary.recorded += 1;
                if retry_scheduled {
                    if self.lane.has_failed(&pending.completion) {
                        self.meter.retry_scheduled(&pending.route);
                    }
                    self.wake.scheduled();
                }
                if unblocks_rows {
                    self.wake.capacity_freed();
                }
            }
            CompletionResult::LeaseLost => {
                tracing::info!(event = "CONCURRENCY_EVENT", lane = self.lane.name(), %lease, route = %pending.route,
                    trace_id = trace_id.map(display), "a completion was refused: the lease was lost");
                self.lease_lost();
            }
            CompletionResult::AlreadyTerminal => {
                tracing::info!(%lease, trace_id = trace_id.map(display), "a completion changed nothing: the row was already terminal");
                self.meter.already_terminal();
            }
            CompletionResult::Backstop => {
                tracing::error!(%lease, trace_id = trace_id.map(display), event = "terminal_backstop",
                    "a second terminal write of a row was rejected by the unique index");
                self.meter.backstop();
            }
            CompletionResult::Refused(message) => return self.give_up(pending, &message),
        }
        self.held.remove(lease);
    }

    fn lease_lost(&mut self) {
        self.meter.lease_lost();
        self.summary.lease_lost += 1;
    }

    fn renewed(&mut self, ids: &[Id], sent: Instant, held: Result<Vec<bool>, LaneError>, now: Instant) {
        let held = held.and_then(|held| {
            if held.len() == ids.len() {
                Ok(held)
            } else {
                Err(LaneError::Refused(format!("{} results for {} leases", held.len(), ids.len())))
            }
        });
        let mut held = match held {
            Ok(held) => held,
            Err(error) => {
                self.renewal.failed(now);
                return log_failure(&*self.meter, "renew", &error, &self.renewal.backoff);
            }
        };
        log_recovery("renew", &mut self.renewal.backoff);
        if is_planted(PlantedBug::RenewalOfWrongLease) {
            held.reverse();
        }
        let kept: Vec<Id> = ids.iter().zip(&held).filter(|(_, held)| **held).map(|(id, _)| *id).collect();
        self.meter.renewed(kept.len(), ids.len() - kept.len());
        self.renewal.renewed(&kept, sent);
        let until = sent + self.term.length();
        for (id, held) in ids.iter().zip(held) {
            // If the dispatch has ended meanwhile, the completion batcher has its lease.
            let Some(dispatch) = self.dispatches.get_mut(*id) else { continue };
            if held {
                dispatch.until.extend(until);
            } else {
                dispatch.lost = true;
                if !is_planted(PlantedBug::LostLeaseNotCancelled) {
                    dispatch.cancel();
                }
                tracing::info!(lease = %dispatch.lease, route = %dispatch.route, trace_id = dispatch.trace_id.map(display),
                    "the lease was lost: its dispatch is cancelled");
                self.renewal.ended(*id);
                self.lease_lost();
            }
        }
    }

    fn released(&mut self, leases: Vec<(L::Lease, Instant)>, count: Result<usize, LaneError>, now: Instant) {
        match count {
            Ok(count) => {
                self.meter.released(count);
                self.summary.released += u64::try_from(count).unwrap_or(u64::MAX);
                log_recovery("release", &mut self.releases.backoff);
            }
            Err(error @ LaneError::Unavailable(_)) => {
                self.releases.retry(leases, now);
                return log_failure(&*self.meter, "release", &error, &self.releases.backoff);
            }
            Err(LaneError::Refused(message)) => {
                self.meter.call_failed("release");
                tracing::error!(leases = leases.len(), message, "leases could not be released: they expire");
            }
        }
        self.releases.call_returned();
        for (lease, _) in leases {
            self.held.remove(&lease);
        }
    }

    /// A claim requeued or ended expired leases.
    fn log_taken_over(&mut self, taken_over: &Repaired) {
        if taken_over.count() > 0 {
            self.meter.taken_over(taken_over);
            self.log_expired_leases(taken_over, "claim");
        }
    }

    /// Logs the events that alert rules match: leases had expired, and were requeued or ended.
    fn log_expired_leases(&mut self, leases: &Repaired, found_by: &'static str) {
        let (count, lane) = (leases.count(), self.lane.name());
        if count == 0 {
            return;
        }
        self.summary.repaired += u64::try_from(count).unwrap_or(u64::MAX);
        let lost_workers = leases.lost_workers.iter().map(String::as_str).take(10).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            event = "expired_leases_detected",
            lane,
            found_by,
            count,
            lost_workers,
            "leases had expired"
        );
        let (requeued, ended) = (leases.requeued, leases.ended);
        tracing::info!(event = "leases_repaired", lane, found_by, requeued, ended, "expired leases repaired");
    }

    fn repaired(&mut self, repaired: Result<Repaired, LaneError>, now: Instant) {
        match repaired {
            Ok(repaired) => {
                log_recovery("repair", &mut self.repair_backoff);
                self.meter.repaired(&repaired);
                self.log_expired_leases(&repaired, "repair");
                self.meter.quarantined(repaired.quarantined);
                if repaired.quarantined > self.quarantined {
                    tracing::error!(
                        rows = repaired.quarantined - self.quarantined,
                        total = repaired.quarantined,
                        event = "terminal_backstop",
                        "rows were pending although the ledger had ended them: they are in quarantine"
                    );
                    self.quarantined = repaired.quarantined;
                }
                if repaired.requeued > 0 {
                    self.wake.scheduled();
                }
                // A repair that changed nothing is not repeated at once, even if it reports more.
                let again = repaired.more && repaired.count() > 0;
                self.repair_in(if again { Duration::ZERO } else { self.settings.repair_every }, now);
            }
            Err(error) => {
                let wait = self.repair_backoff.failed_with(&error);
                log_failure(&*self.meter, "repair", &error, &self.repair_backoff);
                self.repair_in(wait, now);
            }
        }
    }
}

/// Logs a failed call: every refusal, since an operator has to act; of an outage only the first.
fn log_failure(meter: &dyn Meter, call: &'static str, error: &LaneError, backoff: &CallBackoff) {
    meter.call_failed(call);
    match error {
        LaneError::Refused(_) => tracing::error!(call, %error, "a call failed"),
        LaneError::Unavailable(_) if backoff.is_first_failure() => {
            tracing::warn!(call, %error, "a call failed and is retried");
        }
        LaneError::Unavailable(_) => {}
    }
}

fn log_recovery(call: &'static str, backoff: &mut CallBackoff) {
    if backoff.succeeded() {
        tracing::info!(call, "a call succeeded again");
    }
}
