//! The rules of the payment lane on one state, without a database: what each call answers and what it changes.
//!
//! Free choices of the database come in from outside: the time of the transaction, and numbers for new outboxes and
//! leases. Whether a call would wait for another transaction is not known here, nor which rows a claim picks where
//! several would do; see [`super::transactions`] and [`super::claims`].

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Completed, Enqueued, Instruction, LeaseRef, Outcome, Refusal};

/// Microseconds since 1970, by the database's clock.
pub(crate) type Micros = i64;
pub(crate) const SECOND: Micros = 1_000_000;

/// Numbers in the order in which the database first returned an id.
pub(crate) type OutboxNo = usize;
pub(crate) type LeaseNo = usize;

/// The policy of a rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) max_attempts: i32,
    pub(crate) backoff_base_seconds: i32,
    pub(crate) backoff_cap_seconds: i32,
    pub(crate) ordered: bool,
    pub(crate) max_in_flight: Option<i32>,
    pub(crate) paused: bool,
}

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptState {
    Dispatched,
    Failed,
    Retryable,
    ZombieRequeue,
}

impl AttemptState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dispatched => "DISPATCHED",
            Self::Failed => "FAILED",
            Self::Retryable => "RETRYABLE",
            Self::ZombieRequeue => "ZOMBIE_REQUEUE",
        }
    }

    pub(crate) fn terminal(self) -> bool {
        matches!(self, Self::Dispatched | Self::Failed)
    }
}

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) no: i32,
    pub(crate) state: AttemptState,
    pub(crate) error_code: Option<String>,
    pub(crate) rail_reference: Option<String>,
    pub(crate) worker: String,
    pub(crate) claimed_at: Micros,
    /// When its transaction began: it is dated by the clock, and so not before this.
    pub(crate) completed_at: Micros,
}

/// The lease of one worker on one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) no: LeaseNo,
    pub(crate) worker: String,
    pub(crate) claimed_at: Micros,
    pub(crate) expires_at: Micros,
}

/// What an outbox has while it has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) attempt_count: i32,
    pub(crate) next_attempt_at: Micros,
    /// It has just become the head of its stream; if it was parked till then, it is due from that time on.
    pub(crate) or_lifted_to: Option<Micros>,
    pub(crate) lease: Option<Lease>,
}

/// An outbox, pending or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outbox {
    pub(crate) what: Instruction,
    pub(crate) sequence: i64,
    pub(crate) created_at: Micros,
    pub(crate) redrive_of: Option<OutboxNo>,
    pub(crate) redriven_as: Option<OutboxNo>,
    pub(crate) resolutions: Vec<&'static str>,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) pending: Option<Pending>,
}

impl Outbox {
    pub(crate) fn ended_as(&self) -> Option<AttemptState> {
        self.attempts.last().map(|attempt| attempt.state).filter(|state| state.terminal())
    }

    /// Whether the outcome of the last attempt is unknown.
    pub(crate) fn outcome_unknown(&self) -> bool {
        self.attempts.last().is_some_and(|attempt| is_unknown(attempt.error_code.as_deref()))
    }

    /// Whether the rail has accepted it.
    pub(crate) fn was_accepted(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.error_code.as_deref() == Some(ACCEPTED))
    }

    pub(crate) fn live_lease(&self, now: Micros) -> Option<&Lease> {
        self.pending.as_ref()?.lease.as_ref().filter(|lease| lease.expires_at > now)
    }

    pub(crate) fn expired_lease(&self, now: Micros) -> Option<&Lease> {
        self.pending.as_ref()?.lease.as_ref().filter(|lease| lease.expires_at <= now)
    }

    /// Where it stands among those that are due.
    pub(crate) fn claim_order(&self) -> Option<(Micros, Micros)> {
        self.pending.as_ref().map(|pending| (pending.next_attempt_at, self.created_at))
    }

    /// The participant and the rail: on an ordered rail, what must leave in sequence.
    pub(crate) fn stream(&self) -> (usize, usize) {
        (self.what.participant, self.what.rail)
    }
}

/// The code of an attempt that the rail has accepted, and the default of confirm_every_seconds.
pub(crate) const ACCEPTED: &str = "AWAITING_CONFIRMATION";
const CONFIRM_EVERY_SECONDS: i64 = 300;

