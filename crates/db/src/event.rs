//! The event lane for its worker and its readers. Producers publish through `symphony-client`.
//!
//! - [`worker`]: claims events and records their outcomes
//! - [`reader`]: totals, one event, its attempts

mod identity;
pub mod reader;
pub mod worker;

pub use identity::ProcessorId;
pub use symphony_client::event::{Event, EventId};
