//! What any call may meet, whatever it asked for.

use std::error::Error;
use std::fmt;

use super::{Report, sqlstate};

/// What no argument could have prevented.
#[derive(Debug)]
pub enum Fault {
    /// Two transactions got in each other's way. Run the whole transaction again.
    RetryTransaction(Report),
    /// Another session held a lock for longer than this call waits: for a change of rail policy, a worker that left
    /// its transaction open. End that session or let it end, then run the whole transaction again.
    LockHeld(Report),
    /// What was asked is decided on the newest state. Run it in a transaction that is READ COMMITTED, or let the
    /// login default to that.
    NotReadCommitted(Report),
    /// The login lacks a role that may do this. Let a DBA grant it.
    MissingRole {
        /// The role to grant.
        role: &'static str,
        /// What the database said.
        report: Report,
    },
    /// Symphony is not installed in this database, or an older version of it.
    NotInstalled(Report),
    /// The connection was lost, so nobody knows whether the call was carried out.
    ConnectionLost {
        /// How to go on safely.
        next: &'static str,
        /// What the driver or the database said last.
        report: Report,
    },
    /// Somebody tried to change what is only ever added to. Use the functions of the schema.
    AppendOnly(Report),
    /// A second terminal outcome got past the lease, and the ledger's own index stopped it: log it as an event of
    /// its own. Nothing was recorded twice.
    TerminalBackstop(Report),
    /// Anything else.
    Other(Report),
}

/// What a fault must know about the call that met it, to say what to do next.
pub(super) struct Call {
    role: &'static str,
    after_loss: &'static str,
}

impl Call {
    pub(super) const ENQUEUE: Self = Self {
        role: "symphony_ingest",
        after_loss: "Run the whole transaction again, with the same idempotency key: if it was committed, that is a replay",
    };
    pub(super) const LEASE: Self = Self {
        role: "symphony_executor",
        after_loss: "Connect and ask again: a lease that was granted unheard ends by itself",
    };
    pub(super) const COMPLETE: Self = Self {
        role: "symphony_executor",
        after_loss: "Connect and complete again with the same lease token: a refusal then says whether it was recorded",
    };
    pub(super) const OPERATE: Self = Self {
        role: "symphony_operator",
        after_loss: "Connect and look in symphony.payment_outbox_operations_log whether it was done",
    };
    pub(super) const PUBLISH: Self = Self {
        role: "symphony_ingest",
        after_loss: "Look whether the business rows of the same transaction are there: the event is, if they are",
    };
    pub(super) const CLAIM: Self = Self {
        role: "symphony_executor",
        after_loss: "Connect and claim again: what was claimed unheard comes back after 5 minutes",
    };
    pub(super) const COMPLETE_EVENT: Self = Self {
        role: "symphony_executor",
        after_loss: "Connect and complete again with the same processor id: a refusal then says that it was recorded, \
                     or that the claim is gone",
    };
    pub(super) const CREATE_METADATA: Self = Self {
        role: "symphony_ingest",
        after_loss: "Look whether the rows of the same transaction are there: the entry is, if they are",
    };
    pub(super) const MOVE_METADATA: Self = Self {
        role: "symphony_executor",
        after_loss: "Connect and look at the entry: its status says whether it was moved",
    };
    pub(super) const READ: Self = Self { role: "symphony_readonly", after_loss: "Connect and read again" };
}

impl Fault {
    pub(super) fn of(report: Report, call: &Call) -> Self {
        if report.connection_lost() {
            return Self::ConnectionLost { next: call.after_loss, report };
        }
        match report.sqlstate() {
            Some(sqlstate::APPEND_ONLY) => Self::AppendOnly(report),
            Some(sqlstate::INSUFFICIENT_PRIVILEGE) => Self::MissingRole { role: call.role, report },
            Some(sqlstate::INVALID_TRANSACTION_STATE) => Self::NotReadCommitted(report),
            Some(sqlstate::LOCK_NOT_AVAILABLE) => Self::LockHeld(report),
            Some(sqlstate::UNIQUE_VIOLATION) if report.constraint() == Some(sqlstate::TERMINAL_BACKSTOP) => {
                Self::TerminalBackstop(report)
            }
            Some(state) if sqlstate::is_about_timing(state) => Self::RetryTransaction(report),
            Some(state) if sqlstate::is_about_installation(state) => Self::NotInstalled(report),
            _ => Self::Other(report),
        }
    }

    /// The same of a call that another role than the usual one may make.
    #[cfg_attr(not(feature = "tokio-postgres"), expect(dead_code, reason = "payloads are read over that driver"))]
    pub(crate) fn for_role(self, role: &'static str) -> Self {
        match self {
            Self::MissingRole { report, .. } => Self::MissingRole { role, report },
            other => other,
        }
    }

    /// What the database or the driver said.
    pub fn report(&self) -> &Report {
        match self {
            Self::RetryTransaction(report)
            | Self::LockHeld(report)
            | Self::NotReadCommitted(report)
            | Self::MissingRole { report, .. }
            | Self::NotInstalled(report)
            | Self::ConnectionLost { report, .. }
            | Self::AppendOnly(report)
            | Self::TerminalBackstop(report)
            | Self::Other(report) => report,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RetryTransaction(report) => write!(f, "{}. Run the whole transaction again", report.message()),
            // PostgreSQL's own refusal says no more than that it waited.
            Self::LockHeld(report) if report.hint().is_none() => {
                write!(f, "{report}. Another session holds it: run the whole transaction again")
            }
            Self::MissingRole { role, report } => {
                write!(f, "{report}. Let a DBA run: grant {role} to the login that you connect as")
            }
            Self::NotInstalled(report) => write!(
                f,
                "{report}. Symphony is not installed in this database, or is older than this program: check the \
                 address, then run: symphony install"
            ),
            Self::ConnectionLost { next, report } => {
                write!(
                    f,
                    "the connection was lost and it is not known whether the call was carried out ({report}). {next}"
                )
            }
            Self::TerminalBackstop(report) => write!(
                f,
                "{report}. A second terminal outcome was stopped by the ledger: nothing was recorded twice, but the \
                 lease should have prevented it"
            ),
            Self::LockHeld(report)
            | Self::NotReadCommitted(report)
            | Self::AppendOnly(report)
            | Self::Other(report) => report.fmt(f),
        }
    }
}

/// The source is the driver's error: what the database said is in the message already.
impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.report().source()
    }
}
