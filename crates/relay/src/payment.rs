//! The payment lane: claims payments from PostgreSQL, sends them over rails, and records the outcomes.
//!
//! Translates between the engine, the SQL functions and the rails:
//!
//! - `answer_mapping` maps a rail's answer to the outcome that the ledger records.
//! - `history` remembers acknowledged commits, and asks each new session for them.
//! - `orphans` keeps the outcomes of lost leases until the database has said whether it knows their payments.
//! - `results` tells the engine what became of leases and completions.
//! - `run` dispatches the payments of a participant on an ordered rail one after the other.
//! - `unreplicated` releases a claim that waits in vain for a synchronous standby.
//! - `unknown_outcome` inquires after an unknown outcome and applies the rail's policy.
//! - `trace_contexts` looks up the producers' traces.
//!
//! The database decides about retries, backoff and the dead-letter queue; this module does not repeat its rules.

mod answer_mapping;
mod history;
mod orphans;
mod results;
mod run;
mod trace_contexts;
mod unknown_outcome;
mod unreplicated;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_db::connect::{Session, Target};
use symphony_db::error::{CompleteError, DatabaseError};
use symphony_db::payment::worker::{self, ClaimLimits as RailCapacity, Claimed, ClaimedBatch, Commit};
use symphony_db::payment::{
    self, AWAITING_CONFIRMATION, AttemptState, OUTCOME_UNKNOWN, OrphanKind, Outcome, RailAnswer,
};
use symphony_db::retention::remove_expired_keys;
use symphony_db::{BatchSize, WorkerId};

use tokio::time::timeout;

use crate::claim_capacity::ClaimCapacity;
use crate::epoch::{self, EpochFence};
use crate::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired, RouteSignal};
use crate::lease::{LeaseWatch, Term};
use crate::rail::{Answer, Payment, Rail};
use crate::retention;
use crate::session_pool::SessionPool;
use crate::trace::{Context, Origin, SpanStatus};

pub use history::{History, SavedHistory};
use orphans::{AtTheBank, Dispatched, Orphans};
use results::{completion_result, ended_leases, log_failed};
use run::{Followers, RunEnd, RunPlace, StopRuns};
use trace_contexts::TraceContexts;
use unknown_outcome::{NextStep, PriorOutcome};

/// The maximum number of leases per call. A process may hold more.
const MAX_LEASES_PER_CALL: usize = 1000;
/// The timeout of reading a rail's policy for unknown outcomes.
const POLICY_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of a partition of the ledger a relayer reads, to end or to index it. More is left to `symphony maintain`.
const MAX_LEDGER_SCAN_MB: i32 = 64;
/// The timeout of adding partitions to the ledger. It is within the engine's timeout of a repair.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after its own timeout a rail may still answer before its dispatch is cancelled.
const RAIL_TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// The payment lane of one process.
pub struct PaymentLane {
    target: Arc<Target>,
    worker: WorkerId,
    lease: Duration,
    rails: BTreeMap<String, Arc<dyn Rail>>,
    /// Where the rails that name it send to.
    endpoints: Arc<BTreeMap<String, String>>,
    followers: Followers,
    fence: Arc<EpochFence>,
    history: Arc<History>,
    orphans: Orphans,
    /// Held while a session is asked for the commits of `history`, and while leases leave it.
    checking_history: tokio::sync::Mutex<()>,
    /// Set if traces are exported.
    trace_contexts: Option<TraceContexts>,
    // One pool per kind of call, so that none waits for another. Completions have two sessions: while one waits for its
    // commit, or hangs, the other continues.
    claims: SessionPool,
    completions: SessionPool,
    renewals: SessionPool,
    repairs: SessionPool,
    policies: SessionPool,
}

