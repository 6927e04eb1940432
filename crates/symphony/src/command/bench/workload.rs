//! The workload: payments, events or metadata entries of one payload size, spread over participants.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::try_join_all;
use serde_json::json;
use symphony_client::event::tokio_postgres as publisher;
use symphony_client::metadata::{Entity, Entry, tokio_postgres as entries};
use symphony_client::payment::{Instruction, tokio_postgres as producer};
use symphony_db::Payload;
use symphony_db::event::Event;
use symphony_db::schema::Lane;
use symphony_testkit::bench_database::MARK;
use tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use crate::failure::Failure;

/// The maximum rows of one batch call of the payment lane.
const MAX_BATCH: usize = 500;
/// The type of the benchmark's events.
const EVENT_TYPE: &str = "benchmarked";

/// The name of the benchmark's rows in a lane: the rail, the aggregate type or the entity type.
pub(super) fn name(lane: Lane, ordered: bool) -> String {
    if lane == Lane::Payment && ordered { format!("{MARK}_ORDERED") } else { MARK.to_owned() }
}

/// A producer's session, with prepared calls where the lane has them.
pub(super) struct ProducerSession {
    client: Client,
    calls: Option<producer::Prepared>,
}

/// The workload of one measurement.
pub(super) struct Workload {
    lane: Lane,
    name: String,
    /// Distinguishes the ids of this measurement from those of others.
    run_id: String,
    participants: u64,
    payload: Payload,
    enqueued: AtomicU64,
}

impl Workload {
    pub(super) fn new(lane: Lane, ordered: bool, participants: u64, payload_bytes: usize) -> Self {
        let run_id = Uuid::new_v4().simple().to_string()[..12].to_owned();
        let payload = payload(payload_bytes);
        Self { lane, name: name(lane, ordered), run_id, participants, payload, enqueued: AtomicU64::new(0) }
    }

    /// Prepares a producer session.
    pub(super) async fn session(&self, client: Client) -> Result<ProducerSession, Failure> {
        let calls = if self.lane == Lane::Payment { Some(producer::Prepared::on(&client).await?) } else { None };
        Ok(ProducerSession { client, calls })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The number of rows enqueued.
    pub(super) fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Relaxed)
    }

    /// Enqueues the next row in its own transaction. Returns the id that the relayer sees.
    pub(super) async fn enqueue(&self, session: &ProducerSession) -> Result<String, Failure> {
        let number = self.enqueued.fetch_add(1, Ordering::Relaxed);
        self.enqueue_one(&session.client, session.calls.as_ref(), number, number % self.participants).await
    }

    /// Enqueues the next `count` rows in one transaction, for participants that no other session uses.
    pub(super) async fn enqueue_many(
        &self,
        session: &mut ProducerSession,
        count: u64,
        partition: (u64, u64),
    ) -> Result<(), Failure> {
        let first = self.enqueued.fetch_add(count, Ordering::Relaxed);
        let numbers = first..first + count;
        let ProducerSession { client, calls } = session;
        match calls {
            Some(calls) if usize::try_from(count).is_ok_and(|count| count <= MAX_BATCH) => {
                return self.enqueue_batch(client, calls, numbers, partition).await;
            }
            _ => {}
        }
        let transaction = client.transaction().await?;
        if let Some(calls) = calls {
            let step = u64::try_from(MAX_BATCH).unwrap_or(1);
            for begin in numbers.clone().step_by(MAX_BATCH) {
                let some = begin..(begin + step).min(numbers.end);
                self.enqueue_batch(&transaction, calls, some, partition).await?;
            }
        } else {
            // This lane has no batch call: the statements are pipelined.
            let transaction = &transaction;
            try_join_all(
                numbers.map(|number| {
                    self.enqueue_one(transaction, None, number, self.participant(number, partition))
                }),
            )
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn enqueue_batch(
        &self,
        client: &impl GenericClient,
        calls: &producer::Prepared,
        numbers: Range<u64>,
        partition: (u64, u64),
    ) -> Result<(), Failure> {
        let instructions: Vec<_> =
            numbers.map(|number| self.instruction(number, self.participant(number, partition))).collect();
        calls.enqueue_batch(client, &instructions).await?;
        Ok(())
    }

    /// The participant of a row, from the share of this producer session.
    fn participant(&self, number: u64, (session, producers): (u64, u64)) -> u64 {
        let each = (self.participants / producers.max(1)).max(1);
        session * each + number % each
    }

    async fn enqueue_one(
        &self,
        client: &impl GenericClient,
        calls: Option<&producer::Prepared>,
        number: u64,
        participant: u64,
    ) -> Result<String, Failure> {
        match self.lane {
            Lane::Payment => {
                let instruction = self.instruction(number, participant);
                match calls {
                    Some(calls) => calls.enqueue(client, &instruction).await?,
                    None => producer::enqueue(client, &instruction).await?,
                };
                Ok(instruction.instruction_id)
            }
            Lane::Event => {
                let event = Event::new(
                    self.name.clone(),
                    format!("aggregate-{participant}"),
                    EVENT_TYPE,
                    self.payload.clone(),
                );
                Ok(publisher::publish(client, &event).await?.to_string())
            }
            Lane::Metadata => {
                let entity = Entity::new(&self.name, format!("entity-{participant}"));
                let entity =
                    entity.map_err(|error| Failure::because("the benchmark's entity is invalid", error))?;
                let entry = Entry::new(entity, self.payload.clone());
                Ok(entries::create(client, &entry).await?.to_string())
            }
        }
    }

    fn instruction(&self, number: u64, participant: u64) -> Instruction {
        let instruction_id = format!("bench-{}-{number}", self.run_id);
        let (participant, key) = (format!("participant-{participant}"), format!("{instruction_id}/1"));
        Instruction::new(instruction_id, participant, key, self.name.clone(), self.payload.clone())
    }
}

/// A payment order, padded to this size with text that compresses badly.
fn payload(bytes: usize) -> Payload {
    let order = |note: &str| json!({ "amount": "10.50", "currency": "EUR", "destination": { "iban": "DE89370400440532013000" }, "note": note });
    let bare = order("").to_string().len();
    let mut state = 1_u64;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap_or_default())
    };
    order(&(bare..bytes).map(letter).collect::<String>()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_as_long_as_asked_if_that_is_long_enough() {
        for bytes in [128, 256, 5000] {
            assert_eq!(payload(bytes).as_json().len(), bytes);
        }
        assert!(payload(0).as_json().len() < 128);
    }

    #[test]
    fn two_senders_of_batches_share_no_participant() {
        let workload = Workload::new(Lane::Payment, false, 10, 0);
        let of = |session| {
            (0..100)
                .map(|number| workload.participant(number, (session, 2)))
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert!(of(0).is_disjoint(&of(1)));
        assert_eq!(of(0).len() + of(1).len(), 10);
    }
}
