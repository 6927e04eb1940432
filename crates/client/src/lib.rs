#![doc = include_str!("../README.md")]
//!
//! # Layout
//!
//! - [`payment`], [`event`], [`metadata`]: the types and calls of each lane, with one module per driver
//! - [`error`]: why a call failed
//! - [`Payload`]: JSON that keeps every digit of an amount

pub mod error;
pub mod event;
mod ids;
pub mod metadata;
mod payload;
pub mod payment;

pub use ids::{EntryId, EventId, OutboxId};
pub use payload::Payload;
