//! The calls of producers against a real PostgreSQL, over both drivers: what they do, and what the database refuses.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod event;
mod event_sqlx;
mod fixture;
mod metadata;
mod metadata_sqlx;
mod payment;
mod payment_sqlx;
