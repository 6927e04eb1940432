//! The metadata lane: claims entries from PostgreSQL, writes them to stores, and records the outcomes.
//!
//! Translates between the engine, the SQL functions and the stores. Which store gets an entry is in [`routing`]. Entries of one entity
//! that this process holds are written one at a time, in the order of their versions; what other processes do meanwhile is
//! for the store to put right, by the version. No rule of the database is here: whether a failure is tried again or ends in the
//! DLQ is its answer, and is logged.

pub mod routing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_outbox::WorkerId;
use symphony_outbox::connect::Target;
use symphony_outbox::error::metadata::MoveError;
use symphony_outbox::metadata::worker::{self, Answer, Outcome};
use symphony_outbox::metadata::{Claimed, EntryId, Reason, Status};

use crate::claim_capacity::ClaimCapacity;
use crate::key_order::{KeyOrder, Turn};
use crate::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired, RouteSignal};
use crate::lease::{LeaseWatch, Term};
use crate::session_pool::SessionPool;
use crate::store::{Record, Store, Written};
use crate::trace::{End, Origin};

use routing::Routes;

/// How old a claim of this lane is when repair ends it. It cannot be renewed.
const CLAIM: Duration = Duration::from_secs(300);

/// The most that one pass of repair, or one call that gives back, ends.
const BATCH: usize = 1000;

/// Where metadata goes.
pub struct Storing {
    /// Which store gets which.
    pub routes: Routes,
    /// The stores, by name.
    pub stores: BTreeMap<String, Arc<dyn Store>>,
}

/// The metadata lane of one process.
pub struct MetadataLane {
    worker: WorkerId,
    storing: Storing,
    key_order: KeyOrder,
    claims: SessionPool,
    completions: SessionPool,
    releases: SessionPool,
    repairs: SessionPool,
}

impl fmt::Debug for MetadataLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataLane")
            .field("worker", &self.worker)
            .field("stores", &self.storing.stores.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A claimed entry, its store, and its turn among the entries of its entity that this process holds.
#[derive(Debug)]
pub struct Job {
    claimed: Claimed,
    /// The store that gets it; none where no route fits.
    store: Option<String>,
    turn: Turn,
}

/// A claim on one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease(symphony_outbox::metadata::Lease);

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.id.fmt(f)
    }
}

impl MetadataLane {
    /// A lane with these ways out. Nothing is connected yet.
    #[must_use]
    pub fn new(target: Arc<Target>, worker: WorkerId, storing: Storing) -> Self {
        let pool = || SessionPool::new(Arc::clone(&target));
        Self {
            worker,
            storing,
            key_order: KeyOrder::default(),
            claims: pool(),
            completions: pool(),
            releases: pool(),
            repairs: pool(),
        }
    }

    /// How many entries to claim. A claim cannot select by store, and an entry without a free slot would be released, which counts
    /// as a failure: while the circuit breaker of the only store is open, nothing is claimed.
    fn claim_size(&self, capacity: &ClaimCapacity) -> usize {
        let stores: BTreeSet<&str> = self.storing.routes.stores().collect();
        stores.into_iter().map(|store| capacity.for_route(store)).sum::<usize>().min(capacity.total())
    }

    async fn write(&self, job: &mut Job, lease: &LeaseWatch) -> (Outcome, RouteSignal) {
        let Some(store) = job.store.take() else {
            return (failed("no route fits the type of the entity"), RouteSignal::Neutral);
        };
        let Some(store) = self.storing.stores.get(&store) else {
            return (failed(&format!("there is no store {store}")), RouteSignal::Neutral);
        };
        job.turn.wait_for_turn().await;
        if lease.remaining().is_zero() {
            return (failed("the claim ended before it was written"), RouteSignal::Neutral);
        }
        match store.write(&record(&job.claimed)).await {
            Written::Stored | Written::Superseded => (Outcome::Published, RouteSignal::Healthy),
            Written::Refused(why) => (failed(&why), RouteSignal::Healthy),
            Written::Failed(why) => (failed(&why), RouteSignal::Failing),
        }
    }

    /// Ends claims, and tells which entries are dead.
    async fn end(&self, pool: &SessionPool, completions: &[worker::Completion]) -> Result<Vec<Answer>, LaneError> {
        let answers = pool.call(async |session| worker::complete_batch(session, completions).await).await?;
        for (answer, completion) in answers.iter().zip(completions) {
            if is_dead(answer) {
                log_dead_letter(completion.lease.id);
            }
        }
        Ok(answers)
    }
}

fn record(claimed: &Claimed) -> Record {
    Record {
        entry_id: claimed.id().to_string(),
        entity_type: claimed.entity.entity_type().to_owned(),
        entity_id: claimed.entity.entity_id().to_owned(),
        version: claimed.version,
        metadata: claimed.metadata.as_json().to_owned(),
    }
}

/// Words that say nothing, or that no database can hold, are replaced: a failure is recorded whatever a store says.
fn failed(why: &str) -> Outcome {
    #[expect(clippy::expect_used, reason = "these words are neither blank nor hold a NUL character")]
    let reason = Reason::new(why.replace('\0', " "))
        .unwrap_or_else(|_| Reason::new("the store does not say why").expect("it is a reason"));
    Outcome::Failed(reason)
}

