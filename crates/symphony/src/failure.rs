//! Errors that end a command: what failed, why, what to do next, and the exit code. Printed as text, or as JSON with `--json`.

use std::{error::Error, fmt::Write as _, process::ExitCode};

use serde::Serialize;
use symphony_client::error::{CancelError, CreateError, DatabaseError, EnqueueError, ErrorDetails, PublishError};
use symphony_db::error::{ClaimError, CompleteError, OperateError};
use symphony_db::{connect, schema};
use symphony_sinks::ConfigError;
#[cfg(feature = "dev-tools")]
use symphony_testkit::test_database;
use tokio_postgres::error::DbError;

use crate::option_names::in_words_of_options;

/// A check failed or the command could not do its work: a difference, a failed proof, an unknown outbox.
pub(crate) const FAILED: u8 = 1;
/// Arguments or settings are invalid.
pub(crate) const USAGE: u8 = 2;
/// The database was reached, and refused the login or the statement.
pub(crate) const REFUSED: u8 = 3;
/// The database could not be reached, or cannot serve anyone now. A retry may succeed.
pub(crate) const UNREACHABLE: u8 = 4;

/// The exit codes as `--help` lists them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure: a check did not pass, an object does not exist, or an operation failed
  2  invalid arguments or settings
  3  the database refused the login or the statement
  4  the database cannot be reached, or accepts no connection now
  129, 130, 143  ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM";

/// How a command ends that has printed its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// The command did its work, and its checks passed.
    Success,
    /// A check failed. The printed result says which.
    CheckFailed,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Success => Self::SUCCESS,
            ExitStatus::CheckFailed => Self::from(FAILED),
        }
    }
}

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
    sqlstate: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// An error as `--json` prints it.
#[derive(Serialize)]
struct JsonFailure<'a> {
    /// `FAILED`, `USAGE`, `REFUSED`, `UNREACHABLE` or `INTERRUPTED`, one for each exit code.
    code: &'static str,
    message: &'a str,
    hint: Option<&'a str>,
    exit_code: u8,
    /// PostgreSQL's code, if the database refused.
    sqlstate: Option<&'a str>,
}

/// What [`Failure`] says: its message, then its causes.
struct Sentences {
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    sqlstate: Option<String>,
}

