//! The metadata lane: metadata of entities, to be copied to a second store.
//!
//! An entry has a status, which moves along five arrows and no other; the database refuses the rest, whoever tries:
//!
//! ```text
//! PENDING ──> PROCESSING ──> PUBLISHED
//!                │  ^
//!                v  │
//!              FAILED ──> DLQ
//! ```
//!
//! Every function here is one call of one SQL function, or one read, in one round trip without a named statement, so
//! that it works behind a pooler in transaction mode. What is allowed is decided by the database.
//!
//! # Creating
//!
//! In the transaction that writes the entity:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_proof::kit::scratch::Server::from_env().await?.database().await?;
//! # let mut client = database.connect().await?;
//! # client.batch_execute("create table documents (id text primary key)").await?;
//! use serde_json::json;
//! use symphony_outbox::metadata::{Entity, Entry, producer};
//!
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into documents values ($1)", &[&"doc-1"]).await?;
//! let entity = Entity::new("document", "doc-1")?;
//! let metadata = json!({ "title": "Contract", "pages": 12 }).into();
//! let id = producer::create(&transaction, &Entry { entity, metadata, max_retries: None }).await?;
//! transaction.commit().await?;
//! # let there = "select count(*) from symphony.metadata_outbox_entries e, documents where e.id = $1";
//! # assert_eq!(client.query_one(there, &[&id.0]).await?.get::<_, i64>(0), 1);
//! # drop(client);
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Moving
//!
//! A claimed entry is a value; its methods are the legal moves, and making one uses it up:
//!
#![cfg_attr(feature = "tokio-postgres", doc = "```")]
#![cfg_attr(not(feature = "tokio-postgres"), doc = "```text")]
//! use symphony_outbox::error::metadata::MoveError;
//! use symphony_outbox::metadata::{Claimed, Reason};
//!
//! async fn finish(claimed: Claimed, client: &tokio_postgres::Client, why: &Reason) -> Result<(), MoveError> {
//!     let failed = claimed.failed(client, why).await?;
//!     if failed.next_retry_at.is_none() {
//!         failed.dead_letter(client, why).await?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! So what the machine has no arrow for does not compile. An entry does not end twice:
//!
#![cfg_attr(feature = "tokio-postgres", doc = "```compile_fail,E0382")]
#![cfg_attr(not(feature = "tokio-postgres"), doc = "```text")]
//! use symphony_outbox::error::metadata::MoveError;
//! use symphony_outbox::metadata::{Claimed, Reason};
//!
//! async fn finish(claimed: Claimed, client: &tokio_postgres::Client, why: &Reason) -> Result<(), MoveError> {
//!     claimed.published(client).await?;
//!     claimed.failed(client, why).await?;
//!     Ok(())
//! }
//! ```
//!
//! A claim cannot be kept beside the one that is used:
//!
#![cfg_attr(feature = "tokio-postgres", doc = "```compile_fail,E0599")]
#![cfg_attr(not(feature = "tokio-postgres"), doc = "```text")]
//! use symphony_outbox::metadata::Claimed;
//!
//! fn two(claimed: Claimed) -> (Claimed, Claimed) {
//!     (claimed.clone(), claimed)
//! }
//! ```
//!
//! What failed is published only after another claim:
//!
#![cfg_attr(feature = "tokio-postgres", doc = "```compile_fail,E0599")]
#![cfg_attr(not(feature = "tokio-postgres"), doc = "```text")]
//! use symphony_outbox::error::metadata::MoveError;
//! use symphony_outbox::metadata::Failed;
//!
//! async fn finish(failed: Failed, client: &tokio_postgres::Client) -> Result<(), MoveError> {
//!     failed.published(client).await
//! }
//! ```
//!
//! # Layout
//!
//! - `status`: the statuses and the five arrows
//! - `entry`: what is created, checked before the database is asked
//! - `producer`, `producer_sqlx`: creating entries, over either driver
//! - `claimed`: a claimed entry and its moves
//! - `worker`: claiming, ending many claims, repair
//! - `reading`: what an entity has, one entry, totals

mod entry;
mod status;

#[cfg(feature = "tokio-postgres")]
mod claimed;
#[cfg(feature = "tokio-postgres")]
pub mod producer;
#[cfg(feature = "sqlx")]
pub mod producer_sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod reading;
#[cfg(feature = "tokio-postgres")]
pub mod worker;

#[cfg(feature = "tokio-postgres")]
pub use claimed::{Claimed, Failed, Lease};
pub use entry::{Entity, Entry, EntryId, Invalid, Reason};
pub use status::Status;
