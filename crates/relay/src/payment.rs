//! The payment lane: claims payments from PostgreSQL, sends them over rails, and records the outcomes.
//!
//! Translates between the engine, the SQL functions and the rails:
//!
//! - `answer_mapping` maps a rail's answer to the outcome that the ledger records.
//! - `unknown_outcome` inquires after an unknown outcome and applies the rail's policy.
//! - `trace_contexts` looks up the producers' traces.
//!
//! The database decides about retries, backoff and the dead-letter queue; this module does not repeat its rules.

mod answer_mapping;
mod trace_contexts;
mod unknown_outcome;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_db::connect::{Session, Target};
use symphony_db::error::{CompleteError, DatabaseError};
use symphony_db::payment::worker::{self, ClaimLimits as RailCapacity, Claimed, ClaimedBatch};
use symphony_db::payment::{self, AttemptState, Completed, Outcome, RailAnswer};
use symphony_db::{BatchSize, OutboxId, WorkerId};

use tokio::time::timeout;

use crate::claim_capacity::ClaimCapacity;
use crate::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired, RouteSignal};
use crate::lease::{LeaseWatch, Term};
use crate::rail::{Answer, Payment, Rail};
use crate::session_pool::SessionPool;
use crate::trace::{Context, Origin, SpanStatus};

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
/// The error code of a payment whose lease expired.
const LEASE_EXPIRED: &str = "LEASE_EXPIRED";
/// How long after its own timeout a rail may still answer before its dispatch is cancelled.
const RAIL_TIMEOUT_GRACE: Duration = Duration::from_secs(5);

/// The payment lane of one process.
pub struct PaymentLane {
    worker: WorkerId,
    lease: Duration,
    rails: BTreeMap<String, Arc<dyn Rail>>,
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
        Self {
            worker,
            lease,
            rails,
            trace_contexts: None,
            claims: pool(),
            completions: SessionPool::with_size(2, Arc::clone(&target)),
            renewals: pool(),
            repairs: pool(),
            policies: pool(),
        }
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
    async fn send(&self, rail: &dyn Rail, job: Claimed, lease: &LeaseWatch) -> (Outcome, RouteSignal) {
        let (held, outcome_unknown) = (job.lease(), job.outcome_unknown);
        let payment = payment_of(job);
        let prior = if outcome_unknown {
            match unknown_outcome::inquire(rail, &payment, self.advice(rail, held).await).await {
                NextStep::Record(outcome, signal) => return (outcome, signal),
                NextStep::Send(prior) => prior,
            }
        } else {
            PriorOutcome::NotPaid
        };
        if let Err(invalid) = rail.validate(&payment) {
            return (prior.invalid_payload(invalid), RouteSignal::Neutral);
        }
        if lease.remaining().is_zero() {
            // The lease has expired or is about to: the outcome may not be recorded in time either.
            return (prior.not_sent("the lease expired before the payment was sent"), RouteSignal::Neutral);
        }
        // A rail enforces its own timeout. One that does not must not keep the lease renewed without end.
        let limit = rail.timeout() + RAIL_TIMEOUT_GRACE;
        let answer = timeout(limit, rail.dispatch(&payment)).await.unwrap_or_else(|_| Answer::Unknown {
            message: format!("no answer within {limit:?}"),
            rail: RailAnswer::default(),
            row_only: false,
        });
        answer_mapping::outcome(answer, prior)
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
#[derive(Clone, Debug)]
pub struct Job {
    /// The payment and its lease.
    pub claimed: Claimed,
    /// The producer's trace context.
    pub trace_context: Option<Context>,
}

/// A lease of this lane. `Display` shows the outbox id, never the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease(payment::Lease);

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.outbox_id.fmt(f)
    }
}

