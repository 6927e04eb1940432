//! The session whose end shows that a relayer is gone, so that its claims need not expire.
//!
//! A relayer claims under names that contain the mark of its session. When the server has ended that session, any relayer
//! may release what was claimed under them. The rule is in SQL: `ended_claim_sessions`.

use tokio_postgres::types::Type;

use crate::WorkerId;
use crate::connect::{self, Session, Target};
use crate::error::DatabaseError;
use crate::executor::Executor;

const OPEN: &str = "select symphony.open_claim_session()";
const RELEASE_EVENTS: &str = "select symphony.release_abandoned_events($1)";
/// The maximum number of rows per release.
const MAX_BATCH: i32 = 1000;
/// The most characters of a worker's name that a name of a claim keeps, so that the mark and the suffix of the claim fit
/// into the database's 200 characters.
const MAX_WORKER_NAME: usize = 120;

/// An open claim session. It ends when this is dropped, or its process ends.
#[derive(Debug)]
pub struct ClaimSession {
    session: Session,
    mark: String,
}

/// Why there is no claim session. Claims without one expire.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server was not reached, or refused.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// The call failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The address leads to a pooler, whose sessions outlive the relayer.
    #[error("the address leads to a pooler, whose sessions outlive a relayer")]
    Pooler,
}

impl ClaimSession {
    /// Opens one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn open(target: &Target) -> Result<Self, Error> {
        let session = target.connect_session().await?;
        if !session.caches_statements() {
            return Err(Error::Pooler);
        }
        let row = session.fetch_one(OPEN, &[]).await.map_err(DatabaseError::from)?;
        let mark = row.try_get(0).map_err(DatabaseError::from)?;
        Ok(Self { session, mark })
    }

    /// The name under which this worker claims while the session is open.
    #[must_use]
    pub fn claim_name(&self, worker: &WorkerId) -> WorkerId {
        let name: String = worker.as_str().chars().take(MAX_WORKER_NAME).collect();
        format!("{name}#{}", self.mark).into()
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.session.client().is_closed()
    }

    /// Releases events of relayers whose claim session has ended; how many. Each is recorded as a failure.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn release_abandoned_events(&self) -> Result<usize, DatabaseError> {
        let row = self.session.fetch_one(RELEASE_EVENTS, &[(&MAX_BATCH, Type::INT4)]).await?;
        Ok(usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or_default())
    }
}
