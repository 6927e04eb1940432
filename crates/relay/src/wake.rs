//! When to claim: at once when work is known, soon after a ring, and now and then in any case.
//!
//! The engine is *awake* while claims bring much: it claims again at once while they come back full, else a window
//! later, and writers need not ring. When a claim brings little or nothing it goes to *sleep*: the bell is armed, one more
//! claim finds what was committed in between, and after that it wakes by a ring, by the next scheduled row, or by the poll. A ring
//! that brings a row or two leaves it asleep with the bell armed, so that sparse work costs one claim; rings that
//! come thick or bring much wake it up. Thick is what a claim for each would not keep up with: so many within a window.
//!
//! It decides and remembers; it calls nobody. Whether there is room for a claim is not its business.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lane::LaneError;

/// How many claims caused by rings within one window are too many: at 25 ms, more than some 300 a second.
const THICK: usize = 8;

/// Why a claim is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The last one came back full.
    Full,
    /// The bell was armed: a last look before going to sleep.
    LastLook,
    /// The bell rang.
    Rung,
    /// A slot came free that rows may be waiting for, or a route may be tried again.
    Room,
    /// The last one failed.
    Retry,
    /// A scheduled row is due.
    Due,
    /// It is time to look.
    Poll,
    /// The last one brought something, so there may be more by now.
    FollowUp,
}

/// The parts of [`Settings`](crate::settings::Settings) that matter here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    pub(crate) window: Duration,
    pub(crate) poll: Option<Duration>,
    /// Whether there is a bell.
    pub(crate) bell: bool,
}

/// What the engine knows about work that waits.
#[derive(Debug)]
pub(crate) struct Wake {
    rhythm: Rhythm,
    asleep: bool,
    armed: bool,
    claiming: Option<Cause>,
    /// The last claim was full.
    full: bool,
    /// The bell was armed and nobody has looked since.
    look: bool,
    rung: bool,
    nudged: Option<Cause>,
    began: Option<Instant>,
    /// When the last claims began that were caused by a ring, the latest last.
    rung_claims: VecDeque<Instant>,
    /// Rings since the last claim began.
    rings: usize,
    /// Rings come thick.
    thick: bool,
    /// The last claim that was caused by a ring brought little.
    little: bool,
    poll_at: Option<Instant>,
    not_before: Instant,
    pub(crate) backoff: Backoff,
    due: Due,
}

/// What is known about the next scheduled row.
#[derive(Debug)]
struct Due {
    at: Option<Instant>,
    /// Something happened since the database was asked last that may have changed it.
    stale: bool,
    asking: bool,
    not_before: Instant,
}

