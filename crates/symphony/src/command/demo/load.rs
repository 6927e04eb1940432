//! The business: sessions that write an order, enqueue its payment, publish an event and create an entry of metadata in one transaction.
//!
//! Now and then one of them changes its mind and rolls back, and one is not sure whether it has enqueued and does it
//! again. Neither may be seen at the bank or by who hears of orders, nor in a second store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use symphony_outbox::event::publisher;
use symphony_outbox::metadata::producer as entries;
use symphony_outbox::payment::{Instruction, producer};
use symphony_proof::shop::{self, profiles};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_postgres::Client;

use super::{
    events, metadata,
    payments::{ORDERED_RAIL, PLAIN_RAIL},
    stage::Stage,
};
use crate::failure::Failure;

/// How many sessions enqueue at the same time.
const SESSIONS: u32 = 4;
/// One payment in so many is on the ordered rail.
const ORDERED: u64 = 3;
/// One transaction in so many is rolled back.
const ROLLED_BACK: u64 = 40;
/// One payment in so many is enqueued again under its key.
const AGAIN: u64 = 40;
/// Accounts that check.
const IBANS: [&str; 3] = ["DE89370400440532013000", "GB82WEST12345698765432", "FR1420041010050500013M02606"];

/// What the business did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Tally {
    /// Orders committed with their payments, events and metadata.
    pub(super) committed: u64,
    /// Orders rolled back with their payments, events and metadata.
    pub(super) rolled_back: u64,
    /// Payments enqueued a second time.
    pub(super) enqueued_again: u64,
}

#[derive(Default)]
struct Shared {
    orders: AtomicU64,
    committed: AtomicU64,
    rolled_back: AtomicU64,
    again: AtomicU64,
}

/// The sessions while they work.
pub(super) struct Load {
    sessions: JoinSet<Result<(), Failure>>,
    stop: watch::Sender<bool>,
    shared: Arc<Shared>,
}

impl Load {
    pub(super) async fn start(
        stage: &Stage,
        a_second: u32,
        participants: u32,
        seed: u64,
    ) -> Result<Self, Failure> {
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared::default());
        let mut sessions = JoinSet::new();
        let period = Duration::from_secs(1) * SESSIONS / a_second.max(1);
        for number in 0..SESSIONS {
            let session = Session {
                client: stage.connect(shop::TILL).await?,
                chance: Chance(seed.wrapping_mul(1_000).wrapping_add(u64::from(number))),
                participants: u64::from(participants.max(1)),
                shared: Arc::clone(&shared),
            };
            sessions.spawn(session.work(period, stopped.clone()));
        }
        Ok(Self { sessions, stop, shared })
    }

    /// Whether all sessions still work.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        match self.sessions.try_join_next() {
            None => Ok(()),
            Some(ended) => finished(ended),
        }
    }

    /// Lets each session finish its transaction, and says what they did.
    pub(super) async fn stop(mut self) -> Result<Tally, Failure> {
        // Nobody listens any more if all have failed, and their errors say why.
        let _ = self.stop.send(true);
        while let Some(ended) = self.sessions.join_next().await {
            finished(ended)?;
        }
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Tally {
            committed: read(&self.shared.committed),
            rolled_back: read(&self.shared.rolled_back),
            enqueued_again: read(&self.shared.again),
        })
    }
}

fn finished(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.map_err(|error| Failure::because("a session of the business ended", error))?
}

struct Session {
    client: Client,
    chance: Chance,
    participants: u64,
    shared: Arc<Shared>,
}

impl Session {
    async fn work(mut self, period: Duration, mut stopped: watch::Receiver<bool>) -> Result<(), Failure> {
        let mut turns = tokio::time::interval(period);
        // A machine that cannot keep up is not flooded afterwards.
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
        let cents = self.chance.below(500_000) + 1;
        let amount = format!("{}.{:02}", cents / 100, cents % 100);
        let ordered = self.chance.below(ORDERED) == 0;
        let iban = IBANS.get(usize::try_from(self.chance.below(3)).unwrap_or_default()).unwrap_or(&IBANS[0]);
        let currency = if self.chance.below(2) == 0 { "EUR" } else { "USD" };
        let instruction = Instruction {
            instruction_id: format!("order-{number}"),
            participant_id: format!("merchant-{}", self.chance.below(self.participants) + 1),
            idempotency_key: format!("order-{number}/payout"),
            rail_type: if ordered { ORDERED_RAIL } else { PLAIN_RAIL }.to_owned(),
            payload: json!({ "amount": amount, "currency": currency, "destination": { "iban": iban } }).into(),
        };
        let transaction = self.client.transaction().await?;
        let Instruction { instruction_id, participant_id, .. } = &instruction;
        shop::place_order(&transaction, instruction_id, participant_id, &amount).await?;
        // This takes the participant's next number, and with it their turn to publish.
        let enqueued = producer::enqueue(&transaction, &instruction).await?;
        let (news, kind) =
            if ordered { (events::PAYROLL, metadata::PAYROLL) } else { (events::ORDERS, metadata::MERCHANT) };
        publisher::publish(&transaction, &news.of(instruction_id, participant_id)).await?;
        let profile = profiles::change(&transaction, kind, participant_id, instruction_id, &amount).await?;
        entries::create(&transaction, &metadata::entry(kind, participant_id, profile)?).await?;
        if self.chance.below(ROLLED_BACK) == 0 {
            transaction.rollback().await?;
            self.shared.rolled_back.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        transaction.commit().await?;
        self.shared.committed.fetch_add(1, Ordering::Relaxed);
        if self.chance.below(AGAIN) == 0 {
            let again = producer::enqueue(&self.client, &instruction).await?;
            if !again.replayed || again.outbox_id != enqueued.outbox_id {
                return Err(Failure::no(format!("{instruction_id} was enqueued twice and has two outboxes")));
            }
            self.shared.again.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Numbers that look like chance and come again with the same seed: SplitMix64.
struct Chance(u64);

impl Chance {
    /// From 0 to below this.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The bias towards small numbers is far below what a demo could show.
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_they_stay_below_their_bound() {
        let draw = |seed| {
            let mut chance = Chance(seed);
            (0..200).map(|_| chance.below(7)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!((0..7).all(|number| draw(3).contains(&number)) && draw(3).iter().all(|number| *number < 7));
    }
}
