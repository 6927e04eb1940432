//! Replays a finished run by the rules of the protocol: which step, if any, do they not allow?
//!
//! The rules are those of the model in `crates/model`. So what the model proves holds for the code as far as the code was
//! seen to follow them. A run is replayed attempt by attempt, then key by key against the requests that the bank has
//! handled, then stream by stream on ordered rails. It reports the first step that is not allowed.
//!
//! A lease that was released leaves no trace, and a renewal none either. An expiry is visible where it was recorded.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use jiff::Timestamp;

use super::explanation::{self, Past};
use super::rules::{self, Ending, FirstStep, History, PastAttempt};
use super::trace::{Attempt, Handled, Outbox, Policy, Request, Trace};

/// How much was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Attempts.
    pub attempts: usize,
    /// Requests to the bank.
    pub requests: usize,
    /// Attempts that began with an unknown outcome.
    pub unknown_outcomes: usize,
}

/// A step that the protocol does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// When it happened.
    pub at: Timestamp,
    /// The payment, by its idempotency key.
    pub key: String,
    /// What happened, and why it is not allowed.
    pub what: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the protocol does not allow this step of payment {:?} at {}: {}", self.key, self.at, self.what)
    }
}

/// Replays a run in which nothing is in flight any more.
///
/// # Errors
/// The first step in time that the protocol does not allow.
pub fn replay(trace: &Trace, requests: &[Request]) -> Result<Replayed, Deviation> {
    let mut replayed = Replayed::default();
    let mut deviations = Vec::new();
    let mut by_key: BTreeMap<&str, Vec<&Outbox>> = BTreeMap::new();
    for outbox in &trace.outboxes {
        by_key.entry(&outbox.key).or_default().push(outbox);
    }
    let mut requests_by_key: HashMap<&str, Vec<&Request>> = HashMap::new();
    for request in requests {
        requests_by_key.entry(&request.key).or_default().push(request);
    }
    for (key, outboxes) in &by_key {
        let requests = requests_by_key.get(key).map_or(&[][..], Vec::as_slice);
        match replay_key(trace, outboxes, requests) {
            Ok(of_key) => {
                replayed.attempts += of_key.attempts;
                replayed.requests += of_key.requests;
                replayed.unknown_outcomes += of_key.unknown_outcomes;
            }
            Err((at, what)) => deviations.push(Deviation { at, key: (*key).to_owned(), what }),
        }
    }
    deviations.extend(order(trace, requests));
    deviations.into_iter().min_by_key(|deviation| deviation.at).map_or(Ok(replayed), Err)
}

/// A step that is not allowed: when it happened, and what is wrong with it.
pub(super) type Step = (Timestamp, String);

/// One idempotency key: its outbox, and those that redrive it.
fn replay_key(trace: &Trace, outboxes: &[&Outbox], requests: &[&Request]) -> Result<Replayed, Step> {
    let mut pasts = Vec::new();
    for outbox in outboxes {
        let policies = trace.policies.get(&outbox.rail_type).map_or(&[][..], Vec::as_slice);
        replay_attempts(outbox, policies, &mut pasts)?;
    }
    let executed = requests.iter().filter(|request| request.outcome == Handled::Executed);
    if let Some(second) = executed.clone().nth(1) {
        return Err((second.at, "the bank executes it a second time".to_owned()));
    }
    explanation::explain(&pasts, requests)?;
    Ok(Replayed {
        attempts: pasts.len(),
        requests: requests.len(),
        unknown_outcomes: pasts.iter().filter(|past| !past.first.contains(&FirstStep::Send)).count(),
    })
}

