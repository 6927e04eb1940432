//! The rules of claim and repair: which rows a claim may return and which it may skip. Among rows with the same
//! position in the claim order the database may choose.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Completed, Leased};
use super::reference::{Ending, Lease, Micros, Outbox, OutboxNo, SECOND, State};

/// A claim as it was made.
pub(crate) struct Claim<'a> {
    pub(crate) worker: &'a str,
    pub(crate) batch: i32,
    pub(crate) lease_seconds: i32,
    pub(crate) now: Micros,
    /// Rows that another transaction has locked: SKIP LOCKED skips them.
    pub(crate) locked: &'a BTreeSet<OutboxNo>,
    /// Rows that were gone from the queue afterwards.
    pub(crate) gone: &'a BTreeSet<OutboxNo>,
}

impl State {
    /// Due, without a live lease, on a rail that is not paused, and on an ordered rail the head-of-line.
    fn claimable(&self, outbox: &Outbox, now: Micros) -> bool {
        let Some(pending) = &outbox.pending else { return false };
        let rail = &self.rails[&outbox.what.rail];
        pending.next_attempt_at <= now
            && outbox.live_lease(now).is_none()
            && !rail.paused
            && !(rail.ordered && self.waits(outbox))
    }

    /// How many more leases a rail may have.
    fn free_capacity(&self, rail: usize, now: Micros) -> usize {
        let in_flight = |outbox: &&Outbox| outbox.what.rail == rail && outbox.live_lease(now).is_some();
        let live = self.outboxes.values().filter(in_flight).count();
        let cap = self.rails[&rail].max_in_flight.map_or(usize::MAX, |cap| usize::try_from(cap).unwrap_or(0));
        cap.saturating_sub(live)
    }

    /// Whether the next expiry of this row ends it.
    fn at_max_attempts(&self, outbox: &Outbox) -> bool {
        let next = outbox.attempts.last().map_or(0, |last| last.no) + 1;
        next >= self.rails[&outbox.what.rail].max_attempts
    }

    /// Checks the answer of a claim and applies it to this state.
    pub(crate) fn claim(&mut self, claim: &Claim<'_>, answer: &[Leased]) -> Result<(), String> {
        let now = claim.now;
        let before = self.clone();
        let candidates: BTreeMap<OutboxNo, &Outbox> =
            before.pending().filter(|(_, outbox)| before.claimable(outbox, now)).collect();
        let room: BTreeMap<_, _> =
            before.rails.keys().map(|&rail| (rail, before.free_capacity(rail, now))).collect();

        // An expired lease at max_attempts ends its row instead of being granted again.
        let mut ended: Vec<_> = claim.gone.iter().copied().collect();
        ended.sort_by_key(|no| self.outboxes[no].sequence);
        for &no in &ended {
            let outbox = &self.outboxes[&no];
            let may_end = self.claimable(outbox, now)
                && outbox.expired_lease(now).is_some()
                && self.at_max_attempts(outbox)
                && room[&outbox.what.rail] > 0
                && !claim.locked.contains(&no);
            if !may_end {
                return Err(format!("outbox {no} left the queue, and a claim had no right to end it"));
            }
            self.settle(vec![Ending::expiry(no, None)], now);
        }

        if answer.len() > usize::try_from(claim.batch).unwrap_or(0) {
            return Err(format!("more than the {} asked for", claim.batch));
        }
        for row in answer {
            let Some(outbox) = self.outboxes.get(&row.outbox) else {
                return Err(format!("outbox {} was never enqueued", row.outbox));
            };
            if claim.locked.contains(&row.outbox) || !self.claimable(outbox, now) {
                return Err(format!("outbox {} may not be claimed now", row.outbox));
            }
        }
        self.lease(claim, answer)?;

        for (&rail, &room) in &room {
            let granted = answer.iter().filter(|row| before.outboxes[&row.outbox].what.rail == rail).count();
            if granted > room {
                return Err(format!("rail {rail} had room for {room} more, not {granted}"));
            }
        }
        if ended.is_empty() {
            let order: Vec<_> = answer.iter().map(|row| before.outboxes[&row.outbox].claim_order()).collect();
            if !order.is_sorted() {
                return Err("the rows are not in the order of next_attempt_at, created_at".to_owned());
            }
        }
        // A claim may find fewer rows while other transactions hold locks.
        if candidates.keys().any(|no| claim.locked.contains(no)) {
            return Ok(());
        }
        let taken: BTreeSet<_> = answer.iter().map(|row| row.outbox).chain(ended).collect();
        for (no, outbox) in candidates.iter().filter(|(no, _)| !taken.contains(no)) {
            let not_later = |other: &&OutboxNo| before.outboxes[other].claim_order() <= outbox.claim_order();
            let before_it: Vec<_> = taken.iter().filter(not_later).collect();
            let of_rail =
                before_it.iter().filter(|other| before.outboxes[**other].what.rail == outbox.what.rail).count();
            let batch_was_full = before_it.len() >= usize::try_from(claim.batch).unwrap_or(0);
            if !batch_was_full && of_rail < room[&outbox.what.rail] {
                return Err(format!("outbox {no} was due and was passed over"));
            }
        }
        Ok(())
    }

