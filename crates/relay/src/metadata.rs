//! The metadata lane: claims entries from PostgreSQL, writes them to stores, and records the outcomes.
//!
//! Translates between the engine, the SQL functions and the stores. [`routing`] decides the store of an entry.
//! Entries of one entity that this process holds are written one at a time, in the order of their versions. Across
//! relayers the store compares versions. The database decides whether a failed entry is retried or moves to the
//! dead-letter queue; this module logs the latter.

pub mod routing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_db::WorkerId;
use symphony_db::connect::{Session, Target};
use symphony_db::error::CompleteError;
use symphony_db::metadata::worker::{self, ClaimRoute, Completed, Outcome};
use symphony_db::metadata::{Claimed, EntryId, Reason, Status};
use symphony_db::retention::remove_ended_metadata;

use crate::claim_capacity::ClaimCapacity;
use crate::epoch::{self, EpochFence};
use crate::key_order::{KeyOrder, Turn};
use crate::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired, RouteSignal};
use crate::lease::{LeaseWatch, Term};
use crate::retention;
use crate::session_pool::SessionPool;
use crate::store::{Record, Store, Written};
use crate::trace::{Origin, SpanStatus};

use routing::{Route, Routes};

/// How long a claim of this lane lasts: fixed by the contract, without renewal.
const CLAIM_TERM: Duration = Duration::from_secs(300);

/// The maximum number of entries per repair and per release.
const MAX_BATCH: usize = 1000;

/// The configuration of a metadata lane.
pub struct MetadataConfig {
    /// Which entities go to which store.
    pub routes: Routes,
    /// The stores, by name.
    pub stores: BTreeMap<String, Arc<dyn Store>>,
}

/// The metadata lane of one process.
pub struct MetadataLane {
    worker: WorkerId,
    config: MetadataConfig,
    key_order: KeyOrder,
    fence: Arc<EpochFence>,
    claims: SessionPool,
    completions: SessionPool,
    releases: SessionPool,
    repairs: SessionPool,
}

impl fmt::Debug for MetadataLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataLane")
            .field("worker", &self.worker)
            .field("stores", &self.config.stores.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A claimed entry, its store, and its turn among the entries of its entity that this process holds.
#[derive(Debug)]
pub struct Job {
    claimed: Claimed,
    /// The store; `None` if no route matches.
    store: Option<String>,
    turn: Turn,
    /// The epoch of its claim.
    epoch: Option<i64>,
}

/// A claim on one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease(symphony_db::metadata::Lease);

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.id.fmt(f)
    }
}

impl MetadataLane {
    /// A lane with this configuration. It does not connect yet.
    #[must_use]
    pub fn new(target: Arc<Target>, worker: WorkerId, config: MetadataConfig) -> Self {
        let pool = || SessionPool::new(Arc::clone(&target));
        let lane = Self {
            worker,
            config,
            key_order: KeyOrder::default(),
            fence: Arc::default(),
            claims: pool(),
            completions: pool(),
            releases: pool(),
            repairs: pool(),
        };
        lane.with_fence(Arc::default())
    }

    /// Shares the fence against old primaries with the other lanes of the process.
    #[must_use]
    pub fn with_fence(mut self, fence: Arc<EpochFence>) -> Self {
        for pool in [&mut self.claims, &mut self.completions, &mut self.releases, &mut self.repairs] {
            pool.set_fence(&fence);
        }
        self.fence = fence;
        self
    }

    /// How many entries to claim: of all stores together, at most what their limits allow. While the circuit breaker of the
    /// only store is open, nothing is claimed.
    fn claim_size(&self, capacity: &ClaimCapacity) -> usize {
        let stores: BTreeSet<&str> = self.config.routes.stores().collect();
        stores.into_iter().map(|store| capacity.most_of(store)).sum::<usize>().min(capacity.total())
    }