impl PaymentLane {
    /// A lane for these rails, by name. It does not connect yet.
    #[must_use]
    pub fn new(
        target: Arc<Target>,
        worker: WorkerId,
        lease: Duration,
        rails: BTreeMap<String, Arc<dyn Rail>>,
    ) -> Self {
        let pool = || SessionPool::new(Arc::clone(&target));
        let endpoint =
            |(name, rail): (&String, &Arc<dyn Rail>)| Some((name.clone(), rail.endpoint()?.to_string()));
        let lane = Self {
            worker,
            lease,
            fence: Arc::default(),
            followers: Followers::new(
                rails.iter().filter(|(_, rail)| rail.supports_inquiry()).map(|(name, _)| name),
            ),
            endpoints: Arc::new(rails.iter().filter_map(endpoint).collect()),
            rails,
            orphans: Orphans::default(),
            history: Arc::new(History::new(SavedHistory::default())),
            checking_history: tokio::sync::Mutex::default(),
            trace_contexts: None,
            claims: pool(),
            completions: SessionPool::with_size(2, Arc::clone(&target)),
            renewals: pool(),
            repairs: pool(),
            policies: pool(),
            target: Arc::clone(&target),
        };
        lane.with_fence(Arc::default())
    }

    /// Shares the fence against old primaries with the other lanes of the process.
    #[must_use]
    pub fn with_fence(mut self, fence: Arc<EpochFence>) -> Self {
        for pool in
            [&mut self.claims, &mut self.completions, &mut self.renewals, &mut self.repairs, &mut self.policies]
        {
            pool.set_fence(&fence);
        }
        self.fence = fence;
        let history = Arc::clone(&self.history);
        self.with_history(history)
    }

    /// Begins with this history, and keeps it: the caller may save it.
    #[must_use]
    pub fn with_history(mut self, history: Arc<History>) -> Self {
        if let Some(epoch) = history.to_save().epoch {
            // A saved one is the first of a process: none is later.
            let _ = self.fence.see(epoch);
        }
        self.history = history;
        self
    }

    /// Looks up the producers' trace contexts after each claim. Only an engine with a tracer needs them.
    #[must_use]
    pub fn with_trace_contexts(mut self) -> Self {
        self.trace_contexts = Some(TraceContexts::default());
        self
    }

    fn rail_capacity(&self, limit: impl Fn(&str) -> usize) -> RailCapacity {
        let limit = |rail: &String| (rail.clone(), u32::try_from(limit(rail)).unwrap_or(u32::MAX).min(1_000_000));
        self.rails.keys().map(limit).collect()
    }

    /// Asks a session for the commits that this process remembers, before it claims there.
    async fn check_history(&self, session: &Session) -> Result<(), LaneError> {
        // No lease that it asks for may be released meanwhile.
        let _checking = self.checking_history.lock().await;
        let (seen, commits) = self.history.remembered();
        let checked = worker::check_history(session, &self.worker, seen, &commits).await?;
        epoch::log_opened(self.name(), checked.opened_epoch.as_ref());
        self.see_epoch(checked.epoch)
    }

    /// The server is in this epoch, or refused.
    fn see_epoch(&self, epoch: i64) -> Result<(), LaneError> {
        self.fence.see(epoch)?;
        self.history.see(epoch);
        Ok(())
    }

    /// Adds partitions to the ledger ahead of time. Four are ahead and the last has no end, so a failure can wait for the
    /// next repair.
    async fn extend_ledger(&self) {
        let extend = self.repairs.call(async |session| worker::extend_ledger(session, MAX_LEDGER_SCAN_MB).await);
        let extension = match timeout(LEDGER_TIMEOUT, extend).await {
            Ok(Ok(extension)) => extension,
            Ok(Err(error)) => return tracing::warn!(%error, "cannot add partitions to the ledger"),
            Err(_) => return tracing::warn!(after = ?LEDGER_TIMEOUT, "adding partitions to the ledger timed out"),
        };
        let (created, ahead) = (extension.created.join(", "), extension.partitions_ahead);
        if !created.is_empty() {
            tracing::info!(partitions = created, ahead, "partitions added to the ledger");
        } else if let Some(reason) = extension.skipped {
            tracing::debug!(reason, ahead, "upkeep of the ledger was put off");
        }
    }

