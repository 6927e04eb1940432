//! The plan of one measurement: scenario, lane and all sizes.

use std::time::Duration;

use symphony_db::schema::Lane;

use super::destination::DestinationKind;
use super::workload::Workload;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scenario {
    /// Single enqueues, each in its own transaction
    Enqueue,
    /// Batches: many enqueues in one transaction
    Batch,
    /// Relayers drain a backlog
    Drain,
    /// Relayers drain a backlog to a real destination
    Deliver,
    /// Latency from commit to dispatch at a steady rate
    Latency,
    /// Enqueues and relayers at once
    Mixed,
    /// Idle relayers
    Idle,
}

impl Scenario {
    pub(super) const ALL: [Self; 7] =
        [Self::Enqueue, Self::Batch, Self::Drain, Self::Deliver, Self::Latency, Self::Mixed, Self::Idle];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Batch => "batch",
            Self::Drain => "drain",
            Self::Deliver => "deliver",
            Self::Latency => "latency",
            Self::Mixed => "mixed",
            Self::Idle => "idle",
        }
    }

    /// Whether it leaves so many dead tuples that a held snapshot can slow it down.
    pub(super) fn can_hold_snapshot(self) -> bool {
        matches!(self, Self::Drain | Self::Mixed)
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) lane: Lane,
    pub(super) ordered: bool,
    /// The destination of the deliver scenario.
    pub(super) to: Option<DestinationKind>,
    /// Producer sessions.
    pub(super) clients: usize,
    /// How many to enqueue; without it, `length` limits the run.
    pub(super) count: Option<u64>,
    pub(super) length: Duration,
    /// Rows per transaction of the batch scenario.
    pub(super) batch: u64,
    /// Enqueues per second; without it, as many as possible.
    pub(super) rate: Option<u32>,
    pub(super) relayers: usize,
    pub(super) slots: Option<usize>,
    pub(super) batch_size: Option<usize>,
    pub(super) payload_bytes: usize,
    pub(super) participants: u64,
    /// Whether an open transaction holds a snapshot, so that VACUUM can remove no dead tuples.
    pub(super) hold_snapshot: bool,
    /// How many payments the ledger has before the measurement.
    pub(super) ledger: u32,
    /// The number of this round, if there are several.
    pub(super) round: Option<u32>,
}

impl Plan {
    pub(super) fn workload(&self) -> Workload {
        Workload::new(self.lane, self.ordered, self.participants, self.payload_bytes)
    }

    /// Describes the measurement on one line.
    pub(super) fn describe(&self) -> String {
        let ordered = if self.ordered { ", ordered" } else { "" };
        let clients = match self.scenario {
            Scenario::Enqueue | Scenario::Mixed => format!(", clients: {}", self.clients),
            Scenario::Batch | Scenario::Drain | Scenario::Deliver | Scenario::Latency | Scenario::Idle => {
                String::new()
            }
        };
        let to = self.to.map(|kind| format!(" to {}", kind.name())).unwrap_or_default();
        let ledger = if self.ledger > 0 { format!(", ledger: {} payments", self.ledger) } else { String::new() };
        format!("{} of the {} lane{to}{ordered}{clients}{ledger}", self.scenario.name(), self.lane.name())
    }
}
