//! The fields of a PostgreSQL error, the same for both drivers.

use std::error::Error;
use std::fmt;

/// SQLSTATE, message, detail and hint of an error, with the driver's error as the source.
pub struct ErrorDetails(Box<Fields>);

#[derive(Default)]
struct Fields {
    sqlstate: Option<String>,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    constraint: Option<String>,
    connection_lost: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ErrorDetails {
    /// From a result row that reports a refusal: batch functions return one row per completion, not an error.
    pub fn of_row(sqlstate: String, message: String) -> Self {
        Self(Box::new(Fields { sqlstate: Some(sqlstate), message, ..Fields::default() }))
    }

    /// The SQLSTATE; none if the error is the driver's own.
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// PostgreSQL's DETAIL, if it sent one.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// PostgreSQL's HINT: what to do next, if it sent one.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub(super) fn constraint(&self) -> Option<&str> {
        self.0.constraint.as_deref()
    }

    pub(super) fn connection_lost(&self) -> bool {
        self.0.connection_lost || self.sqlstate().is_some_and(super::sqlstate::is_connection_failure)
    }
}

/// Prints message, detail and hint as sentences.
impl fmt::Display for ErrorDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        for more in [self.detail(), self.hint()].into_iter().flatten() {
            write!(f, ". {}", more.trim_end_matches('.'))?;
        }
        Ok(())
    }
}

/// Omits the source, because a driver's error can quote the refused payload.
impl fmt::Debug for ErrorDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorDetails")
            .field("sqlstate", &self.sqlstate())
            .field("message", &self.message())
            .field("detail", &self.detail())
            .field("hint", &self.hint())
            .finish_non_exhaustive()
    }
}

impl Error for ErrorDetails {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// PostgreSQL's message. That of a full lock table does not say which memory it means.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
fn message_of(sqlstate: &str, message: &str) -> String {
    if sqlstate == "53200" && message == "out of shared memory" {
        return "PostgreSQL is out of lock memory (53200): end the transaction that holds most locks, or raise \
                max_locks_per_transaction"
            .to_owned();
    }
    message.to_owned()
}

#[cfg(feature = "tokio-postgres")]
impl From<tokio_postgres::Error> for ErrorDetails {
    fn from(error: tokio_postgres::Error) -> Self {
        let mut fields = error.as_db_error().map_or_else(
            || Fields { message: error.to_string(), ..Fields::default() },
            |refused| Fields {
                sqlstate: Some(refused.code().code().to_owned()),
                message: message_of(refused.code().code(), refused.message()),
                detail: refused.detail().map(str::to_owned),
                hint: refused.hint().map(str::to_owned),
                constraint: refused.constraint().map(str::to_owned),
                ..Fields::default()
            },
        );
        fields.connection_lost =
            error.is_closed() || error.source().is_some_and(<dyn Error>::is::<std::io::Error>);
        fields.source = Some(Box::new(error));
        Self(Box::new(fields))
    }
}

#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for ErrorDetails {
    fn from(error: sqlx::Error) -> Self {
        let refused =
            error.as_database_error().and_then(|e| e.try_downcast_ref::<sqlx::postgres::PgDatabaseError>());
        let mut fields = refused.map_or_else(
            || Fields { message: error.to_string(), ..Fields::default() },
            |refused| Fields {
                sqlstate: Some(refused.code().to_owned()),
                message: message_of(refused.code(), refused.message()),
                detail: refused.detail().map(str::to_owned),
                hint: refused.hint().map(str::to_owned),
                constraint: refused.constraint().map(str::to_owned),
                ..Fields::default()
            },
        );
        fields.connection_lost = matches!(error, sqlx::Error::Io(_));
        fields.source = Some(Box::new(error));
        Self(Box::new(fields))
    }
}

#[cfg(all(test, feature = "tokio-postgres"))]
mod tests {
    use super::message_of;

    #[test]
    fn a_full_lock_table_is_named() {
        assert!(
            message_of("53200", "out of shared memory").starts_with("PostgreSQL is out of lock memory (53200): ")
        );
        for (state, message) in [("53200", "out of memory"), ("53100", "out of shared memory")] {
            assert_eq!(message_of(state, message), message);
        }
    }
}
