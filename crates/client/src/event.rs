//! The event lane: publish domain events of an aggregate, for a broker.
//!
//! In the transaction that writes the business rows:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_testkit::test_database::Server::from_env().await?.database().await?;
//! # let mut client = database.connect().await?;
//! # client.batch_execute("create table orders (id text primary key)").await?;
//! use serde_json::json;
//! use symphony_client::event::{self, Event};
//!
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into orders values ($1)", &[&"order-1"]).await?;
//! let event = Event::new("order", "order-1", "OrderPlaced", json!({ "total": "10.50", "currency": "EUR" }));
//! let id = event::tokio_postgres::publish(&transaction, &event).await?;
//! transaction.commit().await?;
//! # let rows = client.query_one("select count(*) from m10_recovery.outbox o, orders where o.id = $1", &[&id.0]).await?;
//! # assert_eq!(rows.get::<_, i64>(0), 1);
//! # drop(client);
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```

mod message;
#[cfg(feature = "sqlx")]
pub mod sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;

pub use crate::ids::EventId;
pub use message::Event;
