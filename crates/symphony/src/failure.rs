//! What ends a command, and the exit code that it means.

use std::{error::Error, fmt::Write as _, process::ExitCode};

use symphony_outbox::{
    connect,
    error::{
        CompleteError, EnqueueError, Fault, LeaseError, OperateError, Report, event::PublishError,
        metadata::CreateError,
    },
    schema,
};
use symphony_proof::kit::scratch;

/// The answer is no: a difference was found, a proof failed, there is no such outbox.
pub(crate) const NO: u8 = 1;
/// The arguments are wrong.
pub(crate) const USAGE: u8 = 2;
/// The database was not reached, or refused.
pub(crate) const DATABASE: u8 = 3;

/// The same in the words of --help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or the answer is yes
  1  the answer is no: a difference was found, a proof failed, there is no such thing
  2  the arguments are wrong
  3  the database was not reached, or refused
  129, 130, 143  interrupted: the terminal was closed, Ctrl-C, or a request to end";

/// What a command answers when nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done, or what was asked is so.
    Yes,
    /// What was asked is not so. The result has said why.
    No,
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Yes => Self::SUCCESS,
            Answer::No => Self::from(NO),
        }
    }
}

/// Why a command has no result.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// The answer is no.
    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self { code: NO, message: message.into(), hint: None, source: None }
    }

    /// The arguments are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), hint: None, source: None }
    }

    /// The database was not reached, or refused.
    pub(crate) fn database(message: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self { code: DATABASE, message: message.into(), hint: None, source: Some(Box::new(source)) }
    }

    /// The answer is no, and something led to it.
    pub(crate) fn because(message: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..Self::no(message) }
    }

    /// A signal asked us to end. The code is the one that shells use.
    pub(crate) fn interrupted(signal: i32) -> Self {
        let code = u8::try_from(128 + signal).unwrap_or(NO);
        Self { code, ..Self::no("interrupted; what was made for this run is removed") }
    }

    /// The same in other words.
    pub(crate) fn saying(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// The same, and where it was found.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// What to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// The message, everything that led to it, and what to do next.
    pub(crate) fn in_full(&self) -> String {
        let mut text = format!("error: {}\n", self.message);
        let mut hint = self.hint.clone();
        let mut last = self.message.clone();
        let mut source = self.source.as_deref().map(|source| source as &(dyn Error + 'static));
        while let Some(cause) = source {
            let words = match cause.downcast_ref::<tokio_postgres::error::DbError>() {
                Some(said) => {
                    hint = hint.or_else(|| said.hint().map(str::to_owned));
                    let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
                    format!("{}: {}{detail} [SQLSTATE {}]", said.severity(), said.message(), said.code().code())
                }
                None => cause.to_string(),
            };
            source = cause.source();
            // "db error" says nothing that its source does not say, and some causes repeat what they wrap.
            if words != "db error" && words != last {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "  because: {words}");
                last = words;
            }
        }
        if let Some(hint) = hint {
            let _ = writeln!(text, "  hint: {hint}");
        }
        text
    }
}

impl From<connect::Error> for Failure {
    fn from(error: connect::Error) -> Self {
        match error {
            connect::Error::Address { .. } | connect::Error::File { .. } => {
                let source = error.source().map(ToString::to_string);
                let because = source.map(|source| format!(": {source}")).unwrap_or_default();
                Self::usage(format!("{error}{because}"))
                    .hint("an address is postgres://user:password@host:5432/database?sslmode=…")
            }
            connect::Error::Connect { place, source } => {
                Self::database(format!("cannot connect to {place}"), source)
            }
            connect::Error::Silent { .. } => Self::database(error.to_string(), Silence)
                .hint("is the server running there? connect_timeout=SECONDS in the address sets how long to wait"),
        }
    }
}

/// There is nothing that the other side said.
#[derive(Debug, thiserror::Error)]
#[error("there was no answer")]
struct Silence;

impl From<schema::install::Error> for Failure {
    fn from(error: schema::install::Error) -> Self {
        match error {
            schema::install::Error::Refused(refusal) => {
                let message = format!("nothing was installed: {}", refusal.message);
                Self::from(refusal).saying(message)
            }
            schema::install::Error::Differs { ref differences } => {
                let mut message = String::from(
                    "the script ran, but the database still differs from this build; \
                     what an install cannot repair, a person must:",
                );
                for difference in differences {
                    let _ = write!(message, "\n  {difference}");
                }
                Self::no(message)
            }
            schema::install::Error::Database(source) => Self::database("nothing was installed", source),
            schema::install::Error::Verify(error) => error.into(),
        }
    }
}

impl From<schema::verify::Error> for Failure {
    fn from(error: schema::verify::Error) -> Self {
        match error {
            schema::verify::Error::NotInstalled => Self::no(error.to_string()),
            schema::verify::Error::Refused(refusal) => refusal.into(),
            schema::verify::Error::Database(source) => Self::database("the database could not be asked", source),
        }
    }
}

impl From<schema::guard::Refusal> for Failure {
    fn from(refusal: schema::guard::Refusal) -> Self {
        Self { hint: refusal.hint, ..Self::database(refusal.message, refusal.source) }
    }
}

impl From<schema::guard::Error> for Failure {
    fn from(error: schema::guard::Error) -> Self {
        match error {
            schema::guard::Error::NotInstalled => {
                Self { code: DATABASE, ..Self::no("Symphony is not installed in this database") }
                    .hint("check the address, then run: symphony install")
            }
            schema::guard::Error::Refused(refusal) => refusal.into(),
            schema::guard::Error::Database(source) => Self::database("the database could not be asked", source),
        }
    }
}

/// What the database said, in one line with its SQLSTATE.
pub(crate) fn in_words(report: &Report) -> String {
    let detail = report.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let state = report.sqlstate().map(|state| format!(" [SQLSTATE {state}]")).unwrap_or_default();
    format!("{}{detail}{state}", report.message())
}

fn said(code: u8, report: &Report) -> Failure {
    Failure { code, message: in_words(report), hint: report.hint().map(str::to_owned), source: None }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let hint = match &fault {
            Fault::MissingRole { role, .. } => {
                Some(format!("let a DBA run: grant {role} to the login that you connect as"))
            }
            Fault::NotInstalled(_) => Some(
                "Symphony is not installed in this database, or is older than this program: check the address, \
                 then run: symphony install"
                    .to_owned(),
            ),
            Fault::ConnectionLost { next, .. } => Some((*next).to_owned()),
            Fault::RetryTransaction(_) => Some("run it again".to_owned()),
            Fault::LockHeld(report) if report.hint().is_none() => {
                Some("another session holds a lock on it: run it again".to_owned())
            }
            // For these the database has a hint of its own, or there is none to give.
            Fault::LockHeld(_)
            | Fault::NotReadCommitted(_)
            | Fault::AppendOnly(_)
            | Fault::TerminalBackstop(_)
            | Fault::Other(_) => None,
        };
        let failure = said(DATABASE, fault.report());
        Self { hint: hint.or(failure.hint), ..failure }
    }
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::IdempotencyConflict(report) => said(DATABASE, &report),
            EnqueueError::InvalidArgument(report) => said(USAGE, &report),
            EnqueueError::UnknownRail(report) => said(NO, &report)
                .hint("check the spelling with: symphony rail list; or register it with: symphony rail add"),
            EnqueueError::Fault(fault) => fault.into(),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::InvalidArgument(report) => said(USAGE, &report),
            PublishError::Fault(fault) => fault.into(),
        }
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::InvalidArgument(report) => said(USAGE, &report),
            CreateError::Fault(fault) => fault.into(),
        }
    }
}