fn is_unknown(error_code: Option<&str>) -> bool {
    matches!(error_code, Some("OUTCOME_UNKNOWN" | "LEASE_EXPIRED" | ACCEPTED))
}

/// How one lease is to end.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(crate) outbox: OutboxNo,
    pub(crate) outcome: AttemptState,
    pub(crate) error_code: Option<String>,
    pub(crate) rail_reference: Option<String>,
    pub(crate) delay_seconds: Option<i32>,
}

impl Ending {
    /// The end of an expired lease.
    pub(crate) fn expiry(outbox: OutboxNo, delay_seconds: Option<i32>) -> Self {
        Self {
            outbox,
            outcome: AttemptState::ZombieRequeue,
            error_code: Some("LEASE_EXPIRED".to_owned()),
            rail_reference: None,
            delay_seconds,
        }
    }
}

/// The state of the lane at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) rails: BTreeMap<usize, Policy>,
    pub(crate) next_sequence: BTreeMap<usize, i64>,
    pub(crate) outboxes: BTreeMap<OutboxNo, Outbox>,
    /// Leases by number, with the outbox and the worker they were granted for.
    pub(crate) granted: BTreeMap<LeaseNo, (OutboxNo, String)>,
    pub(crate) given_back: BTreeSet<LeaseNo>,
}

impl State {
    pub(crate) fn pending(&self) -> impl Iterator<Item = (OutboxNo, &Outbox)> {
        self.outboxes.iter().filter(|(_, outbox)| outbox.pending.is_some()).map(|(&no, outbox)| (no, outbox))
    }

    pub(crate) fn ordered(&self, outbox: &Outbox) -> bool {
        self.rails.get(&outbox.what.rail).is_some_and(|rail| rail.ordered)
    }

    /// Whether an earlier one of its stream is still pending.
    pub(crate) fn waits(&self, outbox: &Outbox) -> bool {
        self.pending().any(|(_, other)| other.stream() == outbox.stream() && other.sequence < outbox.sequence)
    }

    /// The newest outbox of a key: the pending one, or else the last that ended.
    pub(crate) fn of_key(&self, key: usize) -> Option<OutboxNo> {
        let of_key = self.outboxes.iter().filter(|(_, outbox)| outbox.what.key == key);
        of_key.max_by_key(|(_, outbox)| outbox.sequence).map(|(&no, _)| no)
    }

    /// Enqueues all, or none. New outboxes are numbered from `fresh` on.
    pub(crate) fn enqueue(
        &mut self,
        given: &[Instruction],
        now: Micros,
        mut fresh: OutboxNo,
    ) -> Result<Vec<Enqueued>, Refusal> {
        for instruction in given {
            if instruction.malformed {
                return Err("P7005");
            } else if !self.rails.contains_key(&instruction.rail) {
                return Err("P7006");
            }
        }
        let mut answers = Vec::new();
        for instruction in given {
            let known = self.of_key(instruction.key);
            let no = match known {
                Some(no) if self.outboxes[&no].what == *instruction => no,
                Some(_) => return Err("P7004"),
                None => {
                    let no = fresh;
                    fresh += 1;
                    self.add(no, instruction.clone(), now, None);
                    no
                }
            };
            let outbox = &self.outboxes[&no];
            answers.push(Enqueued {
                outbox: no,
                sequence: outbox.sequence,
                created_at: outbox.created_at,
                replayed: known.is_some(),
            });
        }
        Ok(answers)
    }

    fn add(&mut self, no: OutboxNo, what: Instruction, now: Micros, redrive_of: Option<OutboxNo>) {
        let next = self.next_sequence.entry(what.participant).or_insert(1);
        let sequence = *next;
        *next += 1;
        let pending = Pending { attempt_count: 0, next_attempt_at: now, or_lifted_to: None, lease: None };
        let outbox = Outbox {
            what,
            sequence,
            created_at: now,
            redrive_of,
            redriven_as: None,
            resolutions: Vec::new(),
            attempts: Vec::new(),
            pending: Some(pending),
        };
        self.outboxes.insert(no, outbox);
    }

    /// Whether a worker has a row under this token.
    pub(crate) fn holds(&self, hold: &LeaseRef, worker: &str, now: Micros) -> bool {
        let lease = self.outboxes.get(&hold.outbox).and_then(|outbox| outbox.live_lease(now));
        lease.is_some_and(|lease| hold.lease == Some(lease.no) && lease.worker == worker)
    }

