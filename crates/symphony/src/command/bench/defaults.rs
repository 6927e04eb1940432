//! The measurements that the arguments ask for, with the default sizes.

use symphony_db::schema::Lane;

use super::Arguments;
use super::plan::{Plan, Scenario};
use crate::failure::Failure;

/// Clients of the enqueue scenario.
const ENQUEUE_CLIENTS: [u32; 3] = [1, 8, 32];
/// Producer sessions of the batch and the mixed scenario.
const BATCH_CLIENTS: u32 = 2;
const MIXED_CLIENTS: u32 = 8;
/// Rows of a backlog, or in batches.
const DEFAULT_COUNT: u64 = 100_000;
/// Enqueues per second of the latency scenario.
const DEFAULT_LATENCY_RATE: u32 = 100;

impl Arguments {
    /// Every measurement, in order.
    pub(super) fn plans(&self) -> Result<Vec<Plan>, Failure> {
        if self.ordered && self.lane == Some(Lane::Metadata) {
            return Err(Failure::usage(
                "--ordered does not apply to metadata: it has no order to keep, stores compare versions",
            )
            .hint("leave --ordered out, or give --lane payment or --lane event"));
        }
        if self.hold_snapshot && !self.runs().iter().any(|(_, scenario, _)| *scenario == Scenario::Mixed) {
            return Err(Failure::usage(
                "--hold-snapshot is for a mixed run: the other scenarios are too short to show its effect",
            )
            .hint("for example: symphony bench mixed --rate 1000 --for 10m --hold-snapshot"));
        }
        let mut plans = Vec::new();
        for (lane, scenario, ordered) in self.runs() {
            for clients in self.clients(scenario) {
                for round in 1..=self.rounds {
                    plans.push(Plan {
                        round: (self.rounds > 1).then_some(round),
                        ..self.plan(lane, scenario, ordered, clients)?
                    });
                }
            }
        }
        Ok(plans)
    }

    /// The lane, the scenario and whether it is ordered, of each run.
    fn runs(&self) -> Vec<(Lane, Scenario, bool)> {
        if !self.scenarios.is_empty() {
            let lane = self.lane.unwrap_or(Lane::Payment);
            return self.scenarios.iter().map(|scenario| (lane, *scenario, self.ordered)).collect();
        }
        let lanes = self.lane.map_or_else(|| Lane::ALL.to_vec(), |lane| vec![lane]);
        let mut runs = Vec::new();
        for lane in lanes.into_iter().filter(|lane| !self.ordered || *lane != Lane::Metadata) {
            runs.extend(Scenario::ALL.map(|scenario| (lane, scenario, self.ordered)));
            if !self.ordered && lane == Lane::Payment {
                runs.push((lane, Scenario::Drain, true));
            }
        }
        runs
    }

    fn clients(&self, scenario: Scenario) -> Vec<u32> {
        match scenario {
            // Latency needs one session at a steady rate; drain and idle enqueue nothing while they are timed.
            Scenario::Latency | Scenario::Drain | Scenario::Idle => vec![1],
            _ if !self.clients.is_empty() => self.clients.clone(),
            Scenario::Enqueue => ENQUEUE_CLIENTS.to_vec(),
            Scenario::Batch => vec![BATCH_CLIENTS],
            Scenario::Mixed => vec![MIXED_CLIENTS],
        }
    }

    fn plan(&self, lane: Lane, scenario: Scenario, ordered: bool, clients: u32) -> Result<Plan, Failure> {
        let counted = matches!(scenario, Scenario::Batch | Scenario::Drain);
        let relayers = self.relayers.unwrap_or(u32::from(scenario != Scenario::Batch));
        let needs_relayer = !matches!(scenario, Scenario::Enqueue | Scenario::Batch);
        if needs_relayer && relayers == 0 {
            let name = scenario.name();
            return Err(Failure::usage(format!("{name} needs a relayer")).hint("give --relayers 1 or more"));
        }
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Plan {
            scenario,
            lane,
            ordered,
            clients: size(clients),
            count: self.count.or(counted.then_some(DEFAULT_COUNT)),
            length: self.length,
            batch: self.batch,
            rate: self
                .rate
                .or((scenario == Scenario::Latency).then_some(DEFAULT_LATENCY_RATE))
                .filter(|_| !counted),
            relayers: size(relayers),
            slots: self.slots.map(size),
            batch_size: self.batch_size.map(size),
            payload_bytes: size(self.payload_bytes),
            participants: self.participants,
            hold_snapshot: self.hold_snapshot && scenario == Scenario::Mixed,
            round: None,
        })
    }
}
