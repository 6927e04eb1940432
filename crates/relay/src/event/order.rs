//! The order guarantee within an aggregate (FIFO).
//!
//! Events that this process holds wait for their turn in `key_order`. With [`Order::Aggregate`], a claim returns only
//! events that directly follow a processed one or one of the same claim, and the lane checks again before it
//! publishes.

/// The order guarantee within an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Events that this process holds are published by number, one at a time. A failed event does not block later ones.
    Held,
    /// No event is published while an earlier one of its aggregate is unprocessed, by any relayer.
    Aggregate,
}