    /// Records the valid outcomes and returns a refusal for the others.
    pub(crate) fn complete(
        &mut self,
        outcomes: &[Outcome],
        worker: &str,
        now: Micros,
    ) -> Vec<Result<Completed, Refusal>> {
        let mut endings = BTreeMap::new();
        for (place, outcome) in outcomes.iter().enumerate() {
            let Some(state) = outcome.attempt_state() else { continue };
            if outcome.argument_in_range() && self.holds(&outcome.hold, worker, now) {
                // The same outbox twice: the first is recorded.
                endings.entry(outcome.hold.outbox).or_insert((place, outcome.ending(state, place)));
            }
        }
        let (places, endings): (Vec<_>, Vec<_>) = endings.into_values().unzip();
        let settled = self.settle(endings, now);
        let recorded: BTreeMap<_, _> = places.into_iter().zip(settled).collect();
        let answer = |(place, outcome): (usize, &Outcome)| match recorded.get(&place) {
            Some(completed) => Ok(completed.clone()),
            None if outcome.attempt_state().is_none() => Err("P7003"),
            None if !outcome.argument_in_range() => Err("P7005"),
            None if self.outboxes.get(&outcome.hold.outbox).is_some_and(|o| o.ended_as().is_some()) => {
                Err("P7001")
            }
            None => Err("P7002"),
        };
        outcomes.iter().enumerate().map(answer).collect()
    }

    /// Ends leases: one ledger row each, and the row goes or is scheduled again.
    pub(crate) fn settle(&mut self, endings: Vec<Ending>, now: Micros) -> Vec<Completed> {
        let mut settled = Vec::new();
        let mut ended = Vec::new();
        for ending in endings {
            let Some(outbox) = self.outboxes.get_mut(&ending.outbox) else { continue };
            let policy = &self.rails[&outbox.what.rail];
            let Some(pending) = outbox.pending.as_mut() else { continue };
            let Some(lease) = pending.lease.take() else { continue };
            let no = outbox.attempts.last().map_or(0, |last| last.no) + 1;
            let exhausted = !ending.outcome.terminal() && no >= policy.max_attempts;
            // Once accepted, it is never sent again: every retry only inquires.
            let accepted = ending.outcome == AttemptState::Retryable
                && (ending.error_code.as_deref() == Some(ACCEPTED)
                    || outbox.attempts.iter().any(|attempt| attempt.error_code.as_deref() == Some(ACCEPTED)));
            let state = if exhausted { AttemptState::Failed } else { ending.outcome };
            let backoff = i64::from(policy.backoff_base_seconds) << (no - 1);
            let again_at = match (state, ending.delay_seconds) {
                (AttemptState::Dispatched | AttemptState::Failed, _) => None,
                (_, Some(delay)) => Some(now + i64::from(delay) * SECOND),
                // Taken over: the same call claims it again.
                (AttemptState::ZombieRequeue, None) => Some(pending.next_attempt_at),
                (AttemptState::Retryable, None) if accepted => Some(now + CONFIRM_EVERY_SECONDS * SECOND),
                (AttemptState::Retryable, None) => {
                    Some(now + backoff.min(i64::from(policy.backoff_cap_seconds)) * SECOND)
                }
            };
            // An unknown outcome stays unknown, also at max_attempts.
            let error_code = match (exhausted, accepted) {
                (true, true) => Some("OUTCOME_UNKNOWN".to_owned()),
                (false, true) => Some(ACCEPTED.to_owned()),
                (true, false) if !is_unknown(ending.error_code.as_deref()) => Some("RETRIES_EXHAUSTED".to_owned()),
                (_, false) => ending.error_code,
            };
            outbox.attempts.push(Attempt {
                no,
                state,
                error_code,
                rail_reference: ending.rail_reference,
                worker: lease.worker.clone(),
                claimed_at: lease.claimed_at,
                completed_at: now,
            });
            if let Some(at) = again_at {
                pending.attempt_count = pending.attempt_count.max(no);
                pending.next_attempt_at = at;
            } else {
                outbox.pending = None;
                ended.push(ending.outbox);
            }
            settled.push(Completed {
                outbox: ending.outbox,
                attempt_no: no,
                state,
                next_attempt_at: again_at,
                worker: lease.worker,
            });
        }
        for no in ended {
            self.put_back_behind(no, now);
        }
        settled
    }

