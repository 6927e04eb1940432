//! One concrete call on the database and its answer; their `Display` is what a failing run prints.

use std::fmt::{self, Display};

use super::reference::{ACCEPTED, AttemptState, Ending, LeaseNo, Micros, OutboxNo, Policy};

/// The SQLSTATE of a refusal.
pub(crate) type Refusal = &'static str;

/// How many rails are registered; the next number names one that is not.
pub(crate) const RAILS: usize = 3;

/// The arguments of an enqueue. Two with the same key are one payment, or a conflict if they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) key: usize,
    pub(crate) participant: usize,
    pub(crate) rail: usize,
    pub(crate) payload: usize,
    /// With a payload that is no object.
    pub(crate) malformed: bool,
}

/// An outbox and the lease whose token a call passes; `None` is a token that was never granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRef {
    pub(crate) outbox: OutboxNo,
    pub(crate) lease: Option<LeaseNo>,
}

/// The outcome of an attempt, as a worker reports it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) hold: LeaseRef,
    pub(crate) state: &'static str,
    pub(crate) error_code: Option<&'static str>,
    pub(crate) delay_seconds: Option<i32>,
}

impl Outcome {
    /// None for what is not an outcome.
    pub(crate) fn attempt_state(&self) -> Option<AttemptState> {
        let outcomes = [AttemptState::Dispatched, AttemptState::Failed, AttemptState::Retryable];
        outcomes.into_iter().find(|state| state.name() == self.state)
    }

    pub(crate) fn argument_in_range(&self) -> bool {
        // What awaits confirmation has not ended.
        let ends_accepted = self.error_code == Some(ACCEPTED) && self.state != "RETRYABLE";
        self.delay_seconds.is_none_or(|delay| delay >= 0) && !ends_accepted
    }

    /// A reference that distinguishes the outcomes of a batch in the ledger.
    pub(crate) fn reference(&self, place: usize) -> String {
        format!("reference-{}-{place}", self.hold.outbox)
    }

    pub(crate) fn ending(&self, outcome: AttemptState, place: usize) -> Ending {
        Ending {
            outbox: self.hold.outbox,
            outcome,
            error_code: self.error_code.map(str::to_owned),
            rail_reference: Some(self.reference(place)),
            delay_seconds: self.delay_seconds,
        }
    }
}

/// Which of two functions is called: the single one or the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Single,
    Batch,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Begin,
    Commit,
    RollBack,
    Enqueue {
        form: Form,
        given: Vec<Instruction>,
    },
    Claim {
        worker: String,
        batch: i32,
        lease_seconds: i32,
    },
    Complete {
        form: Form,
        worker: String,
        outcomes: Vec<Outcome>,
    },
    Renew {
        worker: String,
        leases: Vec<LeaseRef>,
        seconds: i32,
    },
    Release {
        worker: String,
        leases: Vec<LeaseRef>,
        delay_seconds: Option<i32>,
    },
    Repair {
        worker: String,
        batch: i32,
    },
    Redrive(OutboxNo),
    Resolve(OutboxNo, &'static str),
    SetRail(usize, Policy),
    Pause(usize),
    Resume(usize),
    /// The owner lets a lease expire.
    Expire(OutboxNo),
    /// The owner makes a row due.
    MakeDue(OutboxNo),
    /// The owner raises attempt_count by one too many.
    Miscount(OutboxNo),
}

impl Call {
    /// The leases that the call passes, with its worker.
    pub(crate) fn shown(&self) -> Vec<(&LeaseRef, &str)> {
        match self {
            Self::Complete { worker, outcomes, .. } => {
                let sound = |outcome: &&Outcome| outcome.attempt_state().is_some() && outcome.argument_in_range();
                outcomes.iter().filter(sound).map(|outcome| (&outcome.hold, worker.as_str())).collect()
            }
            Self::Renew { worker, leases, .. } | Self::Release { worker, leases, .. } => {
                leases.iter().map(|hold| (hold, worker.as_str())).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The result of an enqueue or a redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enqueued {
    pub(crate) outbox: OutboxNo,
    pub(crate) sequence: i64,
    pub(crate) created_at: Micros,
    pub(crate) replayed: bool,
}

/// The result of a claim for one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leased {
    pub(crate) outbox: OutboxNo,
    pub(crate) lease: LeaseNo,
    pub(crate) sequence: i64,
    pub(crate) attempt_count: i32,
    pub(crate) lease_expires_at: Micros,
    pub(crate) outcome_unknown: bool,
    /// Instruction, participant, key, rail and payload, as the database spells them.
    pub(crate) identity: [String; 5],
}

/// The result of a completion or a repair for one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) outbox: OutboxNo,
    pub(crate) attempt_no: i32,
    pub(crate) state: AttemptState,
    pub(crate) next_attempt_at: Option<Micros>,
    /// The worker that had the lease.
    pub(crate) worker: String,
}

/// What the database answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Refused(String),
    Enqueued(Vec<Enqueued>),
    Leased(Vec<Leased>),
    Completed(Vec<Result<Completed, Refusal>>),
    Renewed(Vec<Option<Micros>>),
    Released(Vec<bool>),
    Repaired(Vec<Completed>),
    /// The owner set a timestamp to this one.
    Moved(Micros),
}

fn list<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, participant, rail, payload, malformed } = self;
        write!(f, "key {key} (participant {participant}, ")?;
        if *rail < RAILS {
            write!(f, "rail {rail}, ")?;
        } else {
            write!(f, "a rail that is not registered, ")?;
        }
        if *malformed { write!(f, "a payload that is no object)") } else { write!(f, "payload {payload})") }
    }
}

