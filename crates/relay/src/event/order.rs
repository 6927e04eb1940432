//! In which order the events of one aggregate leave this process. Those that it holds wait for each other in
//! `queues`; for those that others hold the database is asked.

/// What is promised about the order within an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Events that this process holds leave by number, one at a time. One that failed is overtaken.
    Held,
    /// No event leaves while an earlier one of its aggregate is unprocessed, whoever holds that.
    Aggregate,
}