    /// On an ordered rail, the next of the stream may have been parked and is then due from now on.
    fn put_back_behind(&mut self, ended: OutboxNo, now: Micros) {
        let outbox = &self.outboxes[&ended];
        let (stream, sequence) = (outbox.stream(), outbox.sequence);
        if !self.ordered(outbox) {
            return;
        }
        let behind = self.outboxes.values_mut().filter(|other| {
            let unleased = other.pending.as_ref().is_some_and(|pending| pending.lease.is_none());
            unleased && other.stream() == stream && other.sequence > sequence
        });
        let next = behind.min_by_key(|other| other.sequence).and_then(|next| next.pending.as_mut());
        if let Some(next) = next {
            next.or_lifted_to = Some(now.max(next.next_attempt_at));
        }
    }

    /// Renews leases; returns the new expiry, or `None` for a lost lease. Each token is checked alone.
    pub(crate) fn renew(
        &mut self,
        leases: &[LeaseRef],
        worker: &str,
        seconds: i32,
        now: Micros,
    ) -> Vec<Option<Micros>> {
        let renew = |hold: &LeaseRef| {
            let held = self.holds(hold, worker, now);
            let lease = self.lease_mut(hold.outbox).filter(|_| held)?;
            lease.expires_at = lease.expires_at.max(now + i64::from(seconds) * SECOND);
            Some(lease.expires_at)
        };
        leases.iter().map(renew).collect()
    }

    /// Releases leases; returns which.
    pub(crate) fn release(
        &mut self,
        leases: &[LeaseRef],
        worker: &str,
        delay: Option<i32>,
        now: Micros,
    ) -> Vec<bool> {
        let held: Vec<_> = leases.iter().map(|hold| self.holds(hold, worker, now)).collect();
        for (hold, _) in leases.iter().zip(&held).filter(|(_, held)| **held) {
            let Some(pending) = self.pending_mut(hold.outbox) else { continue };
            pending.lease = None;
            if let Some(delay) = delay {
                pending.next_attempt_at = now + i64::from(delay) * SECOND;
            }
            self.given_back.extend(hold.lease);
        }
        held
    }

    /// Redrives a terminal failure as the outbox `fresh`.
    pub(crate) fn redrive(&mut self, no: OutboxNo, now: Micros, fresh: OutboxNo) -> Result<Enqueued, Refusal> {
        let failure = self.failure(no)?;
        let resolution = failure.resolutions.last().copied();
        let settled = matches!(resolution, Some("PAID" | "SKIPPED"));
        if settled || failure.outcome_unknown() && resolution != Some("NOT_PAID") {
            return Err("P7003");
        }
        let what = failure.what.clone();
        self.add(fresh, what, now, Some(no));
        if let Some(failure) = self.outboxes.get_mut(&no) {
            failure.redriven_as = Some(fresh);
        }
        let sequence = self.outboxes[&fresh].sequence;
        Ok(Enqueued { outbox: fresh, sequence, created_at: now, replayed: false })
    }

    /// Records the resolution of an operator.
    pub(crate) fn resolve(&mut self, no: OutboxNo, resolution: &'static str) -> Result<(), Refusal> {
        let failure = self.failure(no)?;
        let before = failure.resolutions.last().copied();
        let corrected = before == Some("NOT_PAID") && resolution != "NOT_PAID";
        let again = before.is_some() && !corrected;
        if again || resolution == "SKIPPED" && before.is_none() && failure.outcome_unknown() {
            return Err("P7003");
        }
        if let Some(failure) = self.outboxes.get_mut(&no) {
            failure.resolutions.push(resolution);
        }
        Ok(())
    }

    /// The terminal failure that an operator may act on: the newest of its key.
    fn failure(&self, no: OutboxNo) -> Result<&Outbox, Refusal> {
        let outbox = self.outboxes.get(&no).ok_or("P7005")?;
        let open = outbox.ended_as() == Some(AttemptState::Failed) && outbox.redriven_as.is_none();
        if open { Ok(outbox) } else { Err("P7003") }
    }

    pub(crate) fn pending_mut(&mut self, no: OutboxNo) -> Option<&mut Pending> {
        self.outboxes.get_mut(&no)?.pending.as_mut()
    }

    pub(crate) fn lease_mut(&mut self, no: OutboxNo) -> Option<&mut Lease> {
        self.pending_mut(no)?.lease.as_mut()
    }
}
