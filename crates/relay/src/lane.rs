//! The interface between the engine and a lane: claim rows, dispatch one, record outcomes, keep leases alive.
//!
//! A lane knows its database and its rails, sinks or stores. The engine knows neither: a job has a lease and a route,
//! an outcome is passed back to the lane, and every call fails in one of the two ways of [`LaneError`].
//!
//! A dispatch returns a [`DispatchResult`]; its outcome and lease make up a [`Completion`]; recording that returns a
//! [`CompletionResult`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::claim_capacity::ClaimCapacity;
use crate::lease::{LeaseWatch, Term};
use crate::trace::{Origin, SpanStatus};

/// A kind of work, claimed from a database under leases and dispatched to a rail, sink or store.
///
/// The engine sets a timeout on each call and drops the future when it has passed. A dropped call must leave no
/// partial state in this process. Whether the database has executed it is unknown then: the engine treats it as
/// [`LaneError::Unavailable`].
pub trait Lane: Send + Sync + 'static {
    /// A claimed row.
    type Job: Send + 'static;
    /// The exclusive right to dispatch a row: its id and lease token. Its `Display` names the row for logs and must
    /// not show the token.
    type Lease: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static;
    /// How a dispatch ended, as the lane records it.
    type Outcome: Send + Sync + 'static;

    /// The name of the lane, for logs.
    fn name(&self) -> &'static str;

    /// The term of the leases of this lane, and whether they can be renewed.
    fn term(&self) -> Term;

    /// The lease of a job.
    fn lease(&self, job: &Self::Job) -> Self::Lease;

    /// The route of a job: its rail, sink or store. It is the key of slots, circuit breakers and metrics.
    fn route<'a>(&self, job: &'a Self::Job) -> &'a str;

    /// How many routes it serves. Where there are several, slow ones do not get all slots. A lane says so only if its
    /// claims respect [`ClaimCapacity::for_route`] for each route.
    fn route_count(&self) -> usize {
        1
    }

    /// The attempt number and the producer's trace of a job, for circuit breakers and traces. A job without a number
    /// counts as a first attempt.
    fn origin(&self, _job: &Self::Job) -> Origin {
        Origin::default()
    }

    /// The status of a dispatch's span. It is exported, so it must not contain personal data.
    fn span_status(&self, outcome: &Self::Outcome) -> SpanStatus;

    /// Claims due rows: at most [`ClaimCapacity::total`], and of a route at most [`ClaimCapacity::for_route`]; one
    /// more where [`ClaimCapacity::takes_first_attempt`] allows it. The engine releases rows beyond that without a dispatch.
    fn claim(&self, capacity: &ClaimCapacity) -> impl Future<Output = Result<Claim<Self::Job>, LaneError>> + Send;

    /// Waits until this job may be dispatched, as a lane with an order requires. With `false` it is not dispatched, and the
    /// engine releases its lease. Dropped when the lease is lost.
    fn wait_for_turn(&self, _job: &mut Self::Job) -> impl Future<Output = bool> + Send {
        std::future::ready(true)
    }

    /// Dispatches one job, once. Dropped at any await when the lease is lost. Before an irreversible request is sent,
    /// check that `lease` has time left.
    fn dispatch(
        &self,
        job: Self::Job,
        lease: LeaseWatch,
    ) -> impl Future<Output = DispatchResult<Self::Outcome>> + Send;

    /// The outcome to record for a dispatch that panicked or was cancelled while its lease may still be live. With
    /// `None` the lease expires. A dispatch that was cancelled while it waited for its turn is released instead.
    fn abandoned(&self, lease: &Self::Lease) -> Option<Self::Outcome>;

    /// Records outcomes; one result per row, in order. Called again with the same rows after
    /// [`LaneError::Unavailable`], although the first call may have been executed.
    fn complete(
        &self,
        completions: &[Arc<Completion<Self::Lease, Self::Outcome>>],
    ) -> impl Future<Output = Result<Vec<CompletionResult>, LaneError>> + Send;

    /// Whether an attempt that is scheduled again has failed. Only such an attempt counts as a retry.
    fn has_failed(&self, _completion: &Completion<Self::Lease, Self::Outcome>) -> bool {
        true
    }

    /// An outcome was recorded with this state. A hook for logs of the lane.
    fn recorded(&self, _route: &str, _completion: &Completion<Self::Lease, Self::Outcome>, _state: &'static str) {}

    /// An outcome is not recorded, because its lease was lost or has expired. A hook for lanes that keep evidence.
    fn unrecorded(&self, _completion: &Completion<Self::Lease, Self::Outcome>) {}

    /// Renews leases for a full term from now; whether each is still held, in order. Never called if the term is
    /// [`Term::Fixed`].
    fn renew(&self, leases: &[Self::Lease]) -> impl Future<Output = Result<Vec<bool>, LaneError>> + Send;

    /// Releases leases whose dispatch was not started; how many were still held.
    fn release(&self, leases: &[Self::Lease]) -> impl Future<Output = Result<usize, LaneError>> + Send;

    /// Repairs one batch of expired leases of any worker.
    fn repair(&self) -> impl Future<Output = Result<Repaired, LaneError>> + Send;

    /// The time until the next scheduled row is due, by the database's clock. Rows that are due already do not count.
    fn next_due(&self) -> impl Future<Output = Result<Option<Duration>, LaneError>> + Send;
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<J> {
    /// Rows under fresh leases.
    pub jobs: Vec<J>,
    /// The expired leases that the claim repaired first.
    pub taken_over: Repaired,
    /// Whether rows were left because of a rate limit, so that the next due time has changed.
    pub is_rate_limited: bool,
    /// How many rows it asked for, if fewer than [`ClaimCapacity::total`]: as many are a full claim, after which more may be due.
    pub asked: Option<usize>,
}

impl<J> Claim<J> {
    /// A claim that found no expired lease.
    #[must_use]
    pub fn new(jobs: Vec<J>) -> Self {
        Self { jobs, taken_over: Repaired::default(), is_rate_limited: false, asked: None }
    }
}

/// The result of a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchResult<O> {
    /// The outcome to record.
    pub outcome: O,
    /// How long the dispatch took.
    pub latency: Duration,
    /// What it says about the health of its route.
    pub signal: RouteSignal,
}

