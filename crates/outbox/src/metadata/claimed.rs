//! A claimed entry, and the moves that its status allows.
//!
//! Each move takes the value, so that no entry is moved twice by one claim; a move that was refused, or whose answer was lost,
//! uses it up as well: what is still claimed comes back by repair. For a login with the role `symphony_executor`.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Entity, EntryId, Reason};
use crate::ask::Ask;
use crate::error::metadata::MoveError;
use crate::{LeaseToken, Payload};

const PUBLISHED: &str = "select symphony.mark_metadata_published($1, $2)";
const FAILED: &str = "select retry_count, next_retry_at from symphony.mark_metadata_failed($1, $2, $3)";
const DLQ: &str = "select symphony.mark_metadata_dlq($1, $2, $3)";

/// An entry that is PROCESSING, and the right to move it on.
#[derive(Debug)]
pub struct Claimed {
    lease: Lease,
    /// The entity.
    pub entity: Entity,
    /// Its metadata.
    pub metadata: Payload,
    /// Rises with every entry of the entity, in the order of commits: microseconds since 1970.
    pub version: i64,
    /// Failures so far.
    pub retry_count: i32,
    /// Failures after which it is not tried again.
    pub max_retries: i32,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The right to end one claim, for whoever ends many in one call: see [`worker::complete_batch`](super::worker::complete_batch).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The entry.
    pub id: EntryId,
    pub(super) token: LeaseToken,
}

/// An entry that is FAILED.
#[derive(Debug)]
pub struct Failed {
    /// The entry.
    pub id: EntryId,
    /// Failures so far.
    pub retry_count: i32,
    /// When it may be claimed again; none where it has no retries left.
    pub next_retry_at: Option<Timestamp>,
}

impl Claimed {
    /// The entry.
    pub fn id(&self) -> EntryId {
        self.lease.id
    }

    /// What ends this claim in a batch.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The second store has it: PROCESSING to PUBLISHED. It ends there.
    ///
    /// # Errors
    ///
    /// See [`MoveError`]. Nothing has changed then.
    pub async fn published(self, client: &impl Ask) -> Result<(), MoveError> {
        let (id, token) = (self.lease.id.0, self.lease.token.0);
        client.ask_one(PUBLISHED, &[(&id, Type::UUID), (&token, Type::UUID)]).await?;
        Ok(())
    }

    /// It did not get there: PROCESSING to FAILED, counted, and due again later while it has retries left.
    ///
    /// # Errors
    ///
    /// See [`MoveError`]. Nothing has changed then.
    pub async fn failed(self, client: &impl Ask, why: &Reason) -> Result<Failed, MoveError> {
        let (id, token) = (self.lease.id, self.lease.token.0);
        let row = client
            .ask_one(FAILED, &[(&id.0, Type::UUID), (&token, Type::UUID), (&why.as_str(), Type::TEXT)])
            .await?;
        Ok(Failed { id, retry_count: row.try_get("retry_count")?, next_retry_at: row.try_get("next_retry_at")? })
    }

    /// It is given up: PROCESSING to FAILED to DLQ, in one step, where no retries are left. It ends there.
    ///
    /// # Errors
    ///
    /// See [`MoveError`]: [`MoveError::WrongStatus`] where it has retries left. Nothing has changed then.
    pub async fn dead_letter(self, client: &impl Ask, why: &Reason) -> Result<(), MoveError> {
        dead_letter(client, self.lease.id, Some(self.lease.token.0), why).await
    }
}

impl Failed {
    /// It is given up, retries or not: FAILED to DLQ. It ends there.
    ///
    /// # Errors
    ///
    /// See [`MoveError`]: somebody may have claimed it again. Nothing has changed then.
    pub async fn dead_letter(self, client: &impl Ask, why: &Reason) -> Result<(), MoveError> {
        dead_letter(client, self.id, None, why).await
    }
}

pub(super) async fn dead_letter(
    client: &impl Ask,
    id: EntryId,
    token: Option<Uuid>,
    why: &Reason,
) -> Result<(), MoveError> {
    let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&id.0, Type::UUID), (&token, Type::UUID), (&why.as_str(), Type::TEXT)];
    client.ask_one(DLQ, &arguments).await?;
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
