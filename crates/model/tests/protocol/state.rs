//! The state of the model: a database, workers, the bank's endpoints, and what the properties need to remember.

use symphony_testkit::protocol::rules::{Ending, FirstStep, PastAttempt, Prior};

/// Relayers. The model has two: every rule about leases is between the holder and one other.
pub(crate) const WORKERS: usize = 2;
/// Payments, of which a scenario may use fewer. Both belong to one participant and one rail.
pub(crate) const PAYMENTS: usize = 2;
/// Endpoints of the bank: the one that the rail has at first, and the one that it moves to.
pub(crate) const ENDPOINTS: usize = 2;

/// Everything, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The committed state of the primary.
    pub(crate) db: Database,
    /// What a failover would keep, if that is less: an earlier committed state.
    pub(crate) standby: Option<Box<Database>>,
    pub(crate) workers: [Worker; WORKERS],
    pub(crate) endpoints: [Endpoint; ENDPOINTS],
    /// Whether the key memory of a payment has elapsed, counted from its enqueue: a time that the database can tell.
    pub(crate) memory_elapsed: [bool; PAYMENTS],
    /// The leases that are over, and those that have expired by the database's clock. The second clock is never early, and
    /// may be behind after a failover.
    pub(crate) over: LeaseSet,
    pub(crate) expired: LeaseSet,
    /// Leases granted so far, over all epochs. A lease token is random, so a number is never used again.
    pub(crate) leases_granted: u8,
    pub(crate) witness: Witness,
}

/// What no process knows. Only the properties read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Witness {
    /// The epoch in which the producer's commit of each payment was acknowledged.
    pub(crate) acknowledged: [Option<i32>; PAYMENTS],
    /// The leases that a worker was told of.
    pub(crate) leases_known_to_workers: LeaseSet,
    /// Whether a request for the payment that was sent in time reached the bank after its lease had ended, and was executed.
    pub(crate) executed_late: [bool; PAYMENTS],
    /// Whether a worker sent a payment although its lease was over.
    pub(crate) sent_after_expiry: bool,
    /// Whether a payment was executed after a later one of its ordered rail: in time, and late.
    pub(crate) out_of_order: bool,
    pub(crate) out_of_order_late: bool,
    /// Whether a breaker spent its probe on a failed payment while one that had not failed was due.
    pub(crate) probe_wasted: bool,
}

/// A set of leases, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LeaseSet(u32);

impl LeaseSet {
    pub(crate) fn insert(&mut self, lease: u8) {
        self.0 |= 1 << lease;
    }

    pub(crate) fn contains(self, lease: u8) -> bool {
        self.0 & (1 << lease) != 0
    }

    pub(crate) fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..32).filter(move |lease| self.contains(*lease))
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }
}

/// What is committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Database {
    /// A new one is opened before the first claim after a failover.
    pub(crate) epoch: i32,
    pub(crate) payments: [Payment; PAYMENTS],
    /// The leases that were granted, and those that were released before their dispatch began.
    pub(crate) granted: LeaseSet,
    pub(crate) released: LeaseSet,
}

/// One payment: its pending row and its ledger rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Payment {
    /// Whether its enqueue is committed.
    pub(crate) committed: bool,
    pub(crate) pending: Option<PendingRow>,
    pub(crate) ledger: Vec<Attempt>,
}

/// A row of `payment_outbox_pending`. When it is due does not matter: a claim may always come later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingRow {
    /// The epoch of the enqueue.
    pub(crate) epoch: i32,
    pub(crate) lease: Option<Lease>,
}

/// The lease of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// Its number, which stands for the random token.
    pub(crate) token: u8,
    /// The epoch in which it was granted.
    pub(crate) epoch: i32,
    /// The endpoint of the worker that claimed it.
    pub(crate) endpoint: usize,
}

/// A row of `payment_outbox_attempts`. Its attempt number is its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) past: PastAttempt<usize>,
    /// The lease that it ended, and the lease under which the worker had its result. 0 for a confirmation without a lease.
    pub(crate) lease: u8,
    pub(crate) reported_under: u8,
    /// Whether that lease had expired.
    pub(crate) expired: bool,
}

/// A relayer. Both have the same name, so that only the token tells their leases apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Worker {
    /// The endpoint in its configuration.
    pub(crate) endpoint: usize,
    pub(crate) breaker: Breaker,
    pub(crate) task: Option<Task>,
}

/// What a worker is busy with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Task {
    pub(crate) payment: usize,
    pub(crate) lease: u8,
    /// The number of its attempt, as of the claim.
    pub(crate) attempt_no: i32,
    pub(crate) step: Step,
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// The lease is granted, and nothing was done.
    Claimed(FirstStep),
    /// The inquiry is answered, and the payment may be sent.
    MaySend(Prior),
    /// The request is on its way.
    Sending(Prior),
    /// The result is to be recorded.
    Reporting(Ending),
    /// A repair has read this lease as expired, and has not locked its row yet.
    Repairing,
}

/// The circuit breaker of a worker. In the model one failure opens it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Breaker {
    #[default]
    Closed,
    Open,
    HalfOpen,
}

/// The bank behind one endpoint. Endpoints share nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) keys: [Key; PAYMENTS],
}

/// What the bank knows of an idempotency key, and what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) memory: Memory,
    /// How often it has executed the payment.
    pub(crate) executed: u8,
    /// Requests on their way whose worker no longer waits.
    pub(crate) unattended: u8,
}

/// What the bank remembers of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    #[default]
    Nothing,
    /// Accepted, and not decided yet.
    Accepted,
    Executed,
    Refused,
}

impl State {
    /// No payment yet, and two idle workers.
    pub(crate) fn initial() -> Self {
        let worker = Worker { endpoint: 0, breaker: Breaker::Closed, task: None };
        Self {
            db: Database {
                epoch: 1,
                payments: Default::default(),
                granted: LeaseSet::default(),
                released: LeaseSet::default(),
            },
            standby: None,
            workers: [worker.clone(), worker],
            endpoints: Default::default(),
            memory_elapsed: Default::default(),
            over: LeaseSet::default(),
            expired: LeaseSet::default(),
            leases_granted: 0,
            witness: Witness::default(),
        }
    }

    /// The same state with the workers in a fixed order. They differ in nothing but what is compared here.
    pub(crate) fn representative(&self) -> Self {
        let mut state = self.clone();
        state.workers.sort();
        state
    }

    /// How often a payment was executed, over all endpoints.
    pub(crate) fn executed(&self, payment: usize) -> u8 {
        self.endpoints.iter().map(|endpoint| endpoint.keys[payment].executed).sum()
    }

    /// Whether the lease of a payment has expired; none if it is not leased.
    pub(crate) fn lease_has_expired(&self, payment: usize) -> Option<bool> {
        self.db.lease(payment).map(|lease| self.expired.contains(lease.token))
    }

    pub(crate) fn task(&self, worker: usize) -> Option<&Task> {
        self.workers[worker].task.as_ref()
    }
}

impl Database {
    pub(crate) fn lease(&self, payment: usize) -> Option<&Lease> {
        self.payments[payment].pending.as_ref()?.lease.as_ref()
    }
}

impl Payment {
    /// How it has ended, if it has.
    pub(crate) fn terminal(&self) -> Option<Ending> {
        self.ledger.iter().map(|attempt| attempt.past.ending).find(|ending| ending.is_terminal())
    }

    /// Whether an attempt of it has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.ledger.iter().any(|attempt| attempt.past.ending != Ending::Dispatched)
    }
}
