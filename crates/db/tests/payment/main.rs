//! The calls of the payment lane, each tried on a real PostgreSQL: what it does, and what it is refused.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod clock_steps;
mod errors;
mod first_attempts;
mod fixture;
mod history;
mod operator;
mod pagination;
mod pooling;
mod rail_lifecycle;
mod reader;
mod schedule;
mod worker;
