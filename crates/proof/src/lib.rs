//! The proofs that need a database and nothing else, as a library: the test suite runs them, and so does
//! `symphony prove`.
//!
//! # Layout
//!
//! - [`shop`]: a small business beside the outbox, for demonstrations
//! - [`kit`] gives each proof its database: a private PostgreSQL, and a scratch database on it.

pub mod kit;
pub mod shop;