impl Display for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lease {
            Some(lease) => write!(f, "outbox {} with the token of lease {lease}", self.outbox),
            None => write!(f, "outbox {} with a forged token", self.outbox),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.hold, self.state)?;
        if let Some(code) = self.error_code {
            write!(f, " ({code})")?;
        }
        match self.delay_seconds {
            Some(delay) => write!(f, " again in {delay} s"),
            None => Ok(()),
        }
    }
}

impl Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.ordered { "ordered" } else { "unordered" };
        let cap = self.max_in_flight.map_or("no cap".to_owned(), |cap| format!("at most {cap} in flight"));
        write!(f, "{order}, {cap}, {} attempts, ", self.max_attempts)?;
        write!(f, "backoff {} s up to {} s", self.backoff_base_seconds, self.backoff_cap_seconds)
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => write!(f, "begins a transaction"),
            Self::Commit => write!(f, "commits"),
            Self::RollBack => write!(f, "rolls back"),
            Self::Enqueue { form: Form::Single, given } => write!(f, "enqueues {}", list(given)),
            Self::Enqueue { form: Form::Batch, given } => write!(f, "enqueues a batch: {}", list(given)),
            Self::Claim { worker, batch, lease_seconds } => {
                write!(f, "claims up to {batch} for {worker}, for {lease_seconds} s")
            }
            Self::Complete { form: Form::Single, worker, outcomes } => {
                write!(f, "completes, for {worker}: {}", list(outcomes))
            }
            Self::Complete { form: Form::Batch, worker, outcomes } => {
                write!(f, "completes a batch, for {worker}: {}", list(outcomes))
            }
            Self::Renew { worker, leases, seconds } => {
                write!(f, "renews, for {worker}, for {seconds} s: {}", list(leases))
            }
            Self::Release { worker, leases, delay_seconds } => {
                let delay = delay_seconds.map_or(String::new(), |delay| format!(", not due for {delay} s"));
                write!(f, "gives back, for {worker}{delay}: {}", list(leases))
            }
            Self::Repair { worker, batch } => write!(f, "repairs up to {batch} for {worker}"),
            Self::Redrive(outbox) => write!(f, "redrives outbox {outbox}"),
            Self::Resolve(outbox, resolution) => write!(f, "resolves outbox {outbox} as {resolution}"),
            Self::SetRail(rail, policy) => write!(f, "sets rail {rail}: {policy}"),
            Self::Pause(rail) => write!(f, "pauses rail {rail}"),
            Self::Resume(rail) => write!(f, "resumes rail {rail}"),
            Self::Expire(outbox) => write!(f, "(the owner) lets the lease of outbox {outbox} run out"),
            Self::Miscount(outbox) => write!(f, "(the owner) lets outbox {outbox} count one attempt too many"),
            Self::MakeDue(outbox) => write!(f, "(the owner) lets outbox {outbox} be due now"),
        }
    }
}

impl Display for Enqueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replay = if self.replayed { ", a replay" } else { "" };
        write!(f, "outbox {} (sequence {}{replay})", self.outbox, self.sequence)
    }
}

impl Display for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outbox {} under lease {}", self.outbox, self.lease)
    }
}

impl Display for Completed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outbox {}: attempt {} is {}", self.outbox, self.attempt_no, self.state.name())
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done | Self::Moved(_) => write!(f, "done"),
            Self::Refused(code) => write!(f, "refused with {code}"),
            Self::Enqueued(rows) => write!(f, "{}", list(rows)),
            Self::Leased(rows) if rows.is_empty() => write!(f, "nothing"),
            Self::Leased(rows) => write!(f, "{}", list(rows)),
            Self::Completed(rows) => {
                let words = |row: &Result<Completed, Refusal>| match row {
                    Ok(completed) => completed.to_string(),
                    Err(code) => format!("refused with {code}"),
                };
                write!(f, "{}", rows.iter().map(words).collect::<Vec<_>>().join("; "))
            }
            Self::Renewed(rows) => {
                let words = |row: &Option<Micros>| if row.is_some() { "renewed" } else { "lost" };
                write!(f, "{}", rows.iter().map(words).collect::<Vec<_>>().join(", "))
            }
            Self::Released(rows) => {
                let words = |row: &bool| if *row { "given back" } else { "lost" };
                write!(f, "{}", rows.iter().map(words).collect::<Vec<_>>().join(", "))
            }
            Self::Repaired(rows) if rows.is_empty() => write!(f, "nothing"),
            Self::Repaired(rows) => write!(f, "{}", list(rows)),
        }
    }
}
