//! The calls of the payment lane, each tried on a real PostgreSQL: what it does, and what it is refused.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod errors;
mod looking;
mod operator;
mod pooling;
mod producer;
#[cfg(feature = "sqlx")]
mod producer_sqlx;
mod rail_lifecycle;
mod reading;
mod schedule;
mod stage;
mod worker;
