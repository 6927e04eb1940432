//! The calls of the event lane, each tried on a real PostgreSQL: what it does, and what it is refused.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod abandoned;
mod fixture;
mod order;
mod pagination;
mod reader;
mod worker;
