//! The metadata lane for its worker and its readers. Producers create entries through `symphony-client`.
//!
//! The database allows five transitions of an entry's status and refuses all others:
//!
//! ```text
//! PENDING ──> PROCESSING ──> PUBLISHED
//!                │  ^
//!                v  │
//!              FAILED ──> DLQ
//! ```
//!
//! # Typed transitions
//!
//! A claimed entry is a value; its methods are the legal transitions, and each consumes it:
//!
//! ```
//! use symphony_db::error::CompleteError;
//! use symphony_db::metadata::{Claimed, Reason};
//!
//! async fn finish(claimed: Claimed, client: &tokio_postgres::Client, why: &Reason) -> Result<(), CompleteError> {
//!     let failed = claimed.failed(client, why).await?;
//!     if failed.next_retry_at.is_none() {
//!         failed.dead_letter(client, why).await?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! So a transition that the state machine forbids does not compile. An entry cannot end twice:
//!
//! ```compile_fail,E0382
//! use symphony_db::error::CompleteError;
//! use symphony_db::metadata::{Claimed, Reason};
//!
//! async fn finish(claimed: Claimed, client: &tokio_postgres::Client, why: &Reason) -> Result<(), CompleteError> {
//!     claimed.published(client).await?;
//!     claimed.failed(client, why).await?;
//!     Ok(())
//! }
//! ```
//!
//! A claim cannot be cloned and used twice:
//!
//! ```compile_fail,E0599
//! use symphony_db::metadata::Claimed;
//!
//! fn two(claimed: Claimed) -> (Claimed, Claimed) {
//!     (claimed.clone(), claimed)
//! }
//! ```
//!
//! A failed entry can be published only after another claim:
//!
//! ```compile_fail,E0599
//! use symphony_db::error::CompleteError;
//! use symphony_db::metadata::Failed;
//!
//! async fn finish(failed: Failed, client: &tokio_postgres::Client) -> Result<(), CompleteError> {
//!     failed.published(client).await
//! }
//! ```
//!
//! # Layout
//!
//! - `status`: the statuses and the five transitions
//! - `claimed`: a claimed entry and its transitions
//! - [`worker`]: claims, completes many claims at once, repairs
//! - [`reader`]: the entries of an entity, one entry, totals

mod claimed;
pub mod reader;
mod reason;
mod status;
pub mod worker;

pub use claimed::{Claimed, Failed, Lease};
pub use reason::{InvalidReason, Reason};
pub use status::Status;
pub use symphony_client::metadata::{Entity, Entry, EntryId};
