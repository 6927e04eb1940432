//! What the database said, in the words that both drivers share.
//!
//! Takes an error apart and does not judge it.

use std::error::Error;
use std::fmt;

/// What the database said about a call: its own message, detail and hint, and the driver's error as the source.
pub struct Report(Box<Said>);

#[derive(Default)]
struct Said {
    sqlstate: Option<String>,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    constraint: Option<String>,
    connection_lost: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Report {
    /// A refusal that came as a row of a result, not as an error.
    #[cfg(feature = "tokio-postgres")]
    pub(crate) fn of_row(sqlstate: String, message: String) -> Self {
        Self(Box::new(Said { sqlstate: Some(sqlstate), message, ..Said::default() }))
    }

    /// The SQLSTATE; none where the driver itself gave up.
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }

    /// What is wrong, in a sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// More about it, where the database said more.
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What to do about it, where the database said so.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub(super) fn constraint(&self) -> Option<&str> {
        self.0.constraint.as_deref()
    }

    pub(super) fn connection_lost(&self) -> bool {
        self.0.connection_lost || self.sqlstate().is_some_and(super::sqlstate::is_about_the_connection)
    }
}

/// Message, detail and hint as sentences.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        for more in [self.detail(), self.hint()].into_iter().flatten() {
            write!(f, ". {}", more.trim_end_matches('.'))?;
        }
        Ok(())
    }
}

/// Without the source: the context of a driver's error quotes the payload that was refused.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report")
            .field("sqlstate", &self.sqlstate())
            .field("message", &self.message())
            .field("detail", &self.detail())
            .field("hint", &self.hint())
            .finish_non_exhaustive()
    }
}

impl Error for Report {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(feature = "tokio-postgres")]
impl From<tokio_postgres::Error> for Report {
    fn from(error: tokio_postgres::Error) -> Self {
        let mut said = error.as_db_error().map_or_else(
            || Said { message: error.to_string(), ..Said::default() },
            |refused| Said {
                sqlstate: Some(refused.code().code().to_owned()),
                message: refused.message().to_owned(),
                detail: refused.detail().map(str::to_owned),
                hint: refused.hint().map(str::to_owned),
                constraint: refused.constraint().map(str::to_owned),
                ..Said::default()
            },
        );
        said.connection_lost = error.is_closed() || error.source().is_some_and(<dyn Error>::is::<std::io::Error>);
        said.source = Some(Box::new(error));
        Self(Box::new(said))
    }
}

#[cfg(feature = "sqlx")]
impl From<sqlx::Error> for Report {
    fn from(error: sqlx::Error) -> Self {
        let refused =
            error.as_database_error().and_then(|e| e.try_downcast_ref::<sqlx::postgres::PgDatabaseError>());
        let mut said = refused.map_or_else(
            || Said { message: error.to_string(), ..Said::default() },
            |refused| Said {
                sqlstate: Some(refused.code().to_owned()),
                message: refused.message().to_owned(),
                detail: refused.detail().map(str::to_owned),
                hint: refused.hint().map(str::to_owned),
                constraint: refused.constraint().map(str::to_owned),
                ..Said::default()
            },
        );
        said.connection_lost = matches!(error, sqlx::Error::Io(_));
        said.source = Some(Box::new(error));
        Self(Box::new(said))
    }
}

/// Lets `?` sort the errors of both drivers.
macro_rules! from_drivers {
    ($($sorted:ty),+) => {
        $(
            #[cfg(feature = "tokio-postgres")]
            impl From<tokio_postgres::Error> for $sorted {
                fn from(error: tokio_postgres::Error) -> Self {
                    Report::from(error).into()
                }
            }

            #[cfg(feature = "sqlx")]
            impl From<sqlx::Error> for $sorted {
                fn from(error: sqlx::Error) -> Self {
                    Report::from(error).into()
                }
            }
        )+
    };
}

pub(super) use from_drivers;
