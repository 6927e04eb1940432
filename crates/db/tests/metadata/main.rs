//! The calls of the metadata lane, each tried on a real PostgreSQL: what it does, and what it is refused.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod claimed;
mod fixture;
mod pagination;
mod reader;
mod sizes;
mod versions;
mod worker;