impl Wake {
    pub(crate) fn new(rhythm: Rhythm, now: Instant) -> Self {
        Self {
            rhythm,
            asleep: false,
            armed: false,
            claiming: None,
            full: false,
            look: false,
            rung: false,
            nudged: None,
            began: None,
            rung_claims: VecDeque::with_capacity(THICK),
            rings: 0,
            thick: false,
            little: false,
            poll_at: rhythm.poll.map(|poll| now + poll),
            not_before: now,
            backoff: Backoff::of_calls(),
            due: Due { at: None, stale: true, asking: false, not_before: now },
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
        let known = |known: bool| known.then_some(self.not_before);
        let after = |at: Option<Instant>| at.map(|at| at.max(self.not_before));
        let idle = self.claiming.is_none();
        let window = self.rhythm.window;
        let spaced = match self.rung_claims.back() {
            Some(last) if self.little && self.thick => *last + window,
            _ => self.not_before,
        };
        let follow_up = (!self.asleep).then(|| self.began.map_or(self.not_before, |began| began + window));
        [
            (known(idle && self.full), Cause::Full),
            (known(idle && self.look), Cause::LastLook),
            (after((idle && self.rung).then_some(spaced)), Cause::Rung),
            (known(idle && self.nudged.is_some()), self.nudged.unwrap_or(Cause::Room)),
            (after(self.due.at.filter(|_| idle)), Cause::Due),
            (after(self.poll_at.filter(|_| idle)), Cause::Poll),
            (after(follow_up.filter(|_| idle)), Cause::FollowUp),
        ]
    }

    /// A claim is sent. It sees whatever was committed before, so every reason up to now is served by it.
    pub(crate) fn claiming(&mut self, cause: Cause, now: Instant) {
        self.claiming = Some(cause);
        (self.full, self.look, self.rung, self.nudged) = (false, false, false, None);
        self.began = Some(now);
        let rings = std::mem::take(&mut self.rings);
        if cause == Cause::Rung {
            if self.rung_claims.len() == THICK {
                self.rung_claims.pop_front();
            }
            self.rung_claims.push_back(now);
            // Once claims are spaced they are few, and it is the rings in between that tell.
            self.thick = self.is_thick() || self.thick && rings >= THICK / 2;
        }
        self.poll_at = self.rhythm.poll.map(|poll| now + poll);
        if self.due.at.is_some_and(|at| at <= now) {
            self.due.at = None;
            self.due.stale = true;
        }
    }

    /// A claim came back: so many of those that it asked for were started.
    pub(crate) fn claimed(&mut self, asked: usize, started: usize, now: Instant) {
        let cause = self.claiming.take();
        let full = started >= asked;
        let little = started.saturating_mul(4) < asked;
        if cause == Some(Cause::Rung) {
            self.little = little;
        }
        if cause == Some(Cause::Due) && started == 0 {
            // Somebody else took that row, or it cannot be claimed now. Asking at once could go on for ever.
            self.due.not_before = now + self.rhythm.poll.unwrap_or(Duration::from_millis(500));
        }
        self.full = full;
        self.asleep = if full {
            false
        } else if started == 0 {
            true
        } else if self.armed {
            little && !(cause == Some(Cause::Rung) && self.thick)
        } else {
            // So few within a window could as well ring, and need not wait for the next one then.
            started < THICK
        };
    }

    /// Whether rings caused so many claims that they are better gathered.
    fn is_thick(&self) -> bool {
        match (self.rung_claims.front(), self.rung_claims.back()) {
            (Some(first), Some(last)) if self.rung_claims.len() == THICK => {
                last.duration_since(*first) <= self.rhythm.window
            }
            _ => false,
        }
    }

    /// A claim failed. How long to leave the database alone.
    pub(crate) fn claim_failed(&mut self, error: &LaneError, now: Instant) {
        self.claiming = None;
        self.nudged = Some(Cause::Retry);
        self.not_before = now + self.backoff.after(error);
    }

    /// Whether the bell should be armed.
    pub(crate) fn wants_bell(&self) -> bool {
        self.rhythm.bell && self.asleep
    }

    /// The bell is armed, perhaps anew: what was committed before did not ring, so somebody has to look.
    pub(crate) fn armed(&mut self, anew: bool) {
        self.look |= anew || !self.armed;
        self.armed = true;
    }

    /// The bell is not armed any more.
    pub(crate) fn disarmed(&mut self) {
        self.armed = false;
    }

    /// The bell rang.
    pub(crate) fn rang(&mut self) {
        self.rung = true;
        self.rings += 1;
    }

    /// There is room where there was none.
    pub(crate) fn nudge(&mut self) {
        self.nudged.get_or_insert(Cause::Room);
    }

    /// Something was scheduled.
    pub(crate) fn scheduled(&mut self) {
        self.due.stale = true;
    }

    /// Whether to ask now when the next scheduled row is due: about to sleep, and it may have changed.
    pub(crate) fn asks_due(&self, now: Instant) -> bool {
        self.next_due_question().is_some_and(|at| at <= now) && self.cause(now).is_none()
    }

    /// When to ask, if nothing else happens.
    pub(crate) fn next_due_question(&self) -> Option<Instant> {
        let asks = self.asleep && self.claiming.is_none() && self.due.stale && !self.due.asking;
        asks.then_some(self.due.not_before.max(self.not_before))
    }

    /// The question is sent.
    pub(crate) fn asking_due(&mut self) {
        (self.due.asking, self.due.stale) = (true, false);
    }

    /// The answer came. Counted from now rather than from when it was asked, so that nobody wakes too early.
    pub(crate) fn due_in(&mut self, wait: Option<Duration>, now: Instant) {
        self.due.asking = false;
        self.due.at = wait.map(|wait| now + wait);
    }

    /// No answer came.
    pub(crate) fn due_failed(&mut self, now: Instant) {
        (self.due.asking, self.due.stale) = (false, true);
        self.due.not_before = now + Duration::from_secs(1);
    }
}
