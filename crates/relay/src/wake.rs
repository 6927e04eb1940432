//! When to claim: at once while work is due, soon after a notification, and at every poll interval.
//!
//! An engine is *busy* while claims return many rows: it claims again at once after a full claim, else one debounce
//! interval later, and producers need not notify. After a claim with few or no rows it becomes *idle*: it arms the
//! listener, claims once more for what was committed in between, and then waits for a notification, the next scheduled
//! row or the poll. A notification for a row or two leaves it idle with the listener armed, so that sparse work costs
//! one claim per row. A burst of notifications, or one that leads to many rows, makes it busy. A burst is [`BURST`]
//! claims within a debounce interval.
//!
//! This module makes no calls and reads no clock. Whether there is capacity for a claim is decided elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::call_backoff::CallBackoff;
use crate::lane::LaneError;

/// How many claims within one debounce interval make a burst of notifications: at 25 ms, more than about 300 a second.
const BURST: usize = 8;

/// Why a claim is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The last claim was full.
    Full,
    /// The listener was armed: one claim finds what was committed before.
    Armed,
    /// A notification arrived.
    Notified,
    /// A slot that rows may wait for came free, or a circuit breaker is half-open or closed.
    Capacity,
    /// The last claim failed.
    Retry,
    /// A scheduled row is due.
    Due,
    /// The poll interval has passed.
    Poll,
    /// The last claim returned rows, so more may be due by now.
    FollowUp,
}

/// The settings of the wake-up logic, from [`Settings`](crate::settings::Settings).
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakeSettings {
    pub(crate) debounce: Duration,
    pub(crate) poll: Option<Duration>,
    /// Whether there is a listener.
    pub(crate) listener: bool,
}

/// What the engine knows about due work.
#[derive(Debug)]
pub(crate) struct Wake {
    settings: WakeSettings,
    idle: bool,
    armed: bool,
    claiming: Option<Cause>,
    /// The last claim was full.
    full: bool,
    /// The listener was armed and no claim was sent since.
    claim_after_arm: bool,
    notified: bool,
    /// There is capacity again, or a claim failed.
    requested: Option<Cause>,
    /// When the last claim was sent.
    last_claim: Option<Instant>,
    /// When the last claims caused by a notification began, the latest last.
    notified_claims: VecDeque<Instant>,
    /// Notifications since the last claim began.
    notifications: usize,
    /// Notifications arrive in a burst.
    burst: bool,
    /// The last claim caused by a notification returned few rows.
    few_rows: bool,
    poll_at: Option<Instant>,
    not_before: Instant,
    pub(crate) backoff: CallBackoff,
    due: Due,
}

/// What is known about the next scheduled row.
#[derive(Debug)]
struct Due {
    at: Option<Instant>,
    /// It may have changed since the last lookup.
    stale: bool,
    in_flight: bool,
    not_before: Instant,
}

impl Wake {
    pub(crate) fn new(settings: WakeSettings, now: Instant) -> Self {
        Self {
            settings,
            idle: false,
            armed: false,
            claiming: None,
            full: false,
            claim_after_arm: false,
            notified: false,
            requested: None,
            last_claim: None,
            notified_claims: VecDeque::with_capacity(BURST),
            notifications: 0,
            burst: false,
            few_rows: false,
            poll_at: settings.poll.map(|poll| now + poll),
            not_before: now,
            backoff: CallBackoff::with_defaults(),
            due: Due { at: None, stale: true, in_flight: false, not_before: now },
        }
    }

    /// The reason to claim now, if there is one.
    pub(crate) fn cause(&self, now: Instant) -> Option<Cause> {
        self.causes().into_iter().find(|(at, _)| at.is_some_and(|at| at <= now)).map(|(_, cause)| cause)
    }

    /// When there will be a reason to claim, if nothing else happens.
    pub(crate) fn next_claim(&self) -> Option<Instant> {
        self.causes().into_iter().filter_map(|(at, _)| at).min()
    }

    /// Each reason with its time. The first that has come wins.
    fn causes(&self) -> [(Option<Instant>, Cause); 7] {
        let at_once = |wanted: bool| wanted.then_some(self.not_before);
        let after = |at: Option<Instant>| at.map(|at| at.max(self.not_before));
        let can_claim = self.claiming.is_none();
        let debounce = self.settings.debounce;
        let spaced = match self.notified_claims.back() {
            Some(last) if self.few_rows && self.burst => *last + debounce,
            _ => self.not_before,
        };
        let follow_up = (!self.idle).then(|| self.last_claim.map_or(self.not_before, |sent| sent + debounce));
        [
            (at_once(can_claim && self.full), Cause::Full),
            (at_once(can_claim && self.claim_after_arm), Cause::Armed),
            (after((can_claim && self.notified).then_some(spaced)), Cause::Notified),
            (at_once(can_claim && self.requested.is_some()), self.requested.unwrap_or(Cause::Capacity)),
            (after(self.due.at.filter(|_| can_claim)), Cause::Due),
            (after(self.poll_at.filter(|_| can_claim)), Cause::Poll),
            (after(follow_up.filter(|_| can_claim)), Cause::FollowUp),
        ]
    }