    /// The limit of each store, by route, if one is so low that a claim by age would return entries for which no slot is
    /// free. Such an entry would be released, which counts as a failure.
    fn limits_by_store<'a>(&'a self, capacity: &ClaimCapacity) -> Option<Vec<ClaimRoute<'a>>> {
        if self.route_count() == 1 || capacity.for_any_route(self.config.routes.stores()).is_some() {
            return None;
        }
        let limit = |store: &str| u32::try_from(capacity.most_of(store)).unwrap_or(u32::MAX).min(10_000);
        let route = |route: &'a Route| ClaimRoute {
            entity_type: &route.entity_type,
            store: &route.store,
            limit: limit(&route.store),
        };
        Some(self.config.routes.iter().map(route).collect())
    }

    /// Whether to claim the newest entry that has not been attempted, to probe the only store. Of several a claim takes any.
    fn claims_newest(&self, capacity: &ClaimCapacity) -> bool {
        let mut stores = self.config.routes.stores().peekable();
        self.route_count() == 1
            && stores.peek().is_some()
            && stores.all(|store| capacity.takes_first_attempt(store))
    }

    async fn write(&self, job: &mut Job, lease: &LeaseWatch) -> (Outcome, RouteSignal) {
        let Some(store) = job.store.take() else {
            return (failed("no route matches the type of the entity"), RouteSignal::Neutral);
        };
        let Some(store) = self.config.stores.get(&store) else {
            return (failed(&format!("the store {store} is not configured")), RouteSignal::Neutral);
        };
        job.turn.wait_for_turn().await;
        if lease.remaining().is_zero() {
            return (failed("the claim expired before the entry was written"), RouteSignal::Neutral);
        }
        if let Some(why) = self.fence.refusal(job.epoch) {
            return (failed(why), RouteSignal::Neutral);
        }
        match store.write(&record(&job.claimed)).await {
            Written::Stored | Written::Superseded => (Outcome::Published, RouteSignal::Healthy),
            Written::Refused(why) => (failed(&why), RouteSignal::Healthy),
            Written::Failed(why) => (failed(&why), RouteSignal::Failing),
        }
    }

    /// Completes entries, and logs those that moved to the dead-letter queue.
    async fn complete_and_log(
        &self,
        pool: &SessionPool,
        completions: &[worker::Completion],
    ) -> Result<Vec<Completed>, LaneError> {
        let answers = pool.call(async |session| worker::complete_batch(session, completions).await).await?;
        for (answer, completion) in answers.iter().zip(completions) {
            if is_dead_letter(answer) {
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

/// A failure with this reason. NUL characters and blank texts are replaced, so that PostgreSQL accepts the reason of
/// any store.
fn failed(why: &str) -> Outcome {
    #[expect(clippy::expect_used, reason = "the literal is neither blank nor contains NUL")]
    let reason = Reason::new(why.replace('\0', " "))
        .unwrap_or_else(|_| Reason::new("the store gave no reason").expect("a valid reason"));
    Outcome::Failed(reason)
}

/// Whether the entry is in the dead-letter queue now. After a lost answer the retry finds it there already: that is
/// logged too, since the first answer never arrived.
fn is_dead_letter(answer: &Completed) -> bool {
    answer.status == Some(Status::Dlq) && matches!(answer.refused, None | Some(CompleteError::AlreadyTerminal(_)))
}

/// Logs the line that alert rules match, one per entry that moves to the dead-letter queue. It contains the id only.
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
        Term::Fixed(CLAIM_TERM)
    }

    fn lease(&self, job: &Job) -> Lease {
        Lease(job.claimed.lease().clone())
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        job.store.as_deref().unwrap_or("none")
    }

    fn route_count(&self) -> usize {
        self.config.routes.stores().collect::<BTreeSet<_>>().len()
    }

    /// The contract has no column for a trace context.
    fn origin(&self, job: &Job) -> Origin {
        Origin { attempt: u32::try_from(job.claimed.retry_count).ok().map(|before| before + 1), producer: None }
    }

    fn span_status(&self, outcome: &Outcome) -> SpanStatus {
        match outcome {
            Outcome::Published => SpanStatus::ok("PUBLISHED"),
            Outcome::Failed(_) => SpanStatus::failed("FAILED", None),
        }
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        let newest = self.claims_newest(capacity);
        let limits = if newest { None } else { self.limits_by_store(capacity) };
        let unlimited = capacity.for_any_route(self.config.routes.stores());
        let size = unlimited.unwrap_or_else(|| self.claim_size(capacity)).min(self.claim_size(capacity)).min(1000);
        // The SQL function reads a limit of 0 as its default of 100.
        if size == 0 && !newest {
            return Ok(Claim::new(Vec::new()));
        }
        let at_most = i32::try_from(size).unwrap_or(i32::MAX);
        let claim = async |session: &Session| {
            if newest {
                worker::claim_newest(session, &self.worker).await
            } else if let Some(routes) = &limits {
                worker::claim_by_store(session, &self.worker, at_most, routes).await
            } else {
                worker::claim(session, &self.worker, at_most).await
            }
        };
        let worker::Claim { entries, epoch, opened_epoch } = self.claims.call(claim).await?;
        let job = |claimed: Claimed| Job {
            store: self.config.routes.resolve(claimed.entity.entity_type()).map(str::to_owned),
            turn: self.key_order.join(claimed.entity.entity_type(), claimed.entity.entity_id()),
            epoch,
            claimed,
        };
        epoch::log_opened(self.name(), opened_epoch.as_ref());
        // Without the rows: they are those of an old primary.
        epoch.map_or(Ok(()), |epoch| self.fence.see(epoch))?;
        let asked = (self.route_count() > 1 && limits.is_none()).then_some(size);
        Ok(Claim { asked, ..Claim::new(entries.into_iter().map(job).collect()) })
    }

    async fn dispatch(&self, mut job: Job, lease: LeaseWatch) -> DispatchResult<Outcome> {
        let began = Instant::now();
        let (outcome, signal) = self.write(&mut job, &lease).await;
        DispatchResult { outcome, latency: began.elapsed(), signal }
    }

    fn abandoned(&self, _lease: &Lease) -> Option<Outcome> {
        Some(failed("the write was cancelled"))
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
        let answers = self.complete_and_log(&self.completions, &batch).await?;
        Ok(answers.into_iter().map(completion_result).collect())
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        // A claim of this lane cannot be renewed, so the engine never calls this.
        Ok(vec![false; leases.len()])
    }

    /// The contract can release a claim only as a failure: the retry count rises, and the last retry ends in the
    /// dead-letter queue.
    async fn release(&self, leases: &[Lease]) -> Result<usize, LaneError> {
        let as_failed = |lease: &Lease| worker::Completion { lease: lease.0.clone(), outcome: failed("RELEASED") };
        let completions: Vec<_> = leases.iter().map(as_failed).collect();
        let mut released = 0;
        for completions in completions.chunks(MAX_BATCH) {
            let answers = self.complete_and_log(&self.releases, completions).await?;
            released += answers.iter().filter(|answer| answer.refused.is_none()).count();
        }
        Ok(released)
    }

    async fn repair(&self) -> Result<Repaired, LaneError> {
        let limit = i32::try_from(MAX_BATCH).unwrap_or(i32::MAX);
        let repaired = self.repairs.call(async |session| worker::repair(session, limit).await).await?;
        let dead: Vec<_> = repaired.iter().filter(|repaired| repaired.status == Status::Dlq).collect();
        for repaired in &dead {
            log_dead_letter(repaired.id);
        }
        let terminal = async |session: &Session, limit| remove_ended_metadata(session, limit).await;
        retention::remove("metadata entries", &self.repairs, terminal).await;
        let (requeued, ended) = (repaired.len() - dead.len(), dead.len());
        Ok(Repaired { requeued, ended, more: repaired.len() == MAX_BATCH, ..Repaired::default() })
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        self.claims.call(async |session| worker::next_due(session).await).await
    }
}

fn completion_result(answer: Completed) -> CompletionResult {
    match (answer.refused, answer.status) {
        (None, Some(status)) => CompletionResult::Recorded {
            state: status.as_str(),
            retry_scheduled: answer.next_retry_at.is_some(),
            unblocks_rows: false,
        },
        (Some(CompleteError::AlreadyTerminal(_)), _) => CompletionResult::AlreadyTerminal,
        (Some(CompleteError::LeaseLost(_) | CompleteError::InvalidState(_) | CompleteError::NotFound(_)), _) => {
            CompletionResult::LeaseLost
        }
        (Some(error), _) => CompletionResult::Refused(LaneError::from(error).to_string()),
        (None, None) => CompletionResult::Refused("the database returned neither a state nor an error".to_owned()),
    }
}
