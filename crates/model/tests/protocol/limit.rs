//! What the protocol does not prevent, each with its shortest example: the assumptions under which it holds.

use crate::property;
use crate::scenario::{self, Scenario};

/// An assumption, and what happens without it.
pub(crate) struct Limit {
    pub(crate) name: &'static str,
    /// What is assumed, and fails here.
    pub(crate) assumption: &'static str,
    pub(crate) scenario: Scenario,
    pub(crate) property: &'static str,
    /// Whether late requests are excused: if not, they are what the limit is about.
    pub(crate) late_requests_are_excused: bool,
}

/// A bank that says "never seen" while a request is still on its way.
const LATE: &str = "a request reaches the bank before its lease ends, or never";

/// Every limit.
pub(crate) fn all() -> Vec<Limit> {
    let late = |name, scenario, property| Limit {
        name,
        assumption: LATE,
        scenario,
        property,
        late_requests_are_excused: false,
    };
    vec![
        late("late-request-and-forgotten-key", scenario::forgetful(), property::EXECUTED_ONCE),
        late("late-request-and-refusal", scenario::remembering(), property::NOT_PAID_IS_TRUE),
        late("late-request-on-ordered-rail", scenario::ordered(), property::IN_ORDER),
        late("late-request-and-moved-endpoint", scenario::moved_endpoint(), property::EXECUTED_AT_ONE_ENDPOINT),
        Limit {
            name: "failover-and-moved-endpoint",
            assumption: "a rail does not move to another endpoint while a failover loses commits",
            scenario: scenario::failover_and_moved_endpoint(),
            property: property::EXECUTED_AT_ONE_ENDPOINT,
            late_requests_are_excused: true,
        },
        Limit {
            name: "failover-and-clock-behind",
            assumption: "the clock of a new primary is not so far behind that an expired lease is live again",
            scenario: scenario::failover_with_clock_behind(),
            property: property::NOT_PAID_IS_TRUE,
            late_requests_are_excused: true,
        },
    ]
}
