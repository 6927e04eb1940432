//! What one measurement is to be: every size settled.

use std::time::Duration;

use symphony_outbox::schema::Lane;

use super::goods::Goods;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scenario {
    /// Single enqueues, each in a transaction of its own, by so many clients
    Enqueue,
    /// Many in one transaction
    Batch,
    /// A backlog that relayers carry away
    Drain,
    /// From commit to dispatch at a steady rate
    Latency,
    /// Enqueues and relayers at once
    Mixed,
    /// Relayers that have nothing to do
    Idle,
}

impl Scenario {
    pub(super) const ALL: [Self; 6] =
        [Self::Enqueue, Self::Batch, Self::Drain, Self::Latency, Self::Mixed, Self::Idle];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Batch => "batch",
            Self::Drain => "drain",
            Self::Latency => "latency",
            Self::Mixed => "mixed",
            Self::Idle => "idle",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) scenario: Scenario,
    pub(super) lane: Lane,
    pub(super) ordered: bool,
    /// Sessions that send.
    pub(super) clients: usize,
    /// How many to send; without it, for so long.
    pub(super) count: Option<u64>,
    pub(super) length: Duration,
    /// How many in one transaction, where they are sent together.
    pub(super) batch: u64,
    /// How many a second; without it, as many as can be.
    pub(super) rate: Option<u32>,
    pub(super) relayers: usize,
    pub(super) slots: Option<usize>,
    pub(super) batch_size: Option<usize>,
    pub(super) payload_bytes: usize,
    pub(super) participants: u64,
    /// Whether a transaction stays open all the while, before which nothing can be cleaned away.
    pub(super) hold_snapshot: bool,
    /// The number of this round, where there are several.
    pub(super) round: Option<u32>,
}

impl Plan {
    pub(super) fn goods(&self) -> Goods {
        Goods::new(self.lane, self.ordered, self.participants, self.payload_bytes)
    }

    /// For people, in a few words.
    pub(super) fn in_words(&self) -> String {
        let ordered = if self.ordered { ", ordered" } else { "" };
        let clients = match self.scenario {
            Scenario::Enqueue | Scenario::Mixed => format!(", clients: {}", self.clients),
            Scenario::Batch | Scenario::Drain | Scenario::Latency | Scenario::Idle => String::new(),
        };
        format!("{} of the {} lane{ordered}{clients}", self.scenario.name(), self.lane.name())
    }
}
