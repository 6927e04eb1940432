//! A claimed entry, and the transitions that its status allows.
//!
//! Each transition consumes the value, so one claim cannot change an entry twice. A refused transition, or one whose
//! answer was lost, consumes it as well: repair requeues an entry that is still claimed. The login needs
//! `symphony_executor`.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Entity, EntryId, Reason};
use crate::error::CompleteError;
use crate::executor::Executor;
use crate::{LeaseToken, Payload};

const PUBLISHED: &str = "select symphony.mark_metadata_published($1, $2)";
const FAILED: &str = "select retry_count, next_retry_at from symphony.mark_metadata_failed($1, $2, $3)";
const DLQ: &str = "select symphony.mark_metadata_dlq($1, $2, $3)";

/// An entry in status PROCESSING, with its lease.
#[derive(Debug)]
pub struct Claimed {
    lease: Lease,
    /// The entity.
    pub entity: Entity,
    /// Its metadata.
    pub metadata: Payload,
    /// Increases with every entry of the entity, in commit order: microseconds since 1970.
    pub version: i64,
    /// The number of failures so far.
    pub retry_count: i32,
    /// After how many failures it moves to the DLQ.
    pub max_retries: i32,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The lease of a claimed entry, for [`worker::complete_batch`](super::worker::complete_batch).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The entry.
    pub id: EntryId,
    pub(super) token: LeaseToken,
}

/// An entry in status FAILED.
#[derive(Debug)]
pub struct Failed {
    /// The entry.
    pub id: EntryId,
    /// The number of failures so far.
    pub retry_count: i32,
    /// When it is due again; none if no retries are left.
    pub next_retry_at: Option<Timestamp>,
}

impl Claimed {
    /// The entry.
    pub fn id(&self) -> EntryId {
        self.lease.id
    }

    /// Its lease, to complete it in a batch.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// PROCESSING to PUBLISHED, which is terminal: the second store has it.
    ///
    /// # Errors
    ///
    /// See [`CompleteError`]. After an error nothing has changed.
    pub async fn published(self, client: &impl Executor) -> Result<(), CompleteError> {
        let (id, token) = (self.lease.id.0, self.lease.token.0);
        client.fetch_one(PUBLISHED, &[(&id, Type::UUID), (&token, Type::UUID)]).await?;
        Ok(())
    }

    /// PROCESSING to FAILED: counts the failure, and schedules a retry while retries are left.
    ///
    /// # Errors
    ///
    /// See [`CompleteError`]. After an error nothing has changed.
    pub async fn failed(self, client: &impl Executor, reason: &Reason) -> Result<Failed, CompleteError> {
        let (id, token) = (self.lease.id, self.lease.token.0);
        let row = client
            .fetch_one(FAILED, &[(&id.0, Type::UUID), (&token, Type::UUID), (&reason.as_str(), Type::TEXT)])
            .await?;
        Ok(Failed { id, retry_count: row.try_get("retry_count")?, next_retry_at: row.try_get("next_retry_at")? })
    }

    /// PROCESSING to FAILED to DLQ in one step, if no retries are left. DLQ is terminal.
    ///
    /// # Errors
    ///
    /// [`CompleteError::InvalidState`] if retries are left. After an error nothing has changed.
    pub async fn dead_letter(self, client: &impl Executor, reason: &Reason) -> Result<(), CompleteError> {
        dead_letter(client, self.lease.id, Some(self.lease.token.0), reason).await
    }
}

impl Failed {
    /// FAILED to DLQ, whether or not retries are left. DLQ is terminal.
    ///
    /// # Errors
    ///
    /// [`CompleteError::LeaseLost`] if a worker has claimed it again. After an error nothing has changed.
    pub async fn dead_letter(self, client: &impl Executor, reason: &Reason) -> Result<(), CompleteError> {
        dead_letter(client, self.id, None, reason).await
    }
}

pub(super) async fn dead_letter(
    client: &impl Executor,
    id: EntryId,
    token: Option<Uuid>,
    reason: &Reason,
) -> Result<(), CompleteError> {
    let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&id.0, Type::UUID), (&token, Type::UUID), (&reason.as_str(), Type::TEXT)];
    client.fetch_one(DLQ, &arguments).await?;
    Ok(())
}

pub(super) fn claimed(row: &Row) -> Result<Claimed, tokio_postgres::Error> {
    Ok(Claimed {
        lease: Lease {
            id: EntryId(row.try_get("id")?),
            token: LeaseToken::from(row.try_get::<_, Uuid>("claim_token")?),
        },
        entity: Entity::stored(row.try_get("entity_type")?, row.try_get("entity_id")?),
        metadata: row.try_get("metadata")?,
        version: row.try_get("version")?,
        retry_count: row.try_get("retry_count")?,
        max_retries: row.try_get("max_retries")?,
        created_at: row.try_get("created_at")?,
    })
}
