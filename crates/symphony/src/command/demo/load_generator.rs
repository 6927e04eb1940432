//! The load generator: a shop that commits each order with a payment, an event and a metadata entry.
//!
//! Some transactions roll back, and some payments are enqueued a second time under the same key. Neither may have an
//! effect at the bank, in a broker or in a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use symphony_client::event::tokio_postgres as publisher;
use symphony_client::metadata::tokio_postgres as entries;
use symphony_client::payment::{Instruction, tokio_postgres as producer};
use symphony_testkit::shop::{self, metadata as shop_metadata};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_postgres::Client;

use super::{
    environment::DemoEnvironment,
    events, metadata,
    payments::{ORDERED_RAIL, PLAIN_RAIL},
};
use crate::failure::Failure;

/// Concurrent producer sessions.
const PRODUCER_SESSIONS: u32 = 4;
/// One payment in three is on the ordered rail.
const ORDERED_ONE_IN: u64 = 3;
/// One transaction in forty is rolled back.
const ROLLED_BACK_ONE_IN: u64 = 40;
/// One payment in forty is enqueued again under its key: an idempotent replay.
const REPLAYED_ONE_IN: u64 = 40;
/// IBANs with valid check digits.
const IBANS: [&str; 3] = ["DE89370400440532013000", "GB82WEST12345698765432", "FR1420041010050500013M02606"];

/// The counts of the load.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct LoadCounts {
    /// Orders committed with their payments, events and metadata.
    pub(super) committed: u64,
    /// Orders rolled back with their payments, events and metadata.
    pub(super) rolled_back: u64,
    /// Idempotent replays.
    pub(super) enqueued_again: u64,
}

#[derive(Default)]
struct Shared {
    orders: AtomicU64,
    committed: AtomicU64,
    rolled_back: AtomicU64,
    again: AtomicU64,
}

/// The running producer sessions.
pub(super) struct LoadGenerator {
    sessions: JoinSet<Result<(), Failure>>,
    stop: watch::Sender<bool>,
    shared: Arc<Shared>,
}

impl LoadGenerator {
    pub(super) async fn start(
        environment: &DemoEnvironment,
        a_second: u32,
        participants: u32,
        seed: u64,
    ) -> Result<Self, Failure> {
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared::default());
        let mut sessions = JoinSet::new();
        let period = Duration::from_secs(1) * PRODUCER_SESSIONS / a_second.max(1);
        for number in 0..PRODUCER_SESSIONS {
            let session = Session {
                client: environment.connect(shop::PRODUCER).await?,
                random: SeededRandom(seed.wrapping_mul(1_000).wrapping_add(u64::from(number))),
                participants: u64::from(participants.max(1)),
                shared: Arc::clone(&shared),
            };
            sessions.spawn(session.work(period, stopped.clone()));
        }
        Ok(Self { sessions, stop, shared })
    }

    /// Fails if a session has ended.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        match self.sessions.try_join_next() {
            None => Ok(()),
            Some(ended) => finished(ended),
        }
    }

    /// Lets each session finish its transaction, and returns the counts.
    pub(super) async fn stop(mut self) -> Result<LoadCounts, Failure> {
        // Sending fails only if all sessions have failed; their errors follow.
        let _ = self.stop.send(true);
        while let Some(ended) = self.sessions.join_next().await {
            finished(ended)?;
        }
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(LoadCounts {
            committed: read(&self.shared.committed),
            rolled_back: read(&self.shared.rolled_back),
            enqueued_again: read(&self.shared.again),
        })
    }
}

fn finished(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.map_err(|error| Failure::because("a producer session ended", error))?
}

struct Session {
    client: Client,
    random: SeededRandom,
    participants: u64,
    shared: Arc<Shared>,
}

impl Session {
    async fn work(mut self, period: Duration, mut stopped: watch::Receiver<bool>) -> Result<(), Failure> {
        let mut turns = tokio::time::interval(period);
        // A slow machine does not catch up with a burst.
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = turns.tick() => self.order().await?,
                _ = stopped.changed() => return Ok(()),
            }
        }
    }

    /// One order, its payment, its event and the profile that it changes, in one transaction.
    async fn order(&mut self) -> Result<(), Failure> {
        let number = self.shared.orders.fetch_add(1, Ordering::Relaxed) + 1;
        let cents = self.random.below(500_000) + 1;
        let amount = format!("{}.{:02}", cents / 100, cents % 100);
        let ordered = self.random.below(ORDERED_ONE_IN) == 0;
        let iban = IBANS.get(usize::try_from(self.random.below(3)).unwrap_or_default()).unwrap_or(&IBANS[0]);
        let currency = if self.random.below(2) == 0 { "EUR" } else { "USD" };
        let instruction = Instruction::new(
            format!("order-{number}"),
            format!("merchant-{}", self.random.below(self.participants) + 1),
            format!("order-{number}/payout"),
            if ordered { ORDERED_RAIL } else { PLAIN_RAIL },
            json!({ "amount": amount, "currency": currency, "destination": { "iban": iban } }),
        );
        let transaction = self.client.transaction().await?;
        let Instruction { instruction_id, participant_id, .. } = &instruction;
        shop::place_order(&transaction, instruction_id, participant_id, &amount).await?;
        // The enqueue locks the participant's sequence, so events of one participant commit in order.
        let enqueued = producer::enqueue(&transaction, &instruction).await?;
        let (route, kind) = if ordered {
            (events::PAYROLL_EVENTS, metadata::PAYROLL)
        } else {
            (events::ORDER_EVENTS, metadata::MERCHANT)
        };
        publisher::publish(&transaction, &route.event(instruction_id, participant_id)).await?;
        let profile =
            shop_metadata::update_profile(&transaction, kind, participant_id, instruction_id, &amount).await?;
        entries::create(&transaction, &metadata::entry(kind, participant_id, profile)?).await?;
        if self.random.below(ROLLED_BACK_ONE_IN) == 0 {
            transaction.rollback().await?;
            self.shared.rolled_back.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        transaction.commit().await?;
        self.shared.committed.fetch_add(1, Ordering::Relaxed);
        if self.random.below(REPLAYED_ONE_IN) == 0 {
            let again = producer::enqueue(&self.client, &instruction).await?;
            if !again.replayed || again.outbox_id != enqueued.outbox_id {
                return Err(Failure::new(format!(
                    "{instruction_id} was enqueued twice under one key and has two outboxes"
                )));
            }
            self.shared.again.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A seeded random generator: SplitMix64.
struct SeededRandom(u64);

impl SeededRandom {
    /// A number from 0 to below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The modulo bias is negligible for a demo.
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_they_stay_below_their_bound() {
        let draw = |seed| {
            let mut random = SeededRandom(seed);
            (0..200).map(|_| random.below(7)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!((0..7).all(|number| draw(3).contains(&number)) && draw(3).iter().all(|number| *number < 7));
    }
}
