//! In which order the events of one aggregate leave this process. Those that it holds wait for each other in `key_order`. Where order is strict, the
//! database hands out only what comes directly behind what is processed or in the same claim, and is asked once more before an event leaves.

/// What is promised about the order within an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Events that this process holds leave by number, one at a time. One that failed is overtaken.
    Held,
    /// No event leaves while an earlier one of its aggregate is unprocessed, whoever holds that.
    Aggregate,
}