impl Failure {
    /// An error with exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), hint: None, sqlstate: None, source: None }
    }

    /// An invalid argument or setting.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, ..Self::new(message) }
    }

    /// The database could not be reached, or refused: the source says which.
    pub(crate) fn database(message: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self { code: database_code(&source), ..Self::because(message, source) }
    }

    /// An error with exit code 1, and its cause.
    pub(crate) fn because(message: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..Self::new(message) }
    }

    /// A signal ended the command. The exit code is 128 plus the signal's number, as in a shell.
    pub(crate) fn interrupted(signal: i32) -> Self {
        let code = u8::try_from(128 + signal).unwrap_or(FAILED);
        Self { code, ..Self::new("interrupted; everything that this run had created was removed") }
    }

    /// Gives it the exit code of an invalid argument or setting.
    pub(crate) fn into_usage(self) -> Self {
        Self { code: USAGE, ..self }
    }

    /// Replaces the message.
    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Puts a context before the message, such as the file or the setting.
    pub(crate) fn with_context(mut self, context: &str) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// The message, its causes, and what to do next.
    pub(crate) fn render(&self) -> String {
        let Sentences { message, causes, hint, .. } = self.sentences();
        let mut text = format!("error: {message}\n");
        for cause in causes {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  because: {cause}");
        }
        if let Some(hint) = hint {
            let _ = writeln!(text, "  hint: {hint}");
        }
        text
    }

    /// The same as one JSON object, each text passed through `clean`.
    pub(crate) fn render_json(&self, clean: impl Fn(&str) -> String) -> String {
        let Sentences { message, causes, hint, sqlstate } = self.sentences();
        let message = clean(&std::iter::once(message).chain(causes).collect::<Vec<_>>().join(": "));
        let hint = hint.map(|hint| clean(&hint));
        json_failure(self.code, &message, hint.as_deref(), sqlstate.as_deref())
    }

    fn sentences(&self) -> Sentences {
        let (mut causes, mut hint, mut sqlstate) = (Vec::new(), self.hint.clone(), self.sqlstate.clone());
        let mut last = self.message.clone();
        let mut source = self.source.as_deref().map(|source| source as &(dyn Error + 'static));
        while let Some(cause) = source {
            let words = match cause.downcast_ref::<DbError>() {
                Some(error) => {
                    hint = hint.or_else(|| error.hint().map(str::to_owned));
                    sqlstate = sqlstate.or_else(|| Some(error.code().code().to_owned()));
                    let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
                    format!("{}: {}{detail} [SQLSTATE {}]", error.severity(), error.message(), error.code().code())
                }
                None => cause.to_string(),
            };
            source = cause.source();
            // "db error" adds nothing to its source, and some causes repeat the error that they wrap.
            if words != "db error" && words != last {
                causes.push(words.clone());
                last = words;
            }
        }
        Sentences { message: self.message.clone(), causes, hint, sqlstate }
    }
}

/// One JSON object for an error. The texts must be safe to print.
pub(crate) fn json_failure(exit_code: u8, message: &str, hint: Option<&str>, sqlstate: Option<&str>) -> String {
    let code = match exit_code {
        FAILED => "FAILED",
        USAGE => "USAGE",
        REFUSED => "REFUSED",
        UNREACHABLE => "UNREACHABLE",
        _ => "INTERRUPTED",
    };
    let failure = JsonFailure { code, message, hint, exit_code, sqlstate };
    // Texts and numbers are always JSON.
    serde_json::to_string(&failure).unwrap_or_default() + "\n"
}

/// Whether the database refused, or was not reached, by the error or its causes.
fn database_code(error: &(dyn Error + 'static)) -> u8 {
    let causes = || std::iter::successors(Some(error), |error| (*error).source());
    let refusal = causes().find_map(|cause| cause.downcast_ref::<DbError>());
    let is_driver_error =
        |cause: &(dyn Error + 'static)| cause.is::<tokio_postgres::Error>() || cause.is::<NoAnswer>();
    match refusal {
        Some(refusal) => sqlstate_code(refusal.code().code()),
        None if causes().any(is_driver_error) => UNREACHABLE,
        None => REFUSED,
    }
}

/// A server that starts, stops or has no connection left accepts none now.
fn sqlstate_code(sqlstate: &str) -> u8 {
    if sqlstate.starts_with("08") || sqlstate.starts_with("57P") || sqlstate == "53300" {
        UNREACHABLE
    } else {
        REFUSED
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string()).hint("docs/sinks/ explains the settings of each kind")
    }
}

impl From<connect::Error> for Failure {
    fn from(error: connect::Error) -> Self {
        match error {
            connect::Error::Address { .. } => Self::usage(error.to_string())
                .hint("write the address as postgres://user@host:5432/database?sslmode=…"),
            connect::Error::File { .. } => {
                let source = error.source().map(ToString::to_string);
                let because = source.map(|source| format!(": {source}")).unwrap_or_default();
                Self::usage(format!("{error}{because}"))
                    .hint("correct the file, or the setting or variable that names it")
            }
            connect::Error::Connect { target, source } => {
                Self::database(format!("cannot connect to {target}"), source)
            }
            connect::Error::Timeout { .. } => Self::database(error.to_string(), NoAnswer)
                .hint("check that the server runs there; connect_timeout=SECONDS in the URL sets the timeout"),
        }
    }
}

/// The cause of a connection that timed out: the server sent nothing.
#[derive(Debug, thiserror::Error)]
#[error("the server did not answer")]
struct NoAnswer;

impl From<schema::install::Error> for Failure {
    fn from(error: schema::install::Error) -> Self {
        match error {
            schema::install::Error::Refused(refusal) => {
                let message = format!("nothing was installed: {}", refusal.message);
                Self::from(refusal).with_message(message)
            }
            schema::install::Error::Differs { ref differences } => {
                let mut message = String::from(
                    "the install ran, but the database still differs from this build; \
                     fix by hand what an install cannot:",
                );
                for difference in differences {
                    let _ = write!(message, "\n  {difference}");
                }
                Self::new(message)
            }
            schema::install::Error::Database(source) => Self::database("nothing was installed", source),
            schema::install::Error::Verify(error) => error.into(),
        }
    }
}

impl From<schema::verify::Error> for Failure {
    fn from(error: schema::verify::Error) -> Self {
        match error {
            schema::verify::Error::NotInstalled => Self::new(error.to_string()),
            schema::verify::Error::Refused(refusal) => refusal.into(),
            schema::verify::Error::Database(source) => Self::database("the query failed", source),
        }
    }
}

impl From<schema::guard::Refusal> for Failure {
    fn from(refusal: schema::guard::Refusal) -> Self {
        Self { hint: refusal.hint, ..Self::database(refusal.message, refusal.source) }
    }
}

impl From<schema::owner::Error> for Failure {
    fn from(error: schema::owner::Error) -> Self {
        match error {
            schema::owner::Error::Refused(refusal) => refusal.into(),
            schema::owner::Error::Database(source) => Self::database("the query failed", source),
        }
    }
}

impl From<schema::guard::Error> for Failure {
    fn from(error: schema::guard::Error) -> Self {
        match error {
            schema::guard::Error::NotInstalled => {
                Self { code: REFUSED, ..Self::new("Symphony is not installed in this database") }
                    .hint("check the address, then run: symphony install")
            }
            schema::guard::Error::Refused(refusal) => refusal.into(),
            schema::guard::Error::Database(source) => Self::database("the query failed", source),
        }
    }
}

/// The database's error in one line, with its SQLSTATE.
pub(crate) fn describe(details: &ErrorDetails) -> String {
    let detail = details.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let state = details.sqlstate().map(|state| format!(" [SQLSTATE {state}]")).unwrap_or_default();
    format!("{}{detail}{state}", details.message())
}

fn from_details(code: u8, details: &ErrorDetails) -> Failure {
    Failure {
        code,
        message: describe(details),
        hint: details.hint().map(str::to_owned),
        sqlstate: details.sqlstate().map(str::to_owned),
        source: None,
    }
}

/// A refused argument, named as the command line names it.
fn invalid_argument(details: &ErrorDetails) -> Failure {
    let failure = from_details(USAGE, details);
    let hint = failure.hint.as_deref().map(in_words_of_options);
    // Behind the message stand its detail and SQLSTATE.
    let rest = failure.message.strip_prefix(details.message()).unwrap_or_default();
    Failure { message: in_words_of_options(details.message()) + rest, hint, ..failure }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        let hint = match &error {
            DatabaseError::MissingRole { role, .. } => {
                Some(format!("let a DBA run: grant {role} to the login that you connect as"))
            }
            DatabaseError::NotInstalled(_) => Some(
                "Symphony is not installed in this database, or is older than this program: check the address, \
                 then run: symphony install"
                    .to_owned(),
            ),
            DatabaseError::ConnectionLost { next, .. } => Some((*next).to_owned()),
            DatabaseError::RetryTransaction(_) => Some("run it again".to_owned()),
            DatabaseError::LockHeld(details) if details.hint().is_none() => {
                Some("another session holds a lock on it: run it again".to_owned())
            }
            // The database's own hint is used, where it has one.
            _ => None,
        };
        let code = match error.details().sqlstate() {
            _ if matches!(error, DatabaseError::ConnectionLost { .. }) => UNREACHABLE,
            Some(sqlstate) => sqlstate_code(sqlstate),
            None => REFUSED,
        };
        let failure = from_details(code, error.details());
        Self { hint: hint.or(failure.hint), ..failure }
    }
}

impl From<CancelError> for Failure {
    fn from(error: CancelError) -> Self {
        match error {
            CancelError::Ended(details) | CancelError::MayBeSent(details) => from_details(REFUSED, &details),
            CancelError::InvalidArgument(details) => invalid_argument(&details),
            CancelError::Database(error) => error.into(),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::IdempotencyConflict(details) => from_details(REFUSED, &details),
            EnqueueError::InvalidArgument(details) => invalid_argument(&details),
            EnqueueError::UnknownRail(details) => from_details(FAILED, &details)
                .hint("check the spelling with: symphony rail list; or register it with: symphony rail add"),
            EnqueueError::Database(error) => error.into(),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::InvalidArgument(details) => invalid_argument(&details),
            PublishError::Database(error) => error.into(),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::InvalidArgument(details) => invalid_argument(&details),
            CreateError::Database(error) => error.into(),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<OperateError> for Failure {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::InvalidState(details) => from_details(REFUSED, &details),
            OperateError::InvalidArgument(details) => invalid_argument(&details),
            OperateError::UnknownRail(details) => from_details(FAILED, &details)
                .hint("list the rails with: symphony rail list; register one with: symphony rail add"),
            OperateError::Database(error) => error.into(),
        }
    }
}

impl From<ClaimError> for Failure {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::InvalidArgument(details) => invalid_argument(&details),
            ClaimError::Database(error) => error.into(),
        }
    }
}

