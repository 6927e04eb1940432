//! What is sent: payments, events or entries of metadata, all of one size, for so many participants in turn.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::try_join_all;
use serde_json::json;
use symphony_outbox::Payload;
use symphony_outbox::event::{Event, publisher};
use symphony_outbox::metadata::{Entity, Entry, producer as entries};
use symphony_outbox::payment::{Instruction, producer};
use symphony_outbox::schema::Lane;
use symphony_proof::track::MARK;
use tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use crate::failure::Failure;

/// The most rows that one call of the payment lane's batch takes.
const TOGETHER: usize = 500;
/// The type of an event.
const HAPPENED: &str = "benchmarked";

/// The name under which a lane's goods are sent: the rail, the aggregate type or the entity type.
pub(super) fn name(lane: Lane, ordered: bool) -> String {
    if lane == Lane::Payment && ordered { format!("{MARK}_ORDERED") } else { MARK.to_owned() }
}

/// A session that sends, with the calls of its lane prepared where the lane has such.
pub(super) struct Sender {
    client: Client,
    calls: Option<producer::Prepared>,
}

/// What is sent in one measurement.
pub(super) struct Goods {
    lane: Lane,
    name: String,
    /// Tells these from those of every other measurement.
    series: String,
    participants: u64,
    payload: Payload,
    sent: AtomicU64,
}

impl Goods {
    pub(super) fn new(lane: Lane, ordered: bool, participants: u64, payload_bytes: usize) -> Self {
        let series = Uuid::new_v4().simple().to_string()[..12].to_owned();
        let payload = payload(payload_bytes);
        Self { lane, name: name(lane, ordered), series, participants, payload, sent: AtomicU64::new(0) }
    }

    /// A session of this kind, ready to send these.
    pub(super) async fn sender(&self, client: Client) -> Result<Sender, Failure> {
        let calls = if self.lane == Lane::Payment { Some(producer::Prepared::on(&client).await?) } else { None };
        Ok(Sender { client, calls })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How many numbers were given out.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sends the next in a transaction of its own. Says by which name a relayer knows it.
    pub(super) async fn send(&self, sender: &Sender) -> Result<String, Failure> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        self.send_one(&sender.client, sender.calls.as_ref(), number, number % self.participants).await
    }

    /// Sends the next so many in one transaction, for participants whom no other sender has.
    pub(super) async fn send_many(
        &self,
        sender: &mut Sender,
        count: u64,
        place: (u64, u64),
    ) -> Result<(), Failure> {
        let first = self.sent.fetch_add(count, Ordering::Relaxed);
        let numbers = first..first + count;
        let Sender { client, calls } = sender;
        match calls {
            Some(calls) if usize::try_from(count).is_ok_and(|count| count <= TOGETHER) => {
                return self.enqueue_together(client, calls, numbers, place).await;
            }
            _ => {}
        }
        let transaction = client.transaction().await?;
        if let Some(calls) = calls {
            let step = u64::try_from(TOGETHER).unwrap_or(1);
            for begin in numbers.clone().step_by(TOGETHER) {
                let some = begin..(begin + step).min(numbers.end);
                self.enqueue_together(&transaction, calls, some, place).await?;
            }
        } else {
            // There is no call for many: they are sent without waiting for each answer.
            let transaction = &transaction;
            try_join_all(
                numbers.map(|number| self.send_one(transaction, None, number, self.share(number, place))),
            )
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    async fn enqueue_together(
        &self,
        client: &impl GenericClient,
        calls: &producer::Prepared,
        numbers: Range<u64>,
        place: (u64, u64),
    ) -> Result<(), Failure> {
        let instructions: Vec<_> =
            numbers.map(|number| self.instruction(number, self.share(number, place))).collect();
        calls.enqueue_batch(client, &instructions).await?;
        Ok(())
    }

    /// The participant of this number, out of those that belong to this one of so many senders.
    fn share(&self, number: u64, (sender, senders): (u64, u64)) -> u64 {
        let each = (self.participants / senders.max(1)).max(1);
        sender * each + number % each
    }

    async fn send_one(
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
                let event = Event {
                    aggregate_type: self.name.clone(),
                    aggregate_id: format!("aggregate-{participant}"),
                    event_type: HAPPENED.to_owned(),
                    payload: self.payload.clone(),
                };
                Ok(publisher::publish(client, &event).await?.to_string())
            }
            Lane::Metadata => {
                let entity = Entity::new(&self.name, format!("entity-{participant}"));
                let entity = entity.map_err(|error| Failure::because("there is no such entity", error))?;
                let entry = Entry { entity, metadata: self.payload.clone(), max_retries: None };
                Ok(entries::create(client, &entry).await?.to_string())
            }
        }
    }

    fn instruction(&self, number: u64, participant: u64) -> Instruction {
        let instruction_id = format!("bench-{}-{number}", self.series);
        Instruction {
            idempotency_key: format!("{instruction_id}/1"),
            instruction_id,
            participant_id: format!("participant-{participant}"),
            rail_type: self.name.clone(),
            payload: self.payload.clone(),
        }
    }
}

/// An order to pay, filled up to so many bytes with what cannot be compressed much.
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
        let goods = Goods::new(Lane::Payment, false, 10, 0);
        let of = |sender| {
            (0..100).map(|number| goods.share(number, (sender, 2))).collect::<std::collections::BTreeSet<_>>()
        };
        assert!(of(0).is_disjoint(&of(1)));
        assert_eq!(of(0).len() + of(1).len(), 10);
    }
}
