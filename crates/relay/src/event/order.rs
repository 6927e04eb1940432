//! The order guarantee within an aggregate. Events that this process holds wait for their turn in `key_order`. With strict order, a
//! claim returns only events that directly follow a processed one or one of the same claim, and the lane checks again
//! before it publishes.

/// What is promised about the order within an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Events that this process holds leave by number, one at a time. One that failed is overtaken.
    Held,
    /// No event leaves while an earlier one of its aggregate is unprocessed, whoever holds that.
    Aggregate,
}
