//! The database of a run, in memory: rows, leases with tokens, and its clock. It decides as the functions of the schema
//! do, and checks nothing about engines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::lane::{CompletionResult, Repaired};

use super::faults::DispatchEnd;
use super::lane::{Lease, Outcome};
use super::scenario::{RowKind, RowPlan, ms};

/// Rows that a claim leases behind the first of its key.
const FOLLOWERS: usize = 2;
/// Rows that a repair takes at most.
const REPAIR_BATCH: usize = 5;

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) plan: RowPlan,
    due: Duration,
    attempts: u32,
    lease: Option<(u64, Duration)>,
    pub(crate) ended: bool,
}

#[derive(Debug)]
pub(crate) struct Database {
    length: Duration,
    max_attempts: u32,
    /// Whether it refuses the outcomes of poison rows.
    pub(crate) refuses_poison: bool,
    /// The database's clock at the start of the run.
    pub(crate) clock: Duration,
    pub(crate) rows: BTreeMap<u64, Row>,
    pub(crate) tokens: u64,
}

impl Database {
    pub(crate) fn new(length: Duration, max_attempts: u32) -> Self {
        Self { length, max_attempts, refuses_poison: true, clock: ms(3_600_000), rows: BTreeMap::new(), tokens: 0 }
    }

    pub(crate) fn enqueue(&mut self, plan: RowPlan, at: Duration) -> u64 {
        let id = self.rows.len() as u64 + 1;
        let due = self.clock + at + plan.due_in;
        self.rows.insert(id, Row { plan, due, attempts: 0, lease: None, ended: false });
        id
    }

    /// Claims due rows, and those whose lease has expired: an attempt that has ended without a result.
    pub(crate) fn claim(&mut self, capacity: &ClaimCapacity, at: Duration) -> (Vec<Lease>, Repaired) {
        let now = self.clock + at;
        let taken_over = self.end_expired(usize::MAX, now);
        let (mut leases, mut of_route, mut of_key) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut blocked = BTreeSet::new();
        for (id, row) in self.rows.iter_mut().filter(|(_, row)| !row.ended) {
            let picked = of_key.get(&row.plan.key).copied().unwrap_or(0);
            let free = row.lease.is_none() && row.due <= now && leases.len() < capacity.total();
            let has_turn = row.plan.key.is_none() || !blocked.contains(&row.plan.key) && picked <= FOLLOWERS;
            let claimed: &mut usize = of_route.entry(row.plan.route).or_insert(0);
            if free && has_turn && *claimed < capacity.for_route(row.plan.route) {
                self.tokens += 1;
                *claimed += 1;
                *of_key.entry(row.plan.key).or_insert(0) += 1;
                row.lease = Some((self.tokens, now + self.length));
                leases.push(Lease { row: *id, token: self.tokens });
            } else {
                blocked.insert(row.plan.key);
            }
        }
        (leases, taken_over)
    }

    /// Records outcomes, all or none: `Err` if the database refuses one of them.
    pub(crate) fn complete(
        &mut self,
        batch: &[(Lease, Outcome)],
        at: Duration,
    ) -> Result<Vec<CompletionResult>, ()> {
        let now = self.clock + at;
        let refuses = |lease: &Lease| self.rows[&lease.row].plan.kind == RowKind::PoisonAtDatabase;
        if self.refuses_poison && batch.iter().any(|(lease, _)| refuses(lease) && self.holds(*lease, now)) {
            return Err(());
        }
        Ok(batch.iter().map(|(lease, outcome)| self.complete_one(*lease, *outcome, now)).collect())
    }

    fn complete_one(&mut self, lease: Lease, outcome: Outcome, now: Duration) -> CompletionResult {
        let holds = self.holds(lease, now);
        let Some(row) = self.rows.get_mut(&lease.row).filter(|row| !row.ended) else {
            return CompletionResult::AlreadyTerminal;
        };
        if !holds {
            return CompletionResult::LeaseLost;
        }
        row.lease = None;
        row.attempts += 1;
        row.ended = outcome.end == DispatchEnd::Paid || row.attempts >= self.max_attempts;
        row.due = match outcome.end {
            DispatchEnd::Retry(wait) => now + wait,
            DispatchEnd::Paid | DispatchEnd::Unknown | DispatchEnd::Panic => now + ms(50),
        };
        CompletionResult::Recorded {
            state: if row.ended { "ENDED" } else { "RETRYABLE" },
            retry_scheduled: !row.ended,
            unblocks_rows: row.ended && row.plan.key.is_some(),
        }
    }

    /// Renews leases for a full term; whether each is still held.
    pub(crate) fn renew(&mut self, leases: &[Lease], at: Duration) -> Vec<bool> {
        let now = self.clock + at;
        let mut held = Vec::new();
        for lease in leases {
            held.push(self.holds(*lease, now));
            if self.holds(*lease, now)
                && let Some(row) = self.rows.get_mut(&lease.row)
            {
                row.lease = Some((lease.token, now + self.length));
            }
        }
        held
    }

    /// Releases leases; how many were held.
    pub(crate) fn release(&mut self, leases: &[Lease], at: Duration) -> usize {
        let now = self.clock + at;
        let held: Vec<_> = leases.iter().filter(|lease| self.holds(**lease, now)).collect();
        for lease in &held {
            self.rows.get_mut(&lease.row).expect("a row that is held").lease = None;
        }
        held.len()
    }

    pub(crate) fn repair(&mut self, at: Duration) -> Repaired {
        self.end_expired(REPAIR_BATCH, self.clock + at)
    }

    /// The time until the next scheduled row is due.
    pub(crate) fn next_due(&self, at: Duration) -> Option<Duration> {
        let now = self.clock + at;
        let waiting = self.rows.values().filter(|row| !row.ended && row.lease.is_none() && row.due > now);
        waiting.map(|row| row.due - now).min()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.rows.values().all(|row| row.ended)
    }

    /// The rows that have not ended, for a report.
    pub(crate) fn open_rows(&self) -> Vec<(u64, &Row)> {
        self.rows.iter().filter(|(_, row)| !row.ended).map(|(id, row)| (*id, row)).collect()
    }

    fn holds(&self, lease: Lease, now: Duration) -> bool {
        let row = &self.rows[&lease.row];
        !row.ended && row.lease.is_some_and(|(token, expires)| token == lease.token && expires > now)
    }

    fn end_expired(&mut self, limit: usize, now: Duration) -> Repaired {
        let mut repaired = Repaired::default();
        let is_expired = |row: &Row| !row.ended && row.lease.is_some_and(|(_, expires)| expires <= now);
        for row in self.rows.values_mut().filter(|row| is_expired(row)).take(limit) {
            row.lease = None;
            row.attempts += 1;
            row.ended = row.attempts >= self.max_attempts;
            *(if row.ended { &mut repaired.ended } else { &mut repaired.requeued }) += 1;
        }
        repaired.more = repaired.count() >= limit;
        repaired
    }
}
