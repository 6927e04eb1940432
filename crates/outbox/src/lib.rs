//! What a producer links: Symphony's SQL functions with names and types.
//!
//! A business transaction writes its own rows and, in the same commit, one row of the outbox. From then on the
//! database alone decides what happens to that row. So there is no connection, pool or transaction in this crate:
//! each call takes the caller's own.
//!
//! # With tokio-postgres
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_proof::kit::scratch::Server::from_env().await?.database().await?;
//! # let mut client = database.connect().await?;
//! # client.batch_execute("
//! #     create table orders (id text primary key, total_cents bigint not null);
//! #     select symphony.register_payment_rail('sepa', '{}', 'docs', 'an example')").await?;
//! use serde_json::json;
//! use symphony_outbox::payment::{Instruction, producer};
//!
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into orders values ($1, $2)", &[&"order-1", &1050_i64]).await?;
//! let enqueued = producer::enqueue(
//!     &transaction,
//!     &Instruction {
//!         instruction_id: "order-1".into(),
//!         participant_id: "shop-7".into(),
//!         idempotency_key: "order-1/pay".into(),
//!         rail_type: "sepa".into(),
//!         payload: json!({ "amount": "10.50", "currency": "EUR" }).into(),
//!     },
//! )
//! .await?;
//! transaction.commit().await?;
//!
//! assert_eq!(enqueued.sequence_id, 1);
//! assert!(!enqueued.replayed);
//! # let rows = client.query_one("select count(*) from symphony.payment_outbox_pending, orders", &[]).await?;
//! # assert_eq!(rows.get::<_, i64>(0), 1);
//! # drop(client);
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # With sqlx
//!
//! The same with the feature `sqlx`, which chooses no TLS:
//!
#![cfg_attr(feature = "sqlx", doc = "```")]
#![cfg_attr(not(feature = "sqlx"), doc = "```text")]
//! # use sqlx::Connection;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_proof::kit::scratch::Server::from_env().await?.database().await?;
//! # let mut connection = sqlx::PgConnection::connect(&database.url()).await?;
//! # sqlx::raw_sql("
//! #     create table orders (id text primary key, total_cents bigint not null);
//! #     select symphony.register_payment_rail('sepa', '{}', 'docs', 'an example')")
//! #     .execute(&mut connection).await?;
//! use serde_json::json;
//! use symphony_outbox::payment::{Instruction, producer_sqlx};
//!
//! let mut transaction = connection.begin().await?;
//! sqlx::query("insert into orders values ($1, $2)")
//!     .bind("order-1")
//!     .bind(1050_i64)
//!     .execute(&mut *transaction)
//!     .await?;
//! let enqueued = producer_sqlx::enqueue(
//!     &mut transaction,
//!     &Instruction {
//!         instruction_id: "order-1".into(),
//!         participant_id: "shop-7".into(),
//!         idempotency_key: "order-1/pay".into(),
//!         rail_type: "sepa".into(),
//!         payload: json!({ "amount": "10.50", "currency": "EUR" }).into(),
//!     },
//! )
//! .await?;
//! transaction.commit().await?;
//!
//! assert_eq!(enqueued.sequence_id, 1);
//! assert!(!enqueued.replayed);
//! # let rows: i64 = sqlx::query_scalar("select count(*) from symphony.payment_outbox_pending, orders")
//! #     .fetch_one(&mut connection).await?;
//! # assert_eq!(rows, 1);
//! # connection.close().await?;
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # With anything else
//!
//! The SQL function is the interface, and this crate has no way in that any other language lacks:
//!
//! ```sql
//! begin;
//! insert into orders values ('order-1', 1050);
//! select outbox_id, sequence_id, created_at, replayed
//! from symphony.enqueue_payment_outbox(
//!   'order-1', 'shop-7', 'order-1/pay', 'sepa', '{"amount": "10.50", "currency": "EUR"}');
//! commit;
//! ```
//!
//! # When it fails
//!
//! Errors are sorted by what the caller can do next: see [`error`]. Should the connection be lost at the commit,
//! nobody knows whether the transaction took place. Run all of it again with the same idempotency key: what was
//! committed is answered with [`replayed`](payment::Enqueued::replayed), and nothing is paid twice.
//!
//! # Layout
//!
//! - [`payment`]: the payment lane, by who asks: its producer, worker, operator, and whoever reads
//! - [`event`]: the event lane, by who asks: its publisher, worker, and whoever reads
//! - [`metadata`]: the metadata lane, by who asks: its producer, worker, and whoever reads
//! - [`ask`]: what the calls of a worker go through
//! - `clock`: what time the database has
//! - [`error`]: what can go wrong, and what to do then
//! - `pulse`: how a lane went lately
//! - `relayers`: which relayers are there
//! - `rights`: what a login may do
//! - `listener`: LISTEN/NOTIFY for an idle relayer
//! - `ids`: names that must not be mistaken for one another
//! - `payload`: JSON that is carried and not interpreted
//! - `words`: enums whose variants are words of the database
//!
//! # Features
//!
//! - `tokio-postgres` (on by default): everything, over that driver
//! - `sqlx`: the calls of producers and publishers, over sqlx
//! - `admin`: the installer

#[cfg(feature = "tokio-postgres")]
pub mod ask;
#[cfg(feature = "admin")]
pub mod clock;
mod ids;
#[cfg(feature = "admin")]
pub mod listener;
mod payload;
#[cfg(feature = "tokio-postgres")]
mod pulse;
mod words;

#[cfg(feature = "admin")]
pub mod connect;
pub mod error;
pub mod event;
pub mod metadata;
pub mod payment;
#[cfg(feature = "admin")]
pub mod relayers;
#[cfg(feature = "admin")]
pub mod rights;
#[cfg(feature = "admin")]
pub mod schema;

pub use ids::{BatchSize, BatchSizeError, LeaseToken, OutboxId, WorkerId};
pub use payload::Payload;
#[cfg(feature = "tokio-postgres")]
pub use pulse::LanePulse;
pub use words::UnknownWord;
