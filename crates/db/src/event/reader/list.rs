//! Searches events, and reads the payload of one.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use super::{CHECK_OWNER, EventState, state};
use crate::error::DatabaseError;
use crate::event::EventId;
use crate::{BatchSize, Page, Payload};

// Walks the primary key and examines at most $6 events. Returns the matching ones, and the last examined one as a
// cursor.
const LIST: &str = "\
    select w.id, w.aggregate_type, w.aggregate_id, w.event_type, w.created_at, w.processed_at, w.retry_count, \
           w.process_after, w.claimed_at, w.claimed_by, w.fits, w.place \
    from (select o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.created_at, o.processed_at, o.retry_count, \
                 o.process_after, o.claimed_at, o.claimed_by, \
                 ($2::text is null or o.aggregate_type = $2) and ($3::text is null or o.aggregate_id = $3) \
                   and ($4::text is null or o.event_type = $4) and ($5::bool is null or (o.processed_at is null) = $5) as fits, \
                 row_number() over (order by o.id desc) as place \
          from m10_recovery.outbox o \
          where o.id < $1 \
          order by o.id desc \
          limit $6) w \
    where w.fits or w.place = $6 \
    order by w.place";
const PAYLOAD: &str = "select payload from m10_recovery.outbox where id = $1";

/// How many events a page with a filter examines.
const EXAMINE_LIMIT: i64 = 1000;

/// A search; a field that is none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSearch {
    /// The aggregate type.
    pub aggregate_type: Option<String>,
    /// The aggregate id.
    pub aggregate_id: Option<String>,
    /// The event type.
    pub event_type: Option<String>,
    /// Whether it is unprocessed.
    pub unprocessed: Option<bool>,
    /// The cursor of the previous page.
    pub before: Option<EventId>,
}

/// A page of at most `at_most` matching events, highest number first.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn list(
    client: &impl GenericClient,
    search: &EventSearch,
    at_most: BatchSize,
) -> Result<Page<EventState, EventId>, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let filtered = search.aggregate_type.is_some()
        || search.aggregate_id.is_some()
        || search.event_type.is_some()
        || search.unprocessed.is_some();
    let at_most = usize::from(at_most.get());
    let examine = if filtered { EXAMINE_LIMIT } else { i64::try_from(at_most).unwrap_or(EXAMINE_LIMIT) + 1 };
    let before = search.before.map_or(i64::MAX, |id| id.0);
    let rows = client
        .query_typed(
            LIST,
            &[
                (&before, Type::INT8),
                (&search.aggregate_type, Type::TEXT),
                (&search.aggregate_id, Type::TEXT),
                (&search.event_type, Type::TEXT),
                (&search.unprocessed, Type::BOOL),
                (&examine, Type::INT8),
            ],
        )
        .await?;
    let mut page: Page<EventState, EventId> = Page { rows: Vec::new(), examined: None, next: None };
    for row in &rows {
        let event = state(row)?;
        let last = page.rows.last().map(|event| event.id);
        if row.try_get("fits")? {
            if page.rows.len() == at_most {
                page.next = last;
                return Ok(page);
            }
            page.rows.push(event.clone());
        }
        if row.try_get::<_, i64>("place")? == examine {
            page.next = Some(event.id);
        }
    }
    Ok(page)
}

/// The payload of an event; none if there is no such event. For `symphony_auditor`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn payload(client: &impl GenericClient, id: EventId) -> Result<Option<Payload>, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let row = client.query_typed_opt(PAYLOAD, &[(&id.0, Type::INT8)]).await;
    let row = row.map_err(|error| DatabaseError::from(error).for_role("symphony_auditor"))?;
    row.map(|row| Ok(row.try_get::<_, Json<Payload>>(0)?.0)).transpose()
}
