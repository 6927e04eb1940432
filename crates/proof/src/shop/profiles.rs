//! What the shop knows of whom its orders are for: a profile each, which changes with each order and is copied to a second store.
//!
//! A profile and the entry of metadata that says what it is now are written in the transaction of the order.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::json;
use symphony_outbox::Payload;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient};

use crate::kit::audit::metadata::Entry;

const OPEN: &str = "
    create table profiles (
      kind           text    not null,
      participant_id text    not null,
      orders         bigint  not null,
      ordered        numeric not null,
      last_order     text    not null,
      primary key (kind, participant_id));
    grant insert, select, update on profiles to till;";
// Whoever holds the row is next: later orders of this profile wait until this one ends.
const CHANGE: &str = "
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
const TOLD: &str = "
    select o.id::text, o.entity_type, o.entity_type || '/' || o.entity_id as entity,
           (extract(epoch from o.created_at) * 1000000)::int8 as version, o.status::text, o.metadata::text,
           o.metadata ->> 'last_order' as order_id, o.retry_count
    from symphony.metadata_outbox o
    order by o.created_at, o.id";
// The contract lets repair take a dead worker's entries after 5 minutes.
const BURY: &str = "
    update symphony.metadata_outbox
    set processing_started_at = processing_started_at - interval '1 hour'
    where status = 'PROCESSING'
      and processing_started_at > now() - interval '5 minutes'
      and claimed_by = any ($1)";

/// What is counted while entries are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Entries that were committed.
    pub committed: i64,
    /// Those of them that have not ended.
    pub waiting: i64,
    /// Those that were given up.
    pub dead: i64,
    /// How long ago the oldest of those that wait was created.
    pub oldest_ms: i64,
}

/// An entry as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Itself.
    pub entry: Entry,
    /// The type of its entity, by which it is routed.
    pub entity_type: String,
    /// The order that it came with.
    pub order_id: Option<String>,
    /// How often it failed.
    pub retries: i32,
}

pub(super) async fn open(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(OPEN).await
}

/// Changes the profile that an order is for: the business side of a transaction. Gives the metadata that says what it is now.
pub async fn change(
    till: &impl GenericClient,
    kind: &str,
    participant_id: &str,
    order_id: &str,
    amount: &str,
) -> Result<Payload, Error> {
    let values: [(&(dyn ToSql + Sync), Type); 4] =
        [(&kind, Type::TEXT), (&participant_id, Type::TEXT), (&order_id, Type::TEXT), (&amount, Type::TEXT)];
    let row = till.query_typed_one(CHANGE, &values).await?;
    let (orders, ordered): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
    Ok(json!({ "orders": orders, "ordered": ordered, "last_order": order_id }).into())
}

/// What each profile is, as its copy should say it, by `kind/id`.
pub async fn all(client: &impl GenericClient) -> Result<BTreeMap<String, String>, Error> {
    let profile = |row: &tokio_postgres::Row| Ok((row.try_get("entity")?, row.try_get("metadata")?));
    client.query_typed(PROFILES, &[]).await?.iter().map(profile).collect()
}

/// Counts. For a superuser.
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
pub async fn told(superuser: &impl GenericClient) -> Result<Vec<Told>, Error> {
    let told = |row: &tokio_postgres::Row| {
        Ok(Told {
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
    superuser.query_typed(TOLD, &[]).await?.iter().map(told).collect()
}

/// Makes the claims of dead workers older than 5 minutes, so that the next repair takes them; how many those were. Only for those that are
/// known to be dead. For a superuser.
pub async fn bury(superuser: &impl GenericClient, workers: &[String]) -> Result<u64, Error> {
    superuser.execute_typed(BURY, &[(&workers, Type::TEXT_ARRAY)]).await
}