    /// A claim is sent. It sees everything committed before, so it serves every cause up to now.
    pub(crate) fn claiming(&mut self, cause: Cause, now: Instant) {
        self.claiming = Some(cause);
        (self.full, self.claim_after_arm, self.notified, self.requested) = (false, false, false, None);
        self.last_claim = Some(now);
        let notifications = std::mem::take(&mut self.notifications);
        if cause == Cause::Notified {
            if self.notified_claims.len() == BURST {
                self.notified_claims.pop_front();
            }
            self.notified_claims.push_back(now);
            // Spaced claims are few, so the notifications between them show whether the burst continues.
            self.burst = self.is_burst() || self.burst && notifications >= BURST / 2;
        }
        self.poll_at = self.settings.poll.map(|poll| now + poll);
        if self.due.at.is_some_and(|at| at <= now) {
            self.due.at = None;
            self.due.stale = true;
        }
    }

    /// A claim returned: `started` of the `asked` rows were started.
    pub(crate) fn claimed(&mut self, asked: usize, started: usize, now: Instant) {
        let cause = self.claiming.take();
        let full = started >= asked;
        let few = started.saturating_mul(4) < asked;
        if cause == Some(Cause::Notified) {
            self.few_rows = few;
        }
        if cause == Some(Cause::Due) && started == 0 {
            // Another worker claimed that row, or it cannot be claimed now. A lookup at once could loop.
            self.due.not_before = now + self.settings.poll.unwrap_or(Duration::from_millis(500));
        }
        self.full = full;
        self.idle = if full {
            false
        } else if started == 0 {
            true
        } else if self.armed {
            few && !(cause == Some(Cause::Notified) && self.burst)
        } else {
            // Few enough per debounce interval for notifications, which need not wait for the next interval.
            started < BURST
        };
    }

    /// Whether notifications cause [`BURST`] claims within a debounce interval, so that they should be debounced.
    fn is_burst(&self) -> bool {
        match (self.notified_claims.front(), self.notified_claims.back()) {
            (Some(first), Some(last)) if self.notified_claims.len() == BURST => {
                last.duration_since(*first) <= self.settings.debounce
            }
            _ => false,
        }
    }

    /// A claim failed and is retried after a backoff.
    pub(crate) fn claim_failed(&mut self, error: &LaneError, now: Instant) {
        self.claiming = None;
        self.requested = Some(Cause::Retry);
        self.not_before = now + self.backoff.failed_with(error);
    }

    /// Whether the listener should be armed.
    pub(crate) fn wants_notifications(&self) -> bool {
        self.settings.listener && self.idle
    }

    /// The listener is armed, perhaps again: earlier commits were not notified, so one more claim follows.
    pub(crate) fn armed(&mut self, rearmed: bool) {
        self.claim_after_arm |= rearmed || !self.armed;
        self.armed = true;
    }

    /// The listener is no longer armed.
    pub(crate) fn disarmed(&mut self) {
        self.armed = false;
    }

    /// A notification arrived.
    pub(crate) fn notified(&mut self) {
        self.notified = true;
        self.notifications += 1;
    }

    /// There is capacity for rows that may be waiting for it.
    pub(crate) fn capacity_freed(&mut self) {
        self.requested.get_or_insert(Cause::Capacity);
    }

    /// A row was scheduled.
    pub(crate) fn scheduled(&mut self) {
        self.due.stale = true;
    }

    /// Whether to look up now when the next scheduled row is due: the engine is idle, and the answer may have changed.
    pub(crate) fn is_next_due_lookup_due(&self, now: Instant) -> bool {
        self.next_due_lookup().is_some_and(|at| at <= now) && self.cause(now).is_none()
    }

    /// When to look it up, if nothing else happens.
    pub(crate) fn next_due_lookup(&self) -> Option<Instant> {
        let wanted = self.idle && self.claiming.is_none() && self.due.stale && !self.due.in_flight;
        wanted.then_some(self.due.not_before.max(self.not_before))
    }

    /// The lookup is sent.
    pub(crate) fn next_due_lookup_sent(&mut self) {
        (self.due.in_flight, self.due.stale) = (true, false);
    }

    /// The lookup returned. The wait counts from now rather than from the call, so that the engine does not wake too
    /// early.
    pub(crate) fn next_due_in(&mut self, wait: Option<Duration>, now: Instant) {
        self.due.in_flight = false;
        self.due.at = wait.map(|wait| now + wait);
    }

    /// The lookup failed.
    pub(crate) fn next_due_failed(&mut self, now: Instant) {
        (self.due.in_flight, self.due.stale) = (false, true);
        self.due.not_before = now + Duration::from_secs(1);
    }
}