impl From<CompleteError> for Failure {
    fn from(error: CompleteError) -> Self {
        match error {
            CompleteError::AlreadyTerminal(details)
            | CompleteError::LeaseLost(details)
            | CompleteError::NotFound(details)
            | CompleteError::InvalidState(details) => from_details(REFUSED, &details),
            CompleteError::InvalidArgument(details) => invalid_argument(&details),
            CompleteError::Database(error) => error.into(),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::database("the database refused the statement", error)
    }
}

impl From<symphony_console::Error> for Failure {
    fn from(error: symphony_console::Error) -> Self {
        match error {
            symphony_console::Error::Setting { message, hint } => Self::usage(message).hint(hint),
            symphony_console::Error::Connect(error) => error.into(),
            symphony_console::Error::Address { setting, source } => Self::from(source).with_context(setting),
            symphony_console::Error::Login { message, hint } => Self::new(message).hint(hint),
            symphony_console::Error::Guard(error) => error.into(),
            symphony_console::Error::Database(error) => error.into(),
            symphony_console::Error::Random(_) => Self::new(error.to_string()),
        }
    }
}

#[cfg(feature = "dev-tools")]
impl From<test_database::Error> for Failure {
    fn from(error: test_database::Error) -> Self {
        match error {
            test_database::Error::Connect(error) => error.into(),
            test_database::Error::Rights { .. } => Self { code: REFUSED, ..Self::new(error.to_string()) }.hint(
                "run the proofs on a server where you may, such as a private one: the guarantees are the same",
            ),
            test_database::Error::Refused { .. } => {
                Self::database("cannot create or drop the scratch databases", error)
            }
            test_database::Error::Find(_) | test_database::Error::Start(_) => {
                Self::because("there is no PostgreSQL server to use", error)
            }
        }
    }
}
