//! The payment lane: claims payments from PostgreSQL, sends them over rails, and records the outcomes.
//!
//! Translates between the engine, the SQL functions and the rails. What an answer of a rail means for the ledger is in
//! [`sending`]; what follows an unknown outcome is in [`unknown`]; the trace contexts of payments are in [`callers`]. The rules of
//! the database are not repeated here.

mod callers;
mod sending;
mod unknown;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_outbox::connect::{Session, Target};
use symphony_outbox::error::{CompleteError, Fault};
use symphony_outbox::payment::worker::{self, Claimed, ClaimedBatch, Rooms as RailCapacity};
use symphony_outbox::payment::{self, AttemptState, Completed, Outcome, RailAnswer};
use symphony_outbox::{BatchSize, OutboxId, WorkerId};

use tokio::time::timeout;

use crate::claim_capacity::ClaimCapacity;
use crate::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired, RouteSignal};
use crate::lease::{LeaseWatch, Term};
use crate::rail::{Answer, Payment, Rail};
use crate::session_pool::SessionPool;
use crate::trace::{Context, End, Origin};

use callers::Callers;
use unknown::Next;

/// The maximum number of leases per call. A process may hold more.
const MAX_LEASES_PER_CALL: usize = 1000;
/// The longest that the database may take to say what a rail's policy allows.
const LONGEST_ADVICE: Duration = Duration::from_secs(10);
/// The error code of a payment whose lease expired.
const LEASE_EXPIRED: &str = "LEASE_EXPIRED";
/// How long after its own limit a rail may still answer before it is given up.
const OVERTIME: Duration = Duration::from_secs(5);

/// The payment lane of one process.
pub struct PaymentLane {
    worker: WorkerId,
    lease: Duration,
    rails: BTreeMap<String, Arc<dyn Rail>>,
    /// Set if traces are exported.
    callers: Option<Callers>,
    // One pool per kind of call, so that none waits behind another. Completions have two sessions: while one waits for its
    // commit, or hangs, the other goes on.
    claims: SessionPool,
    completions: SessionPool,
    renewals: SessionPool,
    repairs: SessionPool,
    questions: SessionPool,
}

