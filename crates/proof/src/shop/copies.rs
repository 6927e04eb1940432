//! The second database of the shop, where copies of profiles are kept: a table as `docs/sinks/metadata-postgres.md` has it, somebody who may
//! write it, and a reader who is neither they nor the store.

use tokio_postgres::{Client, Error, GenericClient};

use crate::kit::audit::metadata::Record;

/// The program that writes copies, and may do nothing else.
pub const COPIER: &str = "copier";
/// The name of the database.
pub const DATABASE: &str = "copies";

const CREATE: &str = "create database copies";
const OPEN: &str = "
    create table symphony_metadata (
      entity_type text        not null,
      entity_id   text        not null,
      metadata    jsonb       not null,
      version     bigint      not null,
      entry_id    uuid        not null,
      updated_at  timestamptz not null,
      primary key (entity_type, entity_id));
    create role copier login;
    grant select, insert, update on symphony_metadata to copier;";
const READ: &str = "
    select m.entity_type || '/' || m.entity_id as entity, m.version, m.entry_id::text, m.metadata::text
    from symphony_metadata m";

/// Makes the second database. What is in it, [`open`] makes. For a superuser.
pub async fn create(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(CREATE).await
}

/// Makes the table for copies there. For a superuser of the second database.
pub async fn open(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(OPEN).await
}

/// All that is in the second database. For the same.
pub async fn read(superuser: &impl GenericClient) -> Result<Vec<Record>, Error> {
    let record = |row: &tokio_postgres::Row| {
        Ok(Record {
            entity: row.try_get("entity")?,
            version: row.try_get("version")?,
            entry_id: row.try_get("entry_id")?,
            metadata: row.try_get("metadata")?,
        })
    };
    superuser.query_typed(READ, &[]).await?.iter().map(record).collect()
}
