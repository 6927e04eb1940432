//! Publishes events over sqlx, with the same call as [`tokio_postgres`](mod@super::tokio_postgres).
//!
//! Pass the transaction that writes the business rows (`&mut transaction`): the event is committed with them or not at
//! all. No statement stays prepared on the connection, so a pooler in transaction mode may sit in between.

use sqlx::Row;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;

use super::message::PUBLISH;
use super::{Event, EventId};
use crate::error::PublishError;

/// Publishes one event.
///
/// There is no idempotency key: running a transaction again after its commit publishes the event again.
///
/// # Errors
///
/// See [`PublishError`]. The transaction has then failed, as after any PostgreSQL error.
///
/// # Example
///
/// ```
/// # use sqlx::Connection;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let database = symphony_testkit::test_database::Server::from_env().await?.database().await?;
/// # let mut connection = sqlx::PgConnection::connect(&database.url()).await?;
/// use serde_json::json;
/// use symphony_client::event::{self, Event};
///
/// let mut transaction = connection.begin().await?;
/// // … the business rows …
/// let event = Event::new("order", "order-1", "OrderPlaced", json!({ "total": "10.50" }));
/// let id = event::sqlx::publish(&mut transaction, &event).await?;
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
