//! What happened in a run, step by step: the same for the same seed.

use std::fmt;
use std::time::Duration;

use symphony_relay::Summary;
use symphony_relay::breaker::BreakerState;
use symphony_relay::lane::CompletionResult;
use symphony_relay::stop::StopMode;

use super::faults::{Call, CallPlan, DispatchEnd};
use super::lane::Lease;
use super::scenario::RowPlan;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    /// The engine, if it is a step of one.
    pub(crate) engine: Option<usize>,
    pub(crate) event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Enqueued {
        row: u64,
        plan: RowPlan,
    },
    Started {
        relayer: usize,
    },
    StopRequested(StopMode),
    Killed,
    Ended(Option<Summary>),
    Sent {
        call: Call,
        rows: Vec<Lease>,
        plan: CallPlan,
    },
    /// A claim is sent, for this number of rows.
    ClaimSent {
        total: usize,
        plan: CallPlan,
    },
    Executed(Call),
    Answered(Call),
    Claimed(Vec<Lease>),
    Completed(Lease, CompletionResult),
    Renewed {
        lease: Lease,
        held: bool,
    },
    DispatchStarted(Lease, &'static str),
    DispatchEnded(Lease, Option<DispatchEnd>),
    Breaker(String, BreakerState),
    Stalled(Duration),
    ClockStepped {
        milliseconds: i64,
    },
    ListenersDisconnected,
    FaultsStop,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine.map_or_else(|| "        ".to_owned(), |engine| format!("engine {engine}"));
        write!(f, "{:>10.4} s  {engine}  {:?}", self.at.as_secs_f64(), self.event)
    }
}