impl From<OperateError> for Failure {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::InvalidState(report) => said(DATABASE, &report),
            OperateError::InvalidArgument(report) => said(USAGE, &report),
            OperateError::UnknownRail(report) => said(NO, &report)
                .hint("see which there are with: symphony rail list; register one with: symphony rail add"),
            OperateError::Fault(fault) => fault.into(),
        }
    }
}

impl From<LeaseError> for Failure {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::InvalidArgument(report) => said(USAGE, &report),
            LeaseError::Fault(fault) => fault.into(),
        }
    }
}

impl From<CompleteError> for Failure {
    fn from(error: CompleteError) -> Self {
        match error {
            CompleteError::AlreadyTerminal(report)
            | CompleteError::LeaseLost(report)
            | CompleteError::InvalidState(report) => said(DATABASE, &report),
            CompleteError::InvalidArgument(report) => said(USAGE, &report),
            CompleteError::Fault(fault) => fault.into(),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::database("the database refused", error)
    }
}

impl From<scratch::Error> for Failure {
    fn from(error: scratch::Error) -> Self {
        match error {
            scratch::Error::Connect(error) => error.into(),
            scratch::Error::Rights { .. } => Self { code: DATABASE, ..Self::no(error.to_string()) }
                .hint("prove on a server where you may: a private one will do, the promises are the same"),
            scratch::Error::Refused { .. } => {
                Self::database("the scratch databases could not be made or removed", error)
            }
            scratch::Error::Find(_) | scratch::Error::Start(_) => Self::because("there is no server", error),
        }
    }
}