impl PaymentLane {
    /// A lane for these rails. Nothing is connected yet.
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
            callers: None,
            claims: pool(),
            completions: SessionPool::with_size(2, Arc::clone(&target)),
            renewals: pool(),
            repairs: pool(),
            questions: pool(),
        }
    }

    /// Asks after each claim whose traces the payments belong to. For an engine with a tracer: to others it is of no use.
    #[must_use]
    pub fn asking_for_callers(mut self) -> Self {
        self.callers = Some(Callers::default());
        self
    }

    fn rail_capacity(&self, limit: impl Fn(&str) -> usize) -> RailCapacity {
        let limit = |rail: &String| (rail.clone(), u32::try_from(limit(rail)).unwrap_or(u32::MAX).min(1_000_000));
        self.rails.keys().map(limit).collect()
    }

    /// What the rail's policy allows. The engine puts no limit on a dispatch whose lease it renews, so this must not wait
    /// for ever for an answer that was lost on the way.
    async fn advice(&self, rail: &dyn Rail, lease: payment::Lease) -> Result<worker::Advice, LaneError> {
        let limit = LONGEST_ADVICE.min(self.lease / 3);
        let sending = unknown::sending_time(rail);
        let asked = self
            .questions
            .call(async |session| worker::advise_on_unknown_outcome(session, &self.worker, lease, sending).await);
        timeout(limit, asked)
            .await
            .unwrap_or_else(|_| Err(LaneError::Unavailable(format!("no answer within {limit:?}"))))
    }

    /// Sends, unless the rail must be asked first what became of an earlier attempt.
    async fn send(&self, rail: &dyn Rail, job: Claimed, lease: &LeaseWatch) -> (Outcome, RouteSignal) {
        let (held, outcome_unknown) = (job.lease(), job.outcome_unknown);
        let payment = payment_of(job);
        let standing = if outcome_unknown {
            match unknown::ask(rail, &payment, self.advice(rail, held).await).await {
                Next::Record(outcome, signal) => return (outcome, signal),
                Next::Send(standing) => standing,
            }
        } else {
            unknown::Standing::Clear
        };
        if let Err(invalid) = rail.validate(&payment) {
            return (standing.of_invalid(invalid), RouteSignal::Neutral);
        }
        if lease.remaining().is_zero() {
            // Too late to send, and too late to record: the lease has gone, or goes now.
            return (standing.of_unsent("the lease ended before it was sent"), RouteSignal::Neutral);
        }
        // A rail keeps to its own limit. One that does not must not hold the lease for ever.
        let limit = rail.timeout() + OVERTIME;
        let answer = timeout(limit, rail.dispatch(&payment)).await.unwrap_or_else(|_| Answer::Unknown {
            message: format!("no answer within {limit:?}"),
            rail: RailAnswer::default(),
            row_only: false,
        });
        sending::outcome(answer, standing)
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

/// An instruction under a lease, and the trace in which it was enqueued, where that was asked for and is known.
#[derive(Clone, Debug)]
pub struct Job {
    /// The instruction.
    pub claimed: Claimed,
    /// Its trace.
    pub caller: Option<Context>,
}

/// A lease of this lane, shown by its outbox alone.
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
        Origin { attempt, caller: job.caller }
    }

    fn end(&self, outcome: &PaymentOutcome) -> End {
        let (state, outcome) = (outcome.outcome.state().as_str(), &outcome.outcome);
        match outcome.reason() {
            None => End::well(state),
            Some(reason) => End::badly(state, Some(&reason.code)),
        }
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        let Some(at_most) = u16::try_from(capacity.total()).ok().and_then(|total| BatchSize::try_from(total).ok())
        else {
            return Err(LaneError::Refused(format!("a claim of {} rows", capacity.total())));
        };
        let per_rail = self.rail_capacity(|rail| capacity.for_route(rail));
        let ClaimedBatch { claimed, taken_over } = self
            .claims
            .call(async |session| {
                worker::claim_within(session, &self.worker, at_most, self.lease, &per_rail).await
            })
            .await?;
        let mut of = match &self.callers {
            Some(callers) => callers.of(&self.claims, &claimed).await,
            None => HashMap::new(),
        };
        let job = |claimed: Claimed| Job { caller: of.remove(&claimed.outbox_id), claimed };
        Ok(Claim { jobs: claimed.into_iter().map(job).collect(), taken_over: ended_leases(&taken_over) })
    }

    async fn dispatch(&self, job: Job, lease: LeaseWatch) -> DispatchResult<PaymentOutcome> {
        let (began, job) = (Instant::now(), job.claimed);
        let (outcome, signal) = match self.rails.get(&job.rail_type) {
            Some(rail) => self.send(rail.as_ref(), job, &lease).await,
            // No claim asked for this rail; a relayer that serves it will retry.
            None => (
                unknown::Standing::of(&job).of_unsent("this relayer does not serve the rail"),
                RouteSignal::Neutral,
            ),
        };
        let latency = began.elapsed();
        DispatchResult { outcome: PaymentOutcome { outcome, latency: Some(latency) }, latency, signal }
    }

    fn abandoned(&self, _lease: &Lease) -> Option<PaymentOutcome> {
        Some(PaymentOutcome { outcome: unknown::still_unknown("the dispatch was cut off"), latency: None })
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
                // The index refuses the whole statement. Alone, a row knows that it was meant; together, each is tried alone.
                Err(stopped @ CompleteError::Fault(Fault::TerminalBackstop(_))) if batch.len() == 1 => {
                    Ok(vec![Err(stopped)])
                }
                ends => ends,
            }
        };
        let ends = self.completions.call(complete).await?;
        Ok(ends.into_iter().map(completion_result).collect())
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
        let repaired = self
            .repairs
            .call(async |session| worker::repair(session, &self.worker, BatchSize::MOST).await)
            .await?;
        let more = repaired.len() >= usize::from(BatchSize::MOST.get());
        let quarantined = self.repairs.call(async |session| worker::quarantined_total(session).await).await?;
        Ok(Repaired { more, quarantined, ..ended_leases(&repaired) })
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        let capacity = self.rail_capacity(|_| 1);
        self.claims.call(async |session| worker::next_due(session, &capacity).await).await
    }
}

/// What became of expired leases. Each payment that ended with one is logged.
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

/// The line that alerting matches: one for each payment that ends as FAILED, by ids and codes of ours alone.
fn log_failed(outbox_id: OutboxId, rail: &str, error_code: &str) {
    tracing::warn!(event = "PAYMENT_FAILED", %outbox_id, rail, error_code, "a payment ended as FAILED");
}

fn completion_result(end: Result<Completed, CompleteError>) -> CompletionResult {
    match end {
        Ok(completed) => CompletionResult::Recorded {
            state: completed.state.as_str(),
            retry_scheduled: completed.next_attempt_at.is_some(),
            unblocks_rows: false,
        },
        Err(CompleteError::LeaseLost(_)) => CompletionResult::LeaseLost,
        Err(CompleteError::AlreadyTerminal(_)) => CompletionResult::AlreadyTerminal,
        Err(CompleteError::Fault(Fault::TerminalBackstop(_))) => CompletionResult::Backstop,
        Err(
            error @ (CompleteError::InvalidState(_) | CompleteError::InvalidArgument(_) | CompleteError::Fault(_)),
        ) => CompletionResult::Refused(LaneError::from(error).to_string()),
    }
}