    /// Reads the rail's policy for an unknown outcome. The engine sets no timeout on a dispatch whose lease it
    /// renews, so this call needs its own.
    async fn advice(&self, rail: &dyn Rail, lease: payment::Lease) -> Result<worker::Advice, LaneError> {
        let limit = POLICY_TIMEOUT.min(self.lease / 3);
        let dispatch_time = unknown_outcome::dispatch_time(rail);
        let advice = self.policies.call(async |session| {
            worker::advise_on_unknown_outcome(session, &self.worker, lease, dispatch_time).await
        });
        timeout(limit, advice)
            .await
            .unwrap_or_else(|_| Err(LaneError::Unavailable(format!("no answer within {limit:?}"))))
    }

    /// Sends a payment. After an unknown outcome an inquiry comes first, and may settle it.
    async fn send(&self, rail: &dyn Rail, job: Box<Claimed>, granted: Lease, lease: &LeaseWatch) -> Sent {
        let (held, outcome_unknown) = (job.lease(), job.outcome_unknown);
        let payment = payment_of(*job);
        let endpoint = self.endpoints.get(&payment.rail_type).cloned();
        let prior = if outcome_unknown {
            // Boxed: few payments need it, and the future of each would reserve its space.
            let inquiry =
                Box::pin(async { unknown_outcome::inquire(rail, &payment, self.advice(rail, held).await).await });
            match inquiry.await {
                NextStep::Record(outcome, signal) => return Sent::nothing(payment, endpoint, outcome, signal),
                NextStep::Send(prior) => prior,
            }
        } else {
            PriorOutcome::NotPaid
        };
        if let Err(invalid) = rail.validate(&payment) {
            return Sent::nothing(payment, endpoint, prior.invalid_payload(invalid), RouteSignal::Neutral);
        }
        if lease.remaining().is_zero() {
            // The lease has expired or is about to: the outcome may not be recorded in time either.
            let outcome = prior.not_sent("the lease expired before the payment was sent");
            return Sent::nothing(payment, endpoint, outcome, RouteSignal::Neutral);
        }
        if let Some(why) = self.fence.refusal(granted.epoch) {
            // The server that granted it may be an old primary, and another worker may have the payment on the new one.
            return Sent::nothing(payment, endpoint, prior.not_sent(why), RouteSignal::Neutral);
        }
        // A rail enforces its own timeout. One that does not must not keep the lease renewed without end.
        let limit = rail.timeout() + RAIL_TIMEOUT_GRACE;
        let at_the_bank = AtTheBank::new(&self.orphans, granted, &payment, endpoint.as_ref());
        let answer = timeout(limit, rail.dispatch(&payment)).await.unwrap_or_else(|_| Answer::Unknown {
            message: format!("no answer within {limit:?}"),
            rail: RailAnswer::default(),
            row_only: false,
        });
        at_the_bank.answered();
        let dispatched = Dispatched::new(payment, endpoint, matches!(answer, Answer::ExecutedBefore(_)));
        let (outcome, signal) = answer_mapping::outcome(answer, prior);
        Sent { outcome, signal, dispatched: Box::new(dispatched) }
    }
}

/// How a dispatch ended, and what is needed to report its payment if the database has lost it.
struct Sent {
    outcome: Outcome,
    signal: RouteSignal,
    dispatched: Box<Dispatched>,
}

impl Sent {
    fn nothing(payment: Payment, endpoint: Option<String>, outcome: Outcome, signal: RouteSignal) -> Self {
        Self { outcome, signal, dispatched: Box::new(Dispatched::new(payment, endpoint, false)) }
    }
}

fn payment_of(job: Claimed) -> Payment {
    Payment {
        outbox_id: job.outbox_id,
        instruction_id: job.instruction_id,
        participant_id: job.participant_id,
        sequence_id: job.sequence_id,
        idempotency_key: job.idempotency_key,
        rail_type: job.rail_type,
        payload: job.payload,
        attempt_count: job.attempt_count,
    }
}

