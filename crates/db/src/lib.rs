//! Symphony's schema and typed calls: every statement of the relayer, the CLI and the console.
//!
//! This crate decides nothing. Each call is one SQL function or one view, in one round trip. Producers do not link this
//! crate: they use `symphony-client`, whose ids, payloads and error types this crate shares.
//!
//! # Layout
//!
//! - [`schema`]: installs, upgrades and verifies the schema, which is compiled in from `schema/`
//! - [`connect`]: addresses, TLS and sessions
//! - [`payment`], [`event`], [`metadata`]: each lane's calls, for its worker, its operator and its readers
//! - [`claim_session`]: the session whose end shows that a relayer is gone
//! - [`epoch`]: which history of the data a server has
//! - [`error`]: why a call failed, by what the caller can do next
//! - [`executor`]: the client or session that runs a worker's calls
//! - [`listener`]: LISTEN/NOTIFY for an idle relayer
//! - [`locks`]: which session waits for a lock on a table of ours
//! - [`relayers`]: which relayers are connected
//! - [`roles`]: which of Symphony's roles a login holds
//! - [`retention`]: how long ended rows are kept, and their removal
//! - [`clock`]: the database's time

pub mod claim_session;
pub mod clock;
pub mod connect;
pub mod epoch;
pub mod error;
pub mod event;
pub mod executor;
mod ids;
mod lane_stats;
pub mod listener;
pub mod locks;
pub mod metadata;
mod page;
pub mod payment;
pub mod relayers;
pub mod retention;
pub mod roles;
pub mod schema;
mod text_enum;

pub use ids::{BatchSize, BatchSizeError, LeaseToken, WorkerId};
pub use lane_stats::LaneStats;
pub use page::Page;
pub use symphony_client::{OutboxId, Payload};
pub use text_enum::UnknownValue;
