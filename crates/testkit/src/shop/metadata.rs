//! The metadata of the shop: one profile per participant, which changes with each order and is published to a second
//! store.
//!
//! The transaction of an order writes the profile and its metadata entry.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use symphony_db::Payload;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient};

use crate::reconciliation::metadata::Entry;

const CREATE: &str = "
    create table profiles (
      kind           text    not null,
      participant_id text    not null,
      orders         bigint  not null,
      ordered        numeric not null,
      last_order     text    not null,
      primary key (kind, participant_id));
    grant insert, select, update on profiles to till;";
// The row lock serialises the orders of one profile.
const UPDATE_PROFILE: &str = "
    insert into profiles as p (kind, participant_id, orders, ordered, last_order)
    values ($1, $2, 1, $4::text::numeric, $3)
    on conflict (kind, participant_id) do update
    set orders = p.orders + 1,
        ordered = p.ordered + excluded.ordered,
        last_order = excluded.last_order
    returning p.orders, p.ordered::text";
const PROFILES: &str = "
    select p.kind || '/' || p.participant_id as entity,
           jsonb_build_object('orders', p.orders, 'ordered', p.ordered::text, 'last_order', p.last_order)::text as metadata
    from profiles p";
const NUMBERS: &str = "
    select count(*) as committed,
           count(*) filter (where o.status not in ('PUBLISHED', 'DLQ')) as waiting,
           count(*) filter (where o.status = 'DLQ') as dead,
           coalesce(extract(epoch from now() - min(o.created_at) filter (where o.status not in ('PUBLISHED', 'DLQ'))) * 1000, 0)::int8
             as oldest_ms
    from symphony.metadata_outbox o";
const ENTRIES: &str = "
    select o.id::text, o.entity_type, o.entity_type || '/' || o.entity_id as entity,
           (extract(epoch from o.created_at) * 1000000)::int8 as version, o.status::text, o.metadata::text,
           o.metadata ->> 'last_order' as order_id, o.retry_count
    from symphony.metadata_outbox o
    order by o.created_at, o.id";
// By contract repair takes a claim after 5 minutes.
const EXPIRE_CLAIMS: &str = "
    update symphony.metadata_outbox
    set processing_started_at = processing_started_at - interval '1 hour'
    where status = 'PROCESSING'
      and processing_started_at > now() - interval '5 minutes'
      and claimed_by = any ($1)";

/// Counts of the metadata lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Entries that were committed.
    pub committed: i64,
    /// Entries that have not ended.
    pub waiting: i64,
    /// Entries in the DLQ.
    pub dead: i64,
    /// The age of the oldest entry that has not ended.
    pub oldest_ms: i64,
}

/// A row of the metadata outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedEntry {
    /// The entry.
    pub entry: Entry,
    /// The type of its entity, by which it is routed.
    pub entity_type: String,
    /// The order of the entry.
    pub order_id: Option<String>,
    /// How often it failed.
    pub retries: i32,
}

pub(super) async fn create(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(CREATE).await
}

/// Updates the profile of a participant: the business row of a transaction. Returns its new metadata.
pub async fn update_profile(
    producer: &impl GenericClient,
    kind: &str,
    participant_id: &str,
    order_id: &str,
    amount: &str,
) -> Result<Payload, Error> {
    let values: [(&(dyn ToSql + Sync), Type); 4] =
        [(&kind, Type::TEXT), (&participant_id, Type::TEXT), (&order_id, Type::TEXT), (&amount, Type::TEXT)];
    let row = producer.query_typed_one(UPDATE_PROFILE, &values).await?;
    let (orders, ordered): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
    Ok(json!({ "orders": orders, "ordered": ordered, "last_order": order_id }).into())
}

/// The expected metadata of each profile, by `kind/id`.
pub async fn profiles(client: &impl GenericClient) -> Result<BTreeMap<String, String>, Error> {
    let profile = |row: &tokio_postgres::Row| Ok((row.try_get("entity")?, row.try_get("metadata")?));
    client.query_typed(PROFILES, &[]).await?.iter().map(profile).collect()
}

/// Reads the counts. For a superuser.
pub async fn numbers(superuser: &impl GenericClient) -> Result<Numbers, Error> {
    let row = superuser.query_typed_one(NUMBERS, &[]).await?;
    Ok(Numbers {
        committed: row.try_get("committed")?,
        waiting: row.try_get("waiting")?,
        dead: row.try_get("dead")?,
        oldest_ms: row.try_get("oldest_ms")?,
    })
}

/// All entries, the oldest first. For a superuser.
pub async fn committed(superuser: &impl GenericClient) -> Result<Vec<CommittedEntry>, Error> {
    let entry = |row: &tokio_postgres::Row| {
        Ok(CommittedEntry {
            entry: Entry {
                id: row.try_get("id")?,
                entity: row.try_get("entity")?,
                version: row.try_get("version")?,
                status: row.try_get("status")?,
                metadata: row.try_get("metadata")?,
            },
            entity_type: row.try_get("entity_type")?,
            order_id: row.try_get("order_id")?,
            retries: row.try_get("retry_count")?,
        })
    };
    superuser.query_typed(ENTRIES, &[]).await?.iter().map(entry).collect()
}

/// Lets the claims of these dead workers expire now, so that the next repair takes them. Returns how many.
/// For a superuser.
pub async fn expire_claims(superuser: &impl GenericClient, workers: &[String]) -> Result<u64, Error> {
    superuser.execute_typed(EXPIRE_CLAIMS, &[(&workers, Type::TEXT_ARRAY)]).await
}