impl fmt::Debug for PaymentLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaymentLane")
            .field("worker", &self.worker)
            .field("rails", &self.rails.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A claimed payment, and the trace context in which it was enqueued, if that was looked up and found.
#[derive(Debug)]
pub struct Job {
    /// The payment and its lease. Boxed, because a job moves through several futures.
    pub claimed: Box<Claimed>,
    /// The producer's trace context.
    pub trace_context: Option<Context>,
    /// The epoch in which its lease was granted.
    epoch: Option<i64>,
    /// Its place in a run, if it is in one.
    place: Option<RunPlace>,
}

/// A lease of this lane. `Display` shows the outbox id, never the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    lease: payment::Lease,
    /// The claim that granted it.
    claim: Commit,
    /// The epoch in which it was granted.
    epoch: Option<i64>,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.outbox_id.fmt(f)
    }
}

/// How an attempt ended, and how long the rail took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentOutcome {
    outcome: Outcome,
    latency: Option<Duration>,
    /// What its run waits for, if it is in one.
    run: Option<RunEnd>,
    /// The payment; none if its dispatch was cancelled. Boxed, because an outcome moves through several futures.
    dispatched: Option<Box<Dispatched>>,
}

impl Lane for PaymentLane {
    type Job = Job;
    type Lease = Lease;
    type Outcome = PaymentOutcome;