/// What a dispatch says about the health of its route, for the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSignal {
    /// The route answered, whether it accepted or refused.
    Healthy,
    /// The route is failing, or cannot process this row: no connection, a timeout, a server error.
    Failing,
    /// The dispatch says nothing about the route, for instance because nothing was sent.
    Neutral,
}

/// An outcome to record, and the lease under which it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion<L, O> {
    /// The lease of the dispatch.
    pub lease: L,
    /// Its outcome.
    pub outcome: O,
}

/// The result of recording one [`Completion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompletionResult {
    /// The outcome is recorded.
    Recorded {
        /// The recorded state, which may differ from the requested one.
        state: &'static str,
        /// Whether the row is scheduled for a retry.
        retry_scheduled: bool,
        /// Whether rows that had to wait for this one may be claimed now.
        unblocks_rows: bool,
    },
    /// Another worker holds the row, or the lease has expired. A normal concurrency event: no retry, no alert.
    LeaseLost,
    /// The row was terminal already, by a repetition of this call or by another worker.
    AlreadyTerminal,
    /// The unique index that allows one terminal outcome per row rejected a second one. The lease check should have.
    Backstop,
    /// The database refused this row; the message is safe to log.
    Refused(String),
}

/// Expired leases that a repair or a claim has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Rows requeued.
    pub requeued: usize,
    /// Rows ended because they had no attempts left.
    pub ended: usize,
    /// Whether there may be more expired leases.
    pub more: bool,
    /// The number of rows of the lane ever quarantined, because they were pending although terminal. Never falls.
    pub quarantined: u64,
    /// The attempts recorded for them, by route and state; empty if the lane has no ledger.
    pub attempts: BTreeMap<(String, &'static str), usize>,
    /// The workers that held the leases, if the lane knows them.
    pub lost_workers: BTreeSet<String>,
}

impl Repaired {
    /// How many leases.
    #[must_use]
    pub fn count(&self) -> usize {
        self.requeued + self.ended
    }
}

/// Why a call of a lane failed. The messages are safe to log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// The database cannot be reached now: a lost connection, a restart, a timeout. It may have executed the call.
    /// Retry soon.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The database refused the call: a missing privilege, or a bug. A retry would fail too.
    #[error("the database refused: {0}")]
    Refused(String),
}
