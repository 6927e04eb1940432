//! Publishing over sqlx: the same call as [`publisher`](super::publisher), on a connection of sqlx.
//!
//! Give it the transaction that writes the business rows (`&mut transaction` is enough): the event is committed with
//! them or not at all. Statements are not kept on the connection, so a pooler in transaction mode may stand in between.

use sqlx::Row;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;

use super::occurrence::PUBLISH;
use super::{Event, EventId};
use crate::error::event::PublishError;

/// Publishes one event.
///
/// There is no idempotency key: a transaction that is run again after it was committed publishes again.
///
/// # Errors
///
/// See [`PublishError`]. The transaction has failed then, as after any error of PostgreSQL.
///
/// # Example
///
/// ```
/// # use sqlx::Connection;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let database = symphony_proof::kit::scratch::Server::from_env().await?.database().await?;
/// # let mut connection = sqlx::PgConnection::connect(&database.url()).await?;
/// use serde_json::json;
/// use symphony_outbox::event::{Event, publisher_sqlx};
///
/// let mut transaction = connection.begin().await?;
/// // … the business rows …
/// let id = publisher_sqlx::publish(
///     &mut transaction,
///     &Event {
///         aggregate_type: "order".into(),
///         aggregate_id: "order-1".into(),
///         event_type: "OrderPlaced".into(),
///         payload: json!({ "total": "10.50" }).into(),
///     },
/// )
/// .await?;
/// transaction.commit().await?;
/// # let rows: i64 = sqlx::query_scalar("select count(*) from m10_recovery.outbox where id = $1")
/// #     .bind(id.0).fetch_one(&mut connection).await?;
/// # assert_eq!(rows, 1);
/// # connection.close().await?;
/// # database.close().await?;
/// # Ok(())
/// # }
/// ```
pub async fn publish(connection: &mut PgConnection, event: &Event) -> Result<EventId, PublishError> {
    let row = sqlx::query(PUBLISH)
        .bind(&event.aggregate_type)
        .bind(&event.aggregate_id)
        .bind(&event.event_type)
        .bind(Json(event.payload.raw()))
        .persistent(false)
        .fetch_one(connection)
        .await?;
    Ok(EventId(row.try_get("id")?))
}
