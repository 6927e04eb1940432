//! The state of one breaker, and how it changes.

use std::time::Duration;

use tokio::time::Instant;

use crate::lane::RouteSignal;

use super::{Admission, Attempt, BreakerState, ClaimLimit, PROBES, Policy};

/// The state of one breaker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Breaker {
    /// The route works, as far as known.
    Closed {
        /// Rows that failed at their first attempt since the last answer.
        first: u32,
        /// Rows that failed again since then.
        repeated: u32,
        /// When the first of these failures was.
        since: Instant,
    },
    /// A row may probe the route, or is probing it.
    HalfOpen {
        probing: bool,
        /// Whether the next probe may be any row, because a claim found none that had not been attempted.
        any_row: bool,
        /// The probes that have failed, and those of them that were first attempts.
        failed: u32,
        failed_first: u32,
        /// How long the pause is if the probes fail.
        pause: Duration,
    },
    /// Nothing is dispatched until then.
    Open {
        until: Instant,
        pause: Duration,
        /// Whether a row that has not been attempted may probe the route before.
        early_probe: EarlyProbe,
    },
}

/// Whether a row that has not been attempted may probe a route before its pause ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyProbe {
    Allowed,
    Running,
    /// Such a row has failed.
    Refused,
}

impl Breaker {
    pub(super) fn closed(now: Instant) -> Self {
        Self::Closed { first: 0, repeated: 0, since: now }
    }

    fn half_open(pause: Duration) -> Self {
        Self::HalfOpen { probing: false, any_row: false, failed: 0, failed_first: 0, pause }
    }

    pub(super) fn public_state(&self) -> BreakerState {
        match self {
            Self::Closed { .. } => BreakerState::Closed,
            Self::HalfOpen { .. } => BreakerState::HalfOpen,
            Self::Open { .. } => BreakerState::Open,
        }
    }

    /// Whether nothing has failed since the last answer.
    pub(super) fn is_untroubled(&self) -> bool {
        matches!(self, Self::Closed { first: 0, repeated: 0, .. })
    }

    pub(super) fn limit(&self) -> Option<ClaimLimit> {
        match self {
            Self::Closed { .. } => None,
            Self::HalfOpen { probing: false, any_row: true, .. } => Some(ClaimLimit::One),
            Self::HalfOpen { probing: false, any_row: false, .. }
            | Self::Open { early_probe: EarlyProbe::Allowed, .. } => Some(ClaimLimit::FirstAttempt),
            Self::HalfOpen { probing: true, .. }
            | Self::Open { early_probe: EarlyProbe::Running | EarlyProbe::Refused, .. } => {
                Some(ClaimLimit::Nothing)
            }
        }
    }

    pub(super) fn admit(&mut self, is_first: bool) -> Admission {
        match self {
            Self::Closed { .. } => Admission::Start,
            Self::HalfOpen { probing, .. } if !*probing => {
                *probing = true;
                Admission::Probe
            }
            Self::Open { early_probe, .. } if is_first && *early_probe == EarlyProbe::Allowed => {
                *early_probe = EarlyProbe::Running;
                Admission::Probe
            }
            Self::HalfOpen { .. } | Self::Open { .. } => Admission::Refuse,
        }
    }

    pub(super) fn found_no_row(&mut self, asked: ClaimLimit) -> bool {
        match self {
            Self::HalfOpen { probing: false, any_row, .. } => {
                // Without any row, wait for the first that comes, and prefer one that has not been attempted again.
                *any_row = !*any_row && asked == ClaimLimit::FirstAttempt;
                *any_row
            }
            Self::Closed { .. } | Self::HalfOpen { .. } | Self::Open { .. } => false,
        }
    }

    pub(super) fn wants_probe(&self) -> bool {
        matches!(self, Self::HalfOpen { probing: false, .. })
    }

    /// The state after the result of a dispatch.
    pub(super) fn after(self, attempt: Attempt, signal: RouteSignal, now: Instant, policy: &Policy) -> Self {
        match (self, signal) {
            (Self::Closed { .. }, RouteSignal::Healthy) => Self::closed(now),
            (Self::Closed { first, repeated, since }, RouteSignal::Failing) => {
                let since = if first + repeated == 0 { now } else { since };
                let (first, repeated) =
                    if attempt.is_first { (first + 1, repeated) } else { (first, repeated.saturating_add(1)) };
                let nothing_but_failures = now.duration_since(since) >= policy.open_for;
                if first >= policy.failures
                    || nothing_but_failures && first.saturating_add(repeated) >= policy.failures
                {
                    Self::half_open(policy.open_for)
                } else {
                    Self::Closed { first, repeated, since }
                }
            }
            (Self::HalfOpen { .. } | Self::Open { .. }, RouteSignal::Healthy) if attempt.probe => {
                Self::closed(now)
            }
            (Self::HalfOpen { failed, failed_first, pause, .. }, RouteSignal::Failing) if attempt.probe => {
                let (failed, failed_first) = (failed + 1, failed_first + u32::from(attempt.is_first));
                if failed < PROBES {
                    Self::HalfOpen { probing: false, any_row: false, failed, failed_first, pause }
                } else {
                    let early_probe = if failed_first == 0 { EarlyProbe::Allowed } else { EarlyProbe::Refused };
                    Self::Open { until: now + pause, pause, early_probe }
                }
            }
            (Self::Open { until, pause, .. }, RouteSignal::Failing) if attempt.probe => {
                Self::Open { until, pause, early_probe: EarlyProbe::Refused }
            }
            (Self::HalfOpen { failed, failed_first, pause, .. }, RouteSignal::Neutral) if attempt.probe => {
                Self::HalfOpen { probing: false, any_row: false, failed, failed_first, pause }
            }
            (Self::Open { until, pause, .. }, RouteSignal::Neutral) if attempt.probe => {
                Self::Open { until, pause, early_probe: EarlyProbe::Allowed }
            }
            (same, RouteSignal::Healthy | RouteSignal::Failing | RouteSignal::Neutral) => same,
        }
    }

    /// Moves to half-open if the pause has ended.
    pub(super) fn end_pause(&mut self, now: Instant, policy: &Policy) -> bool {
        let Self::Open { pause, .. } = *self else { return false };
        let ended = self.pause_end().is_some_and(|until| until <= now);
        if ended {
            *self = Self::half_open(pause.saturating_mul(2).min(policy.max_open_for));
        }
        ended
    }

    /// When its pause ends. An early probe that is running decides first.
    pub(super) fn pause_end(&self) -> Option<Instant> {
        match self {
            Self::Open { until, early_probe: EarlyProbe::Allowed | EarlyProbe::Refused, .. } => Some(*until),
            Self::Open { early_probe: EarlyProbe::Running, .. } | Self::Closed { .. } | Self::HalfOpen { .. } => {
                None
            }
        }
    }
}