    fn name(&self) -> &'static str {
        "payment"
    }

    fn term(&self) -> Term {
        Term::Renewable(self.lease)
    }

    fn lease(&self, job: &Job) -> Lease {
        Lease { lease: job.claimed.lease(), claim: Commit::of_claim(&job.claimed, self.lease), epoch: job.epoch }
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        &job.claimed.rail_type
    }

    fn route_count(&self) -> usize {
        self.rails.len()
    }

    fn origin(&self, job: &Job) -> Origin {
        let attempt = u32::try_from(job.claimed.attempt_count).ok().map(|before| before + 1);
        Origin { attempt, producer: job.trace_context }
    }

    fn span_status(&self, outcome: &PaymentOutcome) -> SpanStatus {
        let (state, outcome) = (outcome.outcome.state().as_str(), &outcome.outcome);
        match outcome.reason() {
            None => SpanStatus::ok(state),
            Some(reason) if reason.code == AWAITING_CONFIRMATION => SpanStatus::ok(state),
            Some(reason) => SpanStatus::failed(state, Some(&reason.code)),
        }
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        let Some(at_most) = u16::try_from(capacity.total()).ok().and_then(|total| BatchSize::try_from(total).ok())
        else {
            return Err(LaneError::Refused(format!("a claim of {} rows is out of range", capacity.total())));
        };
        let per_rail = self.rail_capacity(|rail| capacity.most_of(rail));
        let per_rail = per_rail
            .with_followers(self.followers.limits(capacity))
            .with_endpoints(Arc::clone(&self.endpoints))
            .with_first_attempts(capacity.first_attempts().map(str::to_owned));
        let deadline = unreplicated::claim_deadline(self.lease);
        let ClaimedBatch { claimed, taken_over, run_rails, opened_epoch, used_rate_limit, epoch } = self
            .claims
            .call_checked(
                async |session| self.check_history(session).await,
                async |session| {
                    let claim = worker::claim_with_limits(session, &self.worker, at_most, self.lease, &per_rail);
                    let claim = unreplicated::cancel_at(deadline, &self.target, session, claim).await?;
                    if session.take_unreplicated() {
                        Err(unreplicated::release(&self.target, session, &self.worker, self.lease, &claim.claimed)
                            .await)
                    } else {
                        Ok(claim)
                    }
                },
            )
            .await?;
        epoch::log_opened(self.name(), opened_epoch.as_ref());
        if let Some(epoch) = epoch {
            // Without the rows: their leases expire, and their outcome is unknown then.
            self.see_epoch(epoch)?;
        }
        if let Some(last) = claimed.last() {
            self.history.claimed(Commit::of_claim(last, self.lease));
        }
        self.followers.record_claim(capacity, claimed.len());
        let mut contexts = match &self.trace_contexts {
            Some(lookup) => lookup.look_up(&self.policies, &claimed).await,
            None => HashMap::new(),
        };
        let mut places = self.followers.places(&claimed, &run_rails);
        let job = |claimed: Claimed| Job {
            trace_context: contexts.remove(&claimed.outbox_id),
            place: places.remove(&claimed.outbox_id),
            claimed: Box::new(claimed),
            epoch,
        };
        let jobs = claimed.into_iter().map(job).collect();
        Ok(Claim { taken_over: ended_leases(&taken_over), is_rate_limited: used_rate_limit, ..Claim::new(jobs) })
    }

    async fn wait_for_turn(&self, job: &mut Job) -> bool {
        match &mut job.place {
            Some(place) => place.wait().await,
            None => true,
        }
    }

    async fn dispatch(&self, job: Job, lease: LeaseWatch) -> DispatchResult<PaymentOutcome> {
        let granted = self.lease(&job);
        let (began, place, job) = (Instant::now(), job.place, job.claimed);
        let rail_type = job.rail_type.clone();
        let Sent { outcome, signal, dispatched } = match self.rails.get(&job.rail_type) {
            Some(rail) => self.send(rail.as_ref(), job, granted, &lease).await,
            // Claims select only the rails that this relayer serves. A relayer that serves this one will retry.
            None => {
                let outcome = PriorOutcome::of(&job).not_sent("this relayer does not serve the rail");
                Sent::nothing(payment_of(*job), None, outcome, RouteSignal::Neutral)
            }
        };
        let latency = began.elapsed();
        self.followers.record_latency(&rail_type, latency);
        // The next of the run may go only while this lease is held: else another worker may hold the row already.
        let run = place
            .map(|place| place.end(matches!(outcome, Outcome::Dispatched { .. }) && !lease.remaining().is_zero()));
        let outcome = PaymentOutcome { outcome, latency: Some(latency), run, dispatched: Some(dispatched) };
        DispatchResult { outcome, latency, signal }
    }

    fn abandoned(&self, _lease: &Lease) -> Option<PaymentOutcome> {
        Some(PaymentOutcome {
            outcome: unknown_outcome::still_unknown("the dispatch was cancelled"),
            latency: None,
            run: None,
            dispatched: None,
        })
    }

    async fn complete(
        &self,
        completions: &[Arc<Completion<Lease, PaymentOutcome>>],
    ) -> Result<Vec<CompletionResult>, LaneError> {
        let batch: Vec<_> = completions
            .iter()
            .map(|completion| payment::Completion {
                lease: completion.lease.lease,
                outcome: completion.outcome.outcome.clone(),
                latency: completion.outcome.latency,
            })
            .collect();
        let complete = async |session: &Session| {
            match worker::complete_batch(session, &self.worker, &batch).await {
                // The unique index refuses the whole statement. In a batch of one, the row is known; a larger batch is
                // split by the engine.
                Err(refused @ CompleteError::Database(DatabaseError::TerminalBackstop(_))) if batch.len() == 1 => {
                    Ok(vec![Err(refused)])
                }
                results => results,
            }
        };
        let stop_runs =
            StopRuns::unless_recorded(completions.iter().filter_map(|completion| completion.outcome.run.as_ref()));
        let results = self.completions.call(complete).await?;
        stop_runs.recorded();
        let recorded = results.iter().zip(completions).rev().find(|(result, _)| result.is_ok());
        if let Some((_, completion)) = recorded {
            self.history.completed(completion.lease.claim.completed());
        }
        for (result, completion) in results.iter().zip(completions) {
            let Completion { lease, outcome } = &**completion;
            match result {
                Err(CompleteError::LeaseLost(_)) => self.orphans.keep(OrphanKind::UnknownOutbox, lease, outcome),
                Ok(_) | Err(CompleteError::AlreadyTerminal(_))
                    if outcome.dispatched.as_ref().is_some_and(|sent| sent.is_replayed_first_attempt) =>
                {
                    self.orphans.keep(OrphanKind::ReplayedFirstAttempt, lease, outcome);
                }
                Ok(_) | Err(_) => {}
            }
        }
        self.orphans.report(&self.policies, &self.worker).await;
        let result = |(result, completion): (_, &Arc<Completion<Lease, PaymentOutcome>>)| {
            completion_result(result, completion.outcome.run.as_ref())
        };
        Ok(results.into_iter().zip(completions).map(result).collect())
    }

    fn recorded(&self, route: &str, completion: &Completion<Lease, PaymentOutcome>, state: &'static str) {
        if state == AttemptState::Failed.as_str() {
            let code = match completion.outcome.outcome.reason().map_or("", |reason| reason.code.as_str()) {
                // It was the last attempt: the ledger says that its outcome is unknown.
                AWAITING_CONFIRMATION => OUTCOME_UNKNOWN,
                code => code,
            };
            log_failed(completion.lease.lease.outbox_id, route, code);
        }
    }

    fn has_failed(&self, completion: &Completion<Lease, PaymentOutcome>) -> bool {
        // A payment that the rail has accepted waits for its outcome: that is no failure, and no sign that retries rise.
        completion.outcome.outcome.reason().is_some_and(|reason| reason.code != AWAITING_CONFIRMATION)
    }

    fn unrecorded(&self, completion: &Completion<Lease, PaymentOutcome>) {
        self.orphans.keep(OrphanKind::UnknownOutbox, &completion.lease, &completion.outcome);
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        let leases: Vec<_> = leases.iter().map(|lease| lease.lease).collect();
        let mut held = Vec::with_capacity(leases.len());
        for part in leases.chunks(MAX_LEASES_PER_CALL) {
            let renewed = self
                .renewals
                .call(async |session| worker::renew(session, &self.worker, part, self.lease).await)
                .await?;
            held.extend(renewed.iter().map(|renewed| renewed.lease_expires_at.is_some()));
        }
        Ok(held)
    }

    async fn release(&self, leases: &[Lease]) -> Result<usize, LaneError> {
        let leases: Vec<_> = leases.iter().map(|lease| lease.lease).collect();
        // Before the release: whether or not it is acknowledged, they are no evidence any more.
        {
            let _not_checking = match self.checking_history.try_lock() {
                Ok(not_checking) => not_checking,
                Err(_) => {
                    tracing::debug!("a release of leases waits until a session has been asked for them");
                    self.checking_history.lock().await
                }
            };
            self.history.forget(|commit| leases.iter().any(|lease| commit.granted(lease)));
        }
        let mut count = 0;
        for part in leases.chunks(MAX_LEASES_PER_CALL) {
            let released = self
                .repairs
                .call(async |session| worker::release(session, &self.worker, part, None).await)
                .await?;
            count += released.iter().filter(|released| released.released).count();
        }
        Ok(count)
    }

    async fn repair(&self) -> Result<Repaired, LaneError> {
        self.orphans.report(&self.policies, &self.worker).await;
        let repaired =
            self.repairs.call(async |session| worker::repair(session, &self.worker, BatchSize::MAX).await).await?;
        let more = repaired.len() >= usize::from(BatchSize::MAX.get());
        let quarantined = self.repairs.call(async |session| worker::quarantined_total(session).await).await?;
        if !more {
            self.extend_ledger().await;
            let expired = async |session: &Session, limit| {
                remove_expired_keys(session, limit).await.map(|(removed, _)| removed)
            };
            retention::remove("idempotency keys", &self.repairs, expired).await;
        }
        Ok(Repaired { more, quarantined, ..ended_leases(&repaired) })
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        let capacity = self.rail_capacity(|_| 1);
        // Checked, because a claim uses the same session afterwards.
        self.claims
            .call_checked(
                async |session| self.check_history(session).await,
                async |session| worker::next_due(session, &capacity).await,
            )
            .await
    }
}
