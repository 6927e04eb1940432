//! What the engine asks of a lane: hand out claimed rows, carry one, take outcomes back, keep leases alive.
//!
//! The lane knows its database and its ways out. The engine knows neither: to it a job is something with a lease and a
//! route, an outcome is something to be handed back, and every call may fail in one of the two ways of [`Trouble`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::claim_capacity::ClaimCapacity;
use crate::lease::{LeaseWatch, Term};
use crate::trace::{End, Origin};

/// A kind of work, claimed from a database under leases and carried somewhere.
///
/// The engine puts a limit of time on each call and drops the future when it has passed. A call must therefore leave
/// nothing half-done on this side when dropped; what happened on the other side is not known then, and the
/// engine takes it as [`Trouble::Away`].
pub trait Lane: Send + Sync + 'static {
    /// A claimed row.
    type Job: Send + 'static;
    /// The right to work on a row: its id and token. Its `Display` names the row for logs and must not show the token.
    type Lease: Clone + Eq + Hash + Debug + Display + Send + Sync + 'static;
    /// How a dispatch ended, as the lane records it.
    type Outcome: Send + Sync + 'static;

    /// The name of the lane, for logs.
    fn name(&self) -> &'static str;

    /// How long a lease of this lane lasts, and whether it can be made longer.
    fn term(&self) -> Term;

    /// The lease of a job.
    fn lease(&self, job: &Self::Job) -> Self::Lease;

    /// The name of the rail or sink that a job goes to: caps, breakers and metrics are kept by it.
    fn route<'a>(&self, job: &'a Self::Job) -> &'a str;

    /// Where a job comes from, for traces.
    fn origin(&self, _job: &Self::Job) -> Origin {
        Origin::default()
    }

    /// How a dispatch ended, for traces: by words that are safe to show.
    fn end(&self, outcome: &Self::Outcome) -> End;

    /// Claims due rows: at most [`ClaimCapacity::total`], and of a route at most [`ClaimCapacity::for_route`] it. What comes beyond that is
    /// given back unstarted.
    fn claim(&self, capacity: &ClaimCapacity) -> impl Future<Output = Result<Claim<Self::Job>, Trouble>> + Send;

    /// Carries one job, once. Dropped at any await when the lease is lost. Before something leaves that cannot be
    /// called back, `lease` says how much time is left.
    fn dispatch(&self, job: Self::Job, lease: LeaseWatch) -> impl Future<Output = Finished<Self::Outcome>> + Send;

    /// What to record for a dispatch that was cut off half-way: it panicked, or was cancelled while its lease may still be live.
    /// Nothing: the lease is left to expire.
    fn abandoned(&self, lease: &Self::Lease) -> Option<Self::Outcome>;

    /// Records outcomes; one answer per row, in their order. Called again with the same rows after
    /// [`Trouble::Away`], when the first call may have been carried out.
    fn complete(
        &self,
        done: &[Arc<Done<Self::Lease, Self::Outcome>>],
    ) -> impl Future<Output = Result<Vec<Ended>, Trouble>> + Send;

    /// An outcome is in the ledger with this state. For what a lane has to log about it.
    fn recorded(&self, _route: &str, _done: &Done<Self::Lease, Self::Outcome>, _state: &'static str) {}

    /// Makes leases last a full term from now; for each whether it still holds, in their order. Never called where
    /// the term is [`Term::Fixed`].
    fn renew(&self, leases: &[Self::Lease]) -> impl Future<Output = Result<Vec<bool>, Trouble>> + Send;

    /// Gives back leases whose dispatch never began; how many were still held.
    fn release(&self, leases: &[Self::Lease]) -> impl Future<Output = Result<usize, Trouble>> + Send;

    /// One pass over expired leases, whoever held them.
    fn repair(&self) -> impl Future<Output = Result<Repaired, Trouble>> + Send;

    /// How long until the next scheduled row is due, by the database's clock. Rows that are due already do not count.
    fn next_due(&self) -> impl Future<Output = Result<Option<Duration>, Trouble>> + Send;
}

/// What a claim brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<J> {
    /// Rows under fresh leases.
    pub jobs: Vec<J>,
    /// What became of expired leases that the claim met and ended first.
    pub taken_over: Repaired,
}

impl<J> Claim<J> {
    /// A claim that met no expired lease.
    #[must_use]
    pub fn of(jobs: Vec<J>) -> Self {
        Self { jobs, taken_over: Repaired::default() }
    }
}

/// A dispatch that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished<O> {
    /// What is to be recorded.
    pub outcome: O,
    /// How long it took.
    pub latency: Duration,
    /// What it says about the route.
    pub verdict: Verdict,
}

/// What a dispatch says about the health of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The route answered, whatever it said.
    Good,
    /// The route is failing: no connection, a timeout, an error of its own.
    Bad,
    /// Nothing was learned about the route, for instance because nothing was sent.
    Neutral,
}

/// An outcome and the lease under which it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done<L, O> {
    /// Whose outcome it is.
    pub lease: L,
    /// What is recorded.
    pub outcome: O,
}

/// What became of one row of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is in the ledger.
    Recorded {
        /// The state that was recorded, which need not be the one that was asked for.
        state: &'static str,
        /// Whether the row is scheduled to be tried again.
        again: bool,
        /// Whether rows may be claimed now that could not be before, because they had to come after this one.
        frees: bool,
    },
    /// Somebody else holds the row, or the lease ran out. An event of concurrency: nothing to repeat, nobody to page.
    LeaseLost,
    /// The row had ended before, by a repetition of this very call or by somebody else.
    AlreadyTerminal,
    /// The index that allows one end per row held back a second one. The lease should have.
    Backstop,
    /// The database would not have this row; the message is safe to log.
    Refused(String),
}

/// What became of expired leases, ended by a pass of repair or taken over by a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Rows that went back into the queue.
    pub requeued: usize,
    /// Rows that ended because they had no attempts left.
    pub ended: usize,
    /// Whether another pass may find more.
    pub more: bool,
    /// Rows of the lane that were ever quarantined, because they were pending although they had ended. Never falls.
    pub quarantined: u64,
    /// The attempts that the ledger has of them, by route and state; empty where the lane has no ledger.
    pub attempts: BTreeMap<(String, &'static str), usize>,
    /// The workers that were not heard of again, where the lane knows them.
    pub lost_workers: BTreeSet<String>,
}

impl Repaired {
    /// How many leases.
    #[must_use]
    pub fn count(&self) -> usize {
        self.requeued + self.ended
    }
}

/// Why a call brought nothing. The messages are safe to log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The database can't be reached now: a lost connection, a restart, a timeout. The call may have been carried out.
    /// Try again soon.
    #[error("the database is away: {0}")]
    Away(String),
    /// The database answered and would not do it: a missing right, or a bug. Trying again soon is of no use.
    #[error("the database refused: {0}")]
    Refused(String),
}
