//! The second store of the shop: another database with the table of `docs/sinks/metadata-postgres.md`, a login that
//! writes it, and an independent reader.

use tokio_postgres::{Client, Error, GenericClient};

use crate::reconciliation::metadata::Record;

/// The login that writes the table, and may do nothing else.
pub const WRITER: &str = "copier";
/// The name of the database.
pub const DATABASE: &str = "copies";

const CREATE_DATABASE: &str = "create database copies";
const CREATE_TABLE: &str = "
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

/// Creates the second database. For a superuser.
pub async fn create_database(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(CREATE_DATABASE).await
}

/// Creates the table and its login. For a superuser of the second database.
pub async fn create_table(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(CREATE_TABLE).await
}

/// All records of the second database. For a superuser.
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