/// Whether a call found the entry in the DLQ or moved it there. Asked again after an answer that was lost, the database says that the
/// entry has ended: that is logged too, as the first answer was lost.
fn is_dead(answer: &Answer) -> bool {
    answer.status == Some(Status::Dlq) && matches!(answer.refused, None | Some(MoveError::AlreadyTerminal(_)))
}

/// The line that alerting matches: one for each entry that is given up, by its id alone.
fn log_dead_letter(entry: EntryId) {
    tracing::error!(event = "METADATA_OUTBOX_DLQ", %entry, "metadata entry moved to DLQ");
}

impl Lane for MetadataLane {
    type Job = Job;
    type Lease = Lease;
    type Outcome = Outcome;

    fn name(&self) -> &'static str {
        "metadata"
    }

    fn term(&self) -> Term {
        Term::Fixed(CLAIM)
    }

    fn lease(&self, job: &Job) -> Lease {
        Lease(job.claimed.lease().clone())
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        job.store.as_deref().unwrap_or("none")
    }

    /// The contract has no place for a caller's trace.
    fn origin(&self, job: &Job) -> Origin {
        Origin { attempt: u32::try_from(job.claimed.retry_count).ok().map(|before| before + 1), caller: None }
    }

    fn end(&self, outcome: &Outcome) -> End {
        match outcome {
            Outcome::Published => End::well("PUBLISHED"),
            Outcome::Failed(_) => End::badly("FAILED", None),
        }
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        let size = self.claim_size(capacity);
        // To the database 0 would mean 100.
        if size == 0 {
            return Ok(Claim::new(Vec::new()));
        }
        let at_most = i32::try_from(size).unwrap_or(i32::MAX);
        let claimed =
            self.claims.call(async |session| worker::claim(session, &self.worker, at_most).await).await?;
        let job = |claimed: Claimed| Job {
            store: self.storing.routes.of(claimed.entity.entity_type()).map(str::to_owned),
            turn: self.key_order.join(claimed.entity.entity_type(), claimed.entity.entity_id()),
            claimed,
        };
        Ok(Claim::new(claimed.into_iter().map(job).collect()))
    }

    async fn dispatch(&self, mut job: Job, lease: LeaseWatch) -> DispatchResult<Outcome> {
        let began = Instant::now();
        let (outcome, signal) = self.write(&mut job, &lease).await;
        DispatchResult { outcome, latency: began.elapsed(), signal }
    }

    fn abandoned(&self, _lease: &Lease) -> Option<Outcome> {
        Some(failed("writing was cut off"))
    }

    async fn complete(
        &self,
        completions: &[Arc<Completion<Lease, Outcome>>],
    ) -> Result<Vec<CompletionResult>, LaneError> {
        let batch: Vec<_> = completions
            .iter()
            .map(|completion| worker::Completion {
                lease: completion.lease.0.clone(),
                outcome: completion.outcome.clone(),
            })
            .collect();
        let answers = self.end(&self.completions, &batch).await?;
        Ok(answers.into_iter().map(completion_result).collect())
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        // A claim of this lane cannot be renewed; the engine never asks.
        Ok(vec![false; leases.len()])
    }

    /// The machine has no way back but a failure: the retry count rises, and the last one ends in the DLQ.
    async fn release(&self, leases: &[Lease]) -> Result<usize, LaneError> {
        let back = |lease: &Lease| worker::Completion { lease: lease.0.clone(), outcome: failed("RELEASED") };
        let completions: Vec<_> = leases.iter().map(back).collect();
        let mut released = 0;
        for completions in completions.chunks(BATCH) {
            let answers = self.end(&self.releases, completions).await?;
            released += answers.iter().filter(|answer| answer.refused.is_none()).count();
        }
        Ok(released)
    }

    async fn repair(&self) -> Result<Repaired, LaneError> {
        let most = i32::try_from(BATCH).unwrap_or(i32::MAX);
        let repaired = self.repairs.call(async |session| worker::repair(session, most).await).await?;
        let dead: Vec<_> = repaired.iter().filter(|repaired| repaired.status == Status::Dlq).collect();
        for repaired in &dead {
            log_dead_letter(repaired.id);
        }
        let (requeued, ended) = (repaired.len() - dead.len(), dead.len());
        Ok(Repaired { requeued, ended, more: repaired.len() == BATCH, ..Repaired::default() })
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        self.claims.call(async |session| worker::next_due(session).await).await
    }
}

fn completion_result(answer: Answer) -> CompletionResult {
    match (answer.refused, answer.status) {
        (None, Some(status)) => CompletionResult::Recorded {
            state: status.as_str(),
            retry_scheduled: answer.next_retry_at.is_some(),
            unblocks_rows: false,
        },
        (Some(MoveError::AlreadyTerminal(_)), _) => CompletionResult::AlreadyTerminal,
        (Some(MoveError::ClaimLost(_) | MoveError::WrongStatus(_) | MoveError::Missing(_)), _) => {
            CompletionResult::LeaseLost
        }
        (Some(error), _) => CompletionResult::Refused(LaneError::from(error).to_string()),
        (None, None) => CompletionResult::Refused("the database did not say what became of it".to_owned()),
    }
}