/// The attempts of one outbox: numbers, leases, endings.
fn replay_attempts<'a>(outbox: &'a Outbox, policies: &'a [Policy], pasts: &mut Vec<Past<'a>>) -> Result<(), Step> {
    let most_attempts = policies.iter().map(|policy| policy.max_attempts).max().unwrap_or(i32::MAX);
    let mut previous: Option<&Attempt> = None;
    let mut history: Vec<PastAttempt<()>> = Vec::new();
    for attempt in &outbox.attempts {
        let number = attempt.number;
        let refused =
            |at: Timestamp, what: String| Err((at, format!("attempt {number}, of {}, {what}", attempt.worker)));
        let expected = rules::next_attempt_no(previous.map(|previous| previous.number));
        if number != expected {
            return refused(attempt.completed_at, format!("has this number although it is number {expected}"));
        }
        if attempt.completed_at < attempt.claimed_at {
            return refused(attempt.completed_at, "ends before it was claimed".to_owned());
        }
        if let Some(Err(what)) = previous.map(|previous| follow(previous, attempt)) {
            return refused(attempt.claimed_at, what);
        }
        if rules::recorded(attempt.ending, number, most_attempts) != attempt.ending {
            return refused(
                attempt.completed_at,
                format!("ends as {:?}, at the last attempt of its rail", attempt.ending),
            );
        }
        // The ledger does not tell the epoch of the enqueue: it is that of the lease, or an earlier one.
        let epoch = attempt.epoch;
        let enqueued_in = if epoch > 1 { vec![epoch, epoch - 1] } else { vec![epoch] };
        let known = |enqueued_in| History { enqueued_in, epoch, attempts: &history };
        let first = enqueued_in.into_iter().map(|enqueued_in| known(enqueued_in).first_step(&())).collect();
        pasts.push(Past { attempt, policies, first });
        history.push(PastAttempt { ending: attempt.ending, epoch, endpoint: () });
        previous = Some(attempt);
    }
    let terminal = previous.is_some_and(|previous| previous.ending.is_terminal());
    match previous {
        Some(last) if terminal && outbox.pending => {
            Err((last.completed_at, format!("attempt {} ends it, and it is still pending", last.number)))
        }
        Some(last) if !terminal && !outbox.pending => {
            Err((last.completed_at, format!("attempt {} does not end it, and it is not pending", last.number)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether an attempt may follow another: one lease at a time, and nothing after the end.
fn follow(previous: &Attempt, attempt: &Attempt) -> Result<(), String> {
    let number = previous.number;
    if previous.ending.is_terminal() {
        return Err(format!("follows attempt {number}, which ended it as {:?}", previous.ending));
    }
    if attempt.claimed_at == previous.claimed_at {
        return Err(format!("is under the lease that attempt {number} has ended as {:?}", previous.ending));
    }
    // A takeover records the end of the expired lease after its own transaction has begun, so the times of both overlap.
    let ended_at =
        if previous.ending == Ending::LeaseExpired { previous.claimed_at } else { previous.completed_at };
    if attempt.claimed_at < ended_at {
        return Err(format!("is claimed while attempt {number} is under way, until {}", previous.completed_at));
    }
    if attempt.completed_at < previous.completed_at {
        return Err(format!("ends before attempt {number}"));
    }
    Ok(())
}

/// The streams of ordered rails: no payment is executed before an earlier one that is executed at all.
fn order(trace: &Trace, requests: &[Request]) -> Vec<Deviation> {
    let ordered = |outbox: &&Outbox| {
        let policies = trace.policies.get(&outbox.rail_type);
        policies.is_some_and(|policies| policies.iter().all(|policy| policy.ordered))
    };
    let mut outboxes: HashMap<&str, &Outbox> = HashMap::new();
    for outbox in trace.outboxes.iter().filter(ordered) {
        // A redrive comes back later on purpose.
        outboxes.entry(&outbox.key).or_insert(outbox);
    }
    let mut streams: HashMap<(&str, &str), Vec<(i64, &Request)>> = HashMap::new();
    let mut executed = HashSet::new();
    for request in requests.iter().filter(|request| request.outcome == Handled::Executed) {
        // A second execution of a key is reported as such.
        if !executed.insert(&request.key) {
            continue;
        }
        let Some(outbox) = outboxes.get(request.key.as_str()) else { continue };
        streams
            .entry((&outbox.participant_id, &outbox.rail_type))
            .or_default()
            .push((outbox.sequence_id, request));
    }
    let mut deviations = Vec::new();
    for executions in streams.values() {
        for (place, (sequence_id, request)) in executions.iter().enumerate() {
            let earlier = executions[place..].iter().find(|(later, _)| later < sequence_id);
            if rules::is_next_in_order(true, earlier.is_some()) {
                continue;
            }
            let earlier = earlier.map_or(0, |(earlier, _)| *earlier);
            deviations.push(Deviation {
                at: request.at,
                key: request.key.clone(),
                what: format!(
                    "the bank executes number {sequence_id} of its participant before number {earlier}, on an ordered rail"
                ),
            });
        }
    }
    deviations
}
