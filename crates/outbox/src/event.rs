//! The event lane: domain events, kept by aggregate, published to brokers.
//!
//! Every function here is one call of one SQL function, or one read, in one round trip without a named statement, so
//! that it works behind a pooler in transaction mode. What is allowed is decided by the database.
//!
//! # Publishing
//!
//! In the transaction that writes the business rows:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_proof::kit::scratch::Server::from_env().await?.database().await?;
//! # let mut client = database.connect().await?;
//! # client.batch_execute("create table orders (id text primary key)").await?;
//! use serde_json::json;
//! use symphony_outbox::event::{Event, publisher};
//!
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into orders values ($1)", &[&"order-1"]).await?;
//! let id = publisher::publish(
//!     &transaction,
//!     &Event {
//!         aggregate_type: "order".into(),
//!         aggregate_id: "order-1".into(),
//!         event_type: "OrderPlaced".into(),
//!         payload: json!({ "total": "10.50", "currency": "EUR" }).into(),
//!     },
//! )
//! .await?;
//! transaction.commit().await?;
//! # let rows = client.query_one("select count(*) from m10_recovery.outbox o, orders where o.id = $1", &[&id.0]).await?;
//! # assert_eq!(rows.get::<_, i64>(0), 1);
//! # drop(client);
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - `publisher`, `publisher_sqlx`: publishing, over either driver
//! - `worker`: claiming events and saying how they went
//! - `reading`: totals, one event, what was said about it

mod identity;
mod occurrence;

#[cfg(feature = "tokio-postgres")]
pub mod publisher;
#[cfg(feature = "sqlx")]
pub mod publisher_sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod reading;
#[cfg(feature = "tokio-postgres")]
pub mod worker;

pub use identity::{EventId, ProcessorId};
pub use occurrence::Event;
