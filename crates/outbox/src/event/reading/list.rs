//! Events as people look for them, and the payload of one.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use super::{IS_OURS, State, state};
use crate::error::Fault;
use crate::event::EventId;
use crate::{BatchSize, Payload};

// By the primary key, and no further than it says: what does not fit is passed over, and the last that was looked at is told.
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

/// How many events a page looks at where it was asked for some of them only.
const WALK: i64 = 1000;

/// What to look for. What is left out is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSearch {
    /// What kind of thing it happened to.
    pub aggregate_type: Option<String>,
    /// Which one of that kind.
    pub aggregate_id: Option<String>,
    /// What happened.
    pub event_type: Option<String>,
    /// Whether it is not processed yet.
    pub unprocessed: Option<bool>,
    /// Where a page before this one ended.
    pub before: Option<EventId>,
}

/// A page of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPage {
    /// What fits, the highest number first.
    pub events: Vec<State>,
    /// Where to go on; none where there is no more.
    pub next_before: Option<EventId>,
}

/// At most so many events that fit, the highest number first.
///
/// # Errors
///
/// See [`Fault`].
pub async fn list(
    client: &impl GenericClient,
    search: &EventSearch,
    at_most: BatchSize,
) -> Result<EventPage, Fault> {
    client.batch_execute(IS_OURS).await?;
    let asked = search.aggregate_type.is_some()
        || search.aggregate_id.is_some()
        || search.event_type.is_some()
        || search.unprocessed.is_some();
    let at_most = usize::from(at_most.get());
    let walk = if asked { WALK } else { i64::try_from(at_most).unwrap_or(WALK) + 1 };
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
                (&walk, Type::INT8),
            ],
        )
        .await?;
    let mut page = EventPage { events: Vec::new(), next_before: None };
    for row in &rows {
        let event = state(row)?;
        let last = page.events.last().map(|event| event.id);
        if row.try_get("fits")? {
            if page.events.len() == at_most {
                page.next_before = last;
                return Ok(page);
            }
            page.events.push(event.clone());
        }
        if row.try_get::<_, i64>("place")? == walk {
            page.next_before = Some(event.id);
        }
    }
    Ok(page)
}

/// The payload of an event; none where there is none of that number. For `symphony_auditor`.
///
/// # Errors
///
/// See [`Fault`].
pub async fn payload(client: &impl GenericClient, id: EventId) -> Result<Option<Payload>, Fault> {
    client.batch_execute(IS_OURS).await?;
    let row = client.query_typed_opt(PAYLOAD, &[(&id.0, Type::INT8)]).await;
    let row = row.map_err(|error| Fault::from(error).for_role("symphony_auditor"))?;
    row.map(|row| Ok(row.try_get::<_, Json<Payload>>(0)?.0)).transpose()
}
