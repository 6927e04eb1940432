//! The measurements that the arguments ask for, with the default sizes.

use symphony_db::schema::Lane;

use super::Arguments;
use super::destination::DestinationKind;
use super::plan::{Plan, Scenario};
use crate::failure::Failure;

/// Clients of the enqueue scenario.
const ENQUEUE_CLIENTS: [u32; 3] = [1, 8, 32];
/// Producer sessions of the batch and the mixed scenario.
const BATCH_CLIENTS: u32 = 2;
const MIXED_CLIENTS: u32 = 8;
/// Rows of a backlog, or in batches.
const DEFAULT_COUNT: u64 = 100_000;
/// Rows of a backlog for a real destination, which is slower than the null destination.
const DEFAULT_DELIVER_COUNT: u64 = 20_000;
/// Enqueues per second of the latency scenario.
const DEFAULT_LATENCY_RATE: u32 = 100;

/// The lane, the scenario, whether it is ordered, and where it delivers to.
#[derive(Clone, Copy)]
struct Run {
    lane: Lane,
    scenario: Scenario,
    ordered: bool,
    to: Option<DestinationKind>,
}

impl Arguments {
    /// Every measurement, in order.
    pub(super) fn plans(&self) -> Result<Vec<Plan>, Failure> {
        if self.ordered && self.lane == Some(Lane::Metadata) {
            return Err(Failure::usage(
                "--ordered does not apply to metadata: it has no order to keep, stores compare versions",
            )
            .hint("leave --ordered out, or give --lane payment or --lane event"));
        }
        self.check_destinations()?;
        let runs = self.runs();
        if self.hold_snapshot && !runs.iter().any(|run| run.scenario.can_hold_snapshot()) {
            return Err(Failure::usage(
                "--hold-snapshot is for drain and mixed: the other scenarios leave too few dead tuples",
            )
            .hint("for example: symphony bench mixed --rate 1000 --for 10m --hold-snapshot"));
        }
        if !self.ledger.is_empty() && runs.iter().any(|run| run.lane != Lane::Payment) {
            return Err(Failure::usage("--ledger is for the payment lane: the other lanes have no ledger")
                .hint("for example: symphony bench drain --ledger 0,50000000 --rounds 3"));
        }
        let ledgers = if self.ledger.is_empty() { vec![0] } else { self.ledger.clone() };
        let mut plans = Vec::new();
        for run in runs {
            for clients in self.clients(run.scenario) {
                for round in 1..=self.rounds {
                    let round = (self.rounds > 1).then_some(round);
                    for ledger in ledgers.iter().copied() {
                        plans.push(Plan { round, ledger, ..self.plan(run, clients)? });
                    }
                }
            }
        }
        Ok(plans)
    }

    /// Refuses options of the deliver scenario that do not fit together.
    fn check_destinations(&self) -> Result<(), Failure> {
        let deliver = self.scenarios.contains(&Scenario::Deliver);
        if !deliver && !self.to.is_empty() {
            return Err(Failure::usage("--to is for the deliver scenario: the others have a null destination")
                .hint("for example: symphony bench deliver --to nats"));
        }
        if !self.kafka_brokers.is_empty() && !self.to.contains(&DestinationKind::Kafka) {
            return Err(Failure::usage("--kafka-brokers is for deliver --to kafka")
                .hint("for example: symphony bench deliver --to kafka --kafka-brokers 127.0.0.1:9092"));
        }
        if let Some(lane) = self.lane.filter(|_| deliver)
            && let Some(kind) = self.destinations().into_iter().find(|kind| kind.lane() != lane)
        {
            let (kind, right) = (kind.name(), kind.lane().name());
            return Err(Failure::usage(format!("deliver --to {kind} is of the {right} lane"))
                .hint("leave --lane out: http receives payments, the brokers receive events"));
        }
        Ok(())
    }

    fn destinations(&self) -> Vec<DestinationKind> {
        if self.to.is_empty() { vec![DestinationKind::Http] } else { self.to.clone() }
    }

    fn runs(&self) -> Vec<Run> {
        let ordered = self.ordered;
        let mut runs = Vec::new();
        for scenario in self.scenarios.iter().copied() {
            if scenario == Scenario::Deliver {
                let to = self.destinations().into_iter();
                runs.extend(to.map(|kind| Run { lane: kind.lane(), scenario, ordered, to: Some(kind) }));
            } else {
                runs.push(Run { lane: self.lane.unwrap_or(Lane::Payment), scenario, ordered, to: None });
            }
        }
        if !runs.is_empty() {
            return runs;
        }
        let lanes = self.lane.map_or_else(|| Lane::ALL.to_vec(), |lane| vec![lane]);
        for lane in lanes.into_iter().filter(|lane| !ordered || *lane != Lane::Metadata) {
            // A real destination may not be installed, so deliver has to be asked for.
            let scenarios = Scenario::ALL.into_iter().filter(|scenario| *scenario != Scenario::Deliver);
            runs.extend(scenarios.map(|scenario| Run { lane, scenario, ordered, to: None }));
            if !ordered && lane == Lane::Payment {
                runs.push(Run { lane, scenario: Scenario::Drain, ordered: true, to: None });
            }
        }
        runs
    }

    fn clients(&self, scenario: Scenario) -> Vec<u32> {
        match scenario {
            // Latency needs one session at a steady rate; the others enqueue nothing while they are timed.
            Scenario::Latency | Scenario::Drain | Scenario::Deliver | Scenario::Idle => vec![1],
            _ if !self.clients.is_empty() => self.clients.clone(),
            Scenario::Enqueue => ENQUEUE_CLIENTS.to_vec(),
            Scenario::Batch => vec![BATCH_CLIENTS],
            Scenario::Mixed => vec![MIXED_CLIENTS],
        }
    }

    fn plan(&self, run: Run, clients: u32) -> Result<Plan, Failure> {
        let Run { lane, scenario, ordered, to } = run;
        let default_count = match scenario {
            Scenario::Batch | Scenario::Drain => Some(DEFAULT_COUNT),
            Scenario::Deliver => Some(DEFAULT_DELIVER_COUNT),
            Scenario::Enqueue | Scenario::Latency | Scenario::Mixed | Scenario::Idle => None,
        };
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
            to,
            count: self.count.or(default_count),
            length: self.length,
            batch: self.batch,
            rate: self
                .rate
                .or((scenario == Scenario::Latency).then_some(DEFAULT_LATENCY_RATE))
                .filter(|_| default_count.is_none()),
            relayers: size(relayers),
            slots: self.slots.map(size),
            batch_size: self.batch_size.map(size),
            payload_bytes: size(self.payload_bytes),
            participants: self.participants,
            hold_snapshot: self.hold_snapshot && scenario.can_hold_snapshot(),
            ledger: 0,
            round: None,
        })
    }
}