    /// Grants the leases of a claim, and compares each returned row.
    fn lease(&mut self, claim: &Claim<'_>, answer: &[Leased]) -> Result<(), String> {
        let expires_at = claim.now + i64::from(claim.lease_seconds) * SECOND;
        for row in answer {
            if self.outboxes[&row.outbox].live_lease(claim.now).is_some() {
                return Err(format!("outbox {} was handed out twice", row.outbox));
            }
            self.settle(vec![Ending::expiry(row.outbox, None)], claim.now);
            if self.granted.contains_key(&row.lease) {
                return Err(format!("the token of lease {} was used again", row.lease));
            }
            let lease =
                Lease { no: row.lease, worker: claim.worker.to_owned(), claimed_at: claim.now, expires_at };
            self.granted.insert(row.lease, (row.outbox, claim.worker.to_owned()));
            let outbox = &self.outboxes[&row.outbox];
            let expected = Leased {
                outbox: row.outbox,
                lease: row.lease,
                sequence: outbox.sequence,
                attempt_count: outbox.pending.as_ref().map_or(0, |pending| pending.attempt_count),
                lease_expires_at: expires_at,
                outcome_unknown: outbox.outcome_unknown(),
                identity: row.identity.clone(),
            };
            if *row != expected {
                return Err(format!("expected {expected:?}, not {row:?}"));
            }
            if let Some(pending) = self.pending_mut(row.outbox) {
                pending.lease = Some(lease);
            }
        }
        Ok(())
    }

    /// Checks the answer of a repair and applies it to this state.
    pub(crate) fn repair(
        &mut self,
        batch: i32,
        now: Micros,
        locked: &BTreeSet<OutboxNo>,
        answer: &[Completed],
    ) -> Result<(), String> {
        // A transaction that began before a row was due does not see it as due.
        let due = |outbox: &Outbox| outbox.pending.as_ref().is_some_and(|pending| pending.next_attempt_at <= now);
        let expired: BTreeSet<_> = self
            .pending()
            .filter(|(no, outbox)| outbox.expired_lease(now).is_some() && due(outbox) && !locked.contains(no))
            .map(|(no, _)| no)
            .collect();
        let repaired: BTreeSet<_> = answer.iter().map(|row| row.outbox).collect();
        if let Some(no) = repaired.difference(&expired).next() {
            return Err(format!("outbox {no} had no expired lease to repair"));
        }
        let wanted = expired.len().min(usize::try_from(batch).unwrap_or(0));
        if answer.len() != wanted {
            return Err(format!("{wanted} leases were to be repaired, not {}", answer.len()));
        }
        let mut expected = self.settle(repaired.into_iter().map(|no| Ending::expiry(no, Some(1))).collect(), now);
        let mut answer = answer.to_vec();
        expected.sort_by_key(|row| row.outbox);
        answer.sort_by_key(|row| row.outbox);
        if answer == expected { Ok(()) } else { Err(format!("expected {expected:?}, not {answer:?}")) }
    }
}
