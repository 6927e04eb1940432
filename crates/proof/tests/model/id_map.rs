//! Maps names and ids of the database to the numbers of the model.

use super::call::{Instruction, LeaseRef};
use super::reference::{LeaseNo, OutboxNo};

/// A token that was never granted.
const FORGED: &str = "00000000-0000-4000-8000-000000000000";

/// The names and ids of one sequence, distinct from those of other sequences.
#[derive(Debug, Default)]
pub(crate) struct IdMap {
    sequence: usize,
    outboxes: Vec<String>,
    leases: Vec<String>,
}

impl IdMap {
    /// The map of a sequence that has not started.
    pub(crate) fn of(sequence: usize) -> Self {
        Self { sequence, ..Self::default() }
    }

    pub(crate) fn participant(&self, no: usize) -> String {
        format!("participant-{no}-of-{}", self.sequence)
    }

    /// Pairs of keys share an instruction, and all share two idempotency keys: only both together are a name.
    pub(crate) fn instruction(&self, key: usize) -> String {
        format!("instruction-{}-of-{}", key / 2, self.sequence)
    }

    pub(crate) fn idempotency_key(key: usize) -> String {
        format!("key-{}", key % 2)
    }

    pub(crate) fn rail(no: usize) -> String {
        format!("rail-{no}")
    }

    pub(crate) fn payload(no: usize) -> String {
        format!("{{\"amount\": \"{no}.00\"}}")
    }

    /// The identity columns of a row of this instruction.
    pub(crate) fn identity(&self, what: &Instruction) -> [String; 5] {
        [
            self.instruction(what.key),
            self.participant(what.participant),
            Self::idempotency_key(what.key),
            Self::rail(what.rail),
            Self::payload(what.payload),
        ]
    }

    /// The number of an outbox; a new id gets the next number.
    pub(crate) fn outbox(&mut self, id: String) -> OutboxNo {
        number(&mut self.outboxes, id)
    }

    pub(crate) fn lease(&mut self, token: String) -> LeaseNo {
        number(&mut self.leases, token)
    }

    /// The number that the next new outbox gets.
    pub(crate) fn next_outbox(&self) -> OutboxNo {
        self.outboxes.len()
    }

    /// The id of a known outbox.
    pub(crate) fn outbox_id(&self, no: OutboxNo) -> &String {
        &self.outboxes[no]
    }

    pub(crate) fn all_outboxes(&self) -> &[String] {
        &self.outboxes
    }

    /// Ids and tokens, as the functions take them.
    pub(crate) fn ids(&self, leases: &[LeaseRef]) -> (Vec<String>, Vec<String>) {
        let token = |hold: &LeaseRef| hold.lease.map_or_else(|| FORGED.to_owned(), |no| self.leases[no].clone());
        leases.iter().map(|hold| (self.outboxes[hold.outbox].clone(), token(hold))).unzip()
    }
}

fn number(known: &mut Vec<String>, id: String) -> usize {
    known.iter().position(|other| *other == id).unwrap_or_else(|| {
        known.push(id);
        known.len() - 1
    })
}