/// How an attempt ended, and how long the rail took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentOutcome {
    outcome: Outcome,
    latency: Option<Duration>,
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
        Lease(job.claimed.lease())
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        &job.claimed.rail_type
    }

    fn origin(&self, job: &Job) -> Origin {
        let attempt = u32::try_from(job.claimed.attempt_count).ok().map(|before| before + 1);
        Origin { attempt, producer: job.trace_context }
    }

    fn span_status(&self, outcome: &PaymentOutcome) -> SpanStatus {
        let (state, outcome) = (outcome.outcome.state().as_str(), &outcome.outcome);
        match outcome.reason() {
            None => SpanStatus::ok(state),
            Some(reason) => SpanStatus::failed(state, Some(&reason.code)),
        }
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        let Some(at_most) = u16::try_from(capacity.total()).ok().and_then(|total| BatchSize::try_from(total).ok())
        else {
            return Err(LaneError::Refused(format!("a claim of {} rows is out of range", capacity.total())));
        };
        let per_rail = self.rail_capacity(|rail| capacity.for_route(rail));
        let ClaimedBatch { claimed, taken_over } = self
            .claims
            .call(async |session| {
                worker::claim_with_limits(session, &self.worker, at_most, self.lease, &per_rail).await
            })
            .await?;
        let mut contexts = match &self.trace_contexts {
            Some(lookup) => lookup.look_up(&self.claims, &claimed).await,
            None => HashMap::new(),
        };
        let job = |claimed: Claimed| Job { trace_context: contexts.remove(&claimed.outbox_id), claimed };
        Ok(Claim { jobs: claimed.into_iter().map(job).collect(), taken_over: ended_leases(&taken_over) })
    }

    async fn dispatch(&self, job: Job, lease: LeaseWatch) -> DispatchResult<PaymentOutcome> {
        let (began, job) = (Instant::now(), job.claimed);
        let (outcome, signal) = match self.rails.get(&job.rail_type) {
            Some(rail) => self.send(rail.as_ref(), job, &lease).await,
            // Claims select only the rails that this relayer serves. A relayer that serves this one will retry.
            None => {
                (PriorOutcome::of(&job).not_sent("this relayer does not serve the rail"), RouteSignal::Neutral)
            }
        };
        let latency = began.elapsed();
        DispatchResult { outcome: PaymentOutcome { outcome, latency: Some(latency) }, latency, signal }
    }

    fn abandoned(&self, _lease: &Lease) -> Option<PaymentOutcome> {
        Some(PaymentOutcome {
            outcome: unknown_outcome::still_unknown("the dispatch was cancelled"),
            latency: None,
        })
    }

    async fn complete(
        &self,
        completions: &[Arc<Completion<Lease, PaymentOutcome>>],
    ) -> Result<Vec<CompletionResult>, LaneError> {
        let batch: Vec<_> = completions
            .iter()
            .map(|completion| payment::Completion {
                lease: completion.lease.0,
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
        let results = self.completions.call(complete).await?;
        Ok(results.into_iter().map(completion_result).collect())
    }

    fn recorded(&self, route: &str, completion: &Completion<Lease, PaymentOutcome>, state: &'static str) {
        if state == AttemptState::Failed.as_str() {
            let code = completion.outcome.outcome.reason().map_or("", |reason| reason.code.as_str());
            log_failed(completion.lease.0.outbox_id, route, code);
        }
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        let leases: Vec<_> = leases.iter().map(|lease| lease.0).collect();
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
        let leases: Vec<_> = leases.iter().map(|lease| lease.0).collect();
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
        let repaired =
            self.repairs.call(async |session| worker::repair(session, &self.worker, BatchSize::MAX).await).await?;
        let more = repaired.len() >= usize::from(BatchSize::MAX.get());
        let quarantined = self.repairs.call(async |session| worker::quarantined_total(session).await).await?;
        if !more {
            self.extend_ledger().await;
        }
        Ok(Repaired { more, quarantined, ..ended_leases(&repaired) })
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        let capacity = self.rail_capacity(|_| 1);
        self.claims.call(async |session| worker::next_due(session, &capacity).await).await
    }
}

/// Counts the expired leases that were requeued or ended, and logs each payment that ended.
fn ended_leases(leases: &[worker::Repaired]) -> Repaired {
    let mut all = Repaired::default();
    for lease in leases {
        if lease.state == AttemptState::Failed {
            all.ended += 1;
            log_failed(lease.outbox_id, &lease.rail_type, LEASE_EXPIRED);
        } else {
            all.requeued += 1;
        }
        *all.attempts.entry((lease.rail_type.clone(), lease.state.as_str())).or_insert(0) += 1;
        all.lost_workers.insert(lease.lost_worker.to_string());
    }
    all
}

/// Logs the line that alert rules match, one per payment that ends as FAILED. It contains ids and error codes only.
fn log_failed(outbox_id: OutboxId, rail: &str, error_code: &str) {
    tracing::warn!(event = "PAYMENT_FAILED", %outbox_id, rail, error_code, "a payment ended as FAILED");
}

fn completion_result(result: Result<Completed, CompleteError>) -> CompletionResult {
    match result {
        Ok(completed) => CompletionResult::Recorded {
            state: completed.state.as_str(),
            retry_scheduled: completed.next_attempt_at.is_some(),
            unblocks_rows: false,
        },
        Err(CompleteError::LeaseLost(_)) => CompletionResult::LeaseLost,
        Err(CompleteError::AlreadyTerminal(_)) => CompletionResult::AlreadyTerminal,
        Err(CompleteError::Database(DatabaseError::TerminalBackstop(_))) => CompletionResult::Backstop,
        Err(
            error @ (CompleteError::InvalidState(_)
            | CompleteError::NotFound(_)
            | CompleteError::InvalidArgument(_)
            | CompleteError::Database(_)),
        ) => CompletionResult::Refused(LaneError::from(error).to_string()),
    }
}
