//! A service that learns how its payments ended, from the events that a rail publishes to NATS JetStream.
//!
//! The rail has `publish_outcomes`, and a relayer sends events of the aggregate type `payment` to the subject `payments`:
//! see docs/lanes/payment.md. Run it with the name of the stream that has this subject:
//!
//! ```sh
//! DATABASE_URL=postgres://localhost/shop NATS_URL=nats://localhost STREAM=EVENTS cargo run --example follow_payments
//! ```

use std::error::Error;

use async_nats::jetstream::{self, AckKind, consumer::pull};
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio_postgres::{Client, NoTls};

/// What the service keeps: its orders, and the events that it has applied.
pub const TABLES: &str = "\
    create table if not exists orders (id text primary key, payment text not null default 'enqueued', bank_reference text);
    create table if not exists applied_events (event_id bigint primary key)";

/// The payload of a payment event, as far as this service needs it.
#[derive(Deserialize)]
struct PaymentEnded {
    /// The service enqueues a payment under the id of its order.
    instruction_id: String,
    rail_reference: Option<String>,
}

/// Applies payment events to the orders, until the connection ends.
///
/// Delivery is at least once: an event is applied in one transaction with its id, and acknowledged after the commit.
pub async fn follow(mut database: Client, nats: async_nats::Client, stream: &str) -> Result<(), Box<dyn Error>> {
    database.batch_execute(TABLES).await?;
    let stream = jetstream::new(nats).get_stream(stream).await?;
    let settings = pull::Config { durable_name: Some("orders".to_owned()), ..pull::Config::default() };
    let consumer = stream.get_or_create_consumer("orders", settings).await?;
    let mut messages = consumer.messages().await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        let header = |name: &str| message.headers.as_ref()?.get(name).map(ToString::to_string);
        let (Some(id), Some(kind)) = (header("ce-id"), header("ce-type")) else {
            // No CloudEvent: it will never be one.
            message.ack_with(AckKind::Term).await.map_err(|error| error.to_string())?;
            continue;
        };
        apply(&mut database, id.parse()?, &kind, &message.payload).await?;
        message.ack().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn apply(database: &mut Client, id: i64, kind: &str, payload: &[u8]) -> Result<(), Box<dyn Error>> {
    let state = match kind {
        "payment.dispatched" => "paid",
        "payment.failed" => "failed",
        // An operator is finding out: payment.dispatched or payment.failed follows.
        "payment.outcome_unknown" => "in clarification",
        "payment.cancelled" => "cancelled",
        _ => return Ok(()),
    };
    let ended: PaymentEnded = serde_json::from_slice(payload)?;
    let transaction = database.transaction().await?;
    let first = "insert into applied_events values ($1) on conflict do nothing";
    if transaction.execute(first, &[&id]).await? == 1 {
        let update = "update orders set payment = $2, bank_reference = coalesce($3, bank_reference) where id = $1";
        transaction.execute(update, &[&ended.instruction_id, &state, &ended.rail_reference]).await?;
    }
    transaction.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("set {name}"));
    // Use a TLS connector, such as tokio-postgres-rustls, unless the server is on this host.
    let (database, connection) = tokio_postgres::connect(&variable("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(connection);
    let nats = async_nats::connect(variable("NATS_URL")?).await?;
    follow(database, nats, &variable("STREAM")?).await
}
