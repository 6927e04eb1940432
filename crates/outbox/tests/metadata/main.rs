//! The calls of the metadata lane, each tried on a real PostgreSQL: what it does, and what it is refused.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod claimed;
mod looking;
mod producer;
#[cfg(feature = "sqlx")]
mod producer_sqlx;
mod reading;
mod sizes;
mod stage;
mod versions;
mod worker;
