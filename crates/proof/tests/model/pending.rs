//! The queue as a session sees it, row by row, against the model's.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::id_map::IdMap;
use super::reference::{Lease, Micros, Outbox, OutboxNo, State};
use super::sessions::Caller;

/// One row of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    identity: [String; 5],
    sequence: i64,
    redrive_of: Option<OutboxNo>,
    created_at: Micros,
    attempt_count: i32,
    next_attempt_at: Micros,
    lease: Option<Lease>,
    /// Parked without an earlier row that could unpark it.
    stranded: bool,
}

/// Reads the queue.
pub(crate) async fn read(caller: &mut Caller, id_map: &mut IdMap) -> BTreeMap<OutboxNo, Queued> {
    let sql = "select p.outbox_id::text, p.instruction_id, p.participant_id, p.idempotency_key, p.rail_type,
                      p.payload::text, p.sequence_id, p.redrive_of::text, micros(p.created_at), p.attempt_count,
                      micros(p.next_attempt_at), p.lease_token::text, p.claimed_by, micros(p.claimed_at),
                      micros(p.lease_expires_at),
                      p.parked and not exists (
                        select from symphony.payment_outbox_pending e
                        where e.participant_id = p.participant_id
                          and e.rail_type = p.rail_type
                          and e.sequence_id < p.sequence_id)
               from symphony.payment_outbox_pending p
               order by p.outbox_id";
    let rows = caller.rows(sql, &[]).await.unwrap();
    rows.iter().map(|row| (id_map.outbox(row.get(0)), queued(row, id_map))).collect()
}

fn queued(row: &Row, id_map: &mut IdMap) -> Queued {
    let lease = row.get::<_, Option<String>>(11).map(|token| Lease {
        no: id_map.lease(token),
        worker: row.get(12),
        claimed_at: row.get(13),
        expires_at: row.get(14),
    });
    Queued {
        identity: [1, 2, 3, 4, 5].map(|column| row.get(column)),
        sequence: row.get(6),
        redrive_of: row.get::<_, Option<String>>(7).map(|id| id_map.outbox(id)),
        created_at: row.get(8),
        attempt_count: row.get(9),
        next_attempt_at: row.get(10),
        lease,
        stranded: row.get(15),
    }
}

/// Compares. A row that has just become the head of its stream may be due from that moment on or from before, as it was
/// parked or not: the model takes over which.
pub(crate) fn compare(
    state: &mut State,
    queue: &BTreeMap<OutboxNo, Queued>,
    id_map: &IdMap,
) -> Result<(), String> {
    for (no, row) in queue {
        let Some(pending) = state.pending_mut(*no) else {
            return Err(format!("outbox {no} is in the queue and should not be: {row:?}"));
        };
        if pending.or_lifted_to.take() == Some(row.next_attempt_at) {
            pending.next_attempt_at = row.next_attempt_at;
        }
    }
    for (no, outbox) in state.pending() {
        let Some(expected) = expected(outbox, id_map) else { continue };
        match queue.get(&no) {
            None => return Err(format!("outbox {no} is not in the queue; expected {expected:?}")),
            Some(row) if *row != expected => {
                return Err(format!("outbox {no} in the queue:\n  expected {expected:?}\n  found    {row:?}"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn expected(outbox: &Outbox, id_map: &IdMap) -> Option<Queued> {
    let pending = outbox.pending.as_ref()?;
    Some(Queued {
        identity: id_map.identity(&outbox.what),
        sequence: outbox.sequence,
        redrive_of: outbox.redrive_of,
        created_at: outbox.created_at,
        attempt_count: pending.attempt_count,
        next_attempt_at: pending.next_attempt_at,
        lease: pending.lease.clone(),
        stranded: false,
    })
}
