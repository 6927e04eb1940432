//! The proofs that need a database and nothing else, as a library: the test suite runs them, and so does
//! `symphony prove`.
//!
//! # Layout
//!
//! - [`proofs`] holds the proofs, each of which tries to break one promise
//! - [`kit`] gives each proof its database: a private PostgreSQL, and a scratch database on it; and what it takes to
//!   break the world around one
//! - [`shop`] is a small business beside the outbox, for demonstrations
//! - [`track`] is what a benchmark sees of the database that it runs on

pub mod kit;
pub mod proofs;
pub mod shop;
pub mod track;
