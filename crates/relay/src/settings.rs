//! The settings of an engine, their defaults and their ranges.
//!
//! No value is clamped: [`Settings::check`] refuses a value out of range, with the name of the setting and the range.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::breaker;
use crate::lease::Term;

/// The settings of one engine. [`Settings::default`] suits most lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Dispatches that run at the same time in this process; 1 to 1024. The program `symphony run` does not use this
    /// default: it takes the one in `symphony.example.toml`, as for every setting.
    pub slots: usize,
    /// Lower limits for single routes: dispatches that run at the same time in this process; 1 to 1024 each.
    pub route_slots: BTreeMap<String, usize>,
    /// The maximum number of rows per claim; 1 to 1000.
    pub max_batch: usize,
    /// The debounce interval: the minimum time between two claims while the engine is busy or notifications arrive in a
    /// burst; 25 to 50 ms.
    pub debounce: Duration,
    /// The poll interval of an idle engine; 250 to 1000 ms. `None` is for tests.
    pub poll_interval: Option<Duration>,
    /// How long outcomes are batched before they are recorded in one call; at most 100 ms.
    pub flush_interval: Duration,
    /// The timeout of a database call; at least 100 ms, and below the lease.
    pub call_timeout: Duration,
    /// How long before a lease expires its dispatch is cancelled; at least 100 ms, and below a third of the lease.
    pub lease_margin: Duration,
    /// The time between two repairs of expired leases; 1 s to 1 h, or zero for never.
    pub repair_every: Duration,
    /// How long dispatches may run after the first stop request; at most 10 minutes.
    pub grace: Duration,
    /// When the circuit breaker of a route opens, and for how long.
    pub breaker: breaker::Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 64,
            route_slots: BTreeMap::new(),
            max_batch: 500,
            debounce: Duration::from_millis(25),
            poll_interval: Some(Duration::from_millis(500)),
            flush_interval: Duration::from_millis(5),
            call_timeout: Duration::from_secs(10),
            lease_margin: Duration::from_secs(3),
            repair_every: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            breaker: breaker::Policy::default(),
        }
    }
}

/// A setting out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}, and must be {range}")]
pub struct OutOfRange {
    /// The name of the setting.
    pub setting: String,
    /// Its value.
    pub value: String,
    /// The allowed range.
    pub range: String,
}

impl Settings {
    /// Checks every value, for a lane with leases of this term.
    ///
    /// # Errors
    ///
    /// The first setting out of its range.
    pub fn check(&self, term: Term) -> Result<(), OutOfRange> {
        const MS: Duration = Duration::from_millis(1);
        const S: Duration = Duration::from_secs(1);
        let lease = term.length();
        time("lease", lease, S, 3600 * S)?;
        count("slots", self.slots, 1024)?;
        for (route, slots) in &self.route_slots {
            count(&format!("route_slots.{route}"), *slots, 1024)?;
        }
        count("max_batch", self.max_batch, 1000)?;
        time("debounce", self.debounce, 25 * MS, 50 * MS)?;
        if let Some(poll) = self.poll_interval {
            time("poll_interval", poll, 250 * MS, S)?;
        }
        time("flush_interval", self.flush_interval, Duration::ZERO, 100 * MS)?;
        time("call_timeout", self.call_timeout, 100 * MS, lease.saturating_sub(MS))?;
        time("lease_margin", self.lease_margin, 100 * MS, (lease / 3).saturating_sub(MS))?;
        if !self.repair_every.is_zero() {
            time("repair_every", self.repair_every, S, 3600 * S)?;
        }
        time("grace", self.grace, Duration::ZERO, 600 * S)?;
        count("breaker.failures", self.breaker.failures as usize, 1000)?;
        time("breaker.open_for", self.breaker.open_for, 10 * MS, self.breaker.max_open_for)?;
        time("breaker.max_open_for", self.breaker.max_open_for, 10 * MS, 3600 * S)
    }
}

fn count(setting: &str, value: usize, most: usize) -> Result<(), OutOfRange> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(OutOfRange { setting: setting.to_owned(), value: value.to_string(), range: format!("1 to {most}") })
}

fn time(setting: &str, value: Duration, least: Duration, most: Duration) -> Result<(), OutOfRange> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let range = format!("{least:?} to {most:?}");
    Err(OutOfRange { setting: setting.to_owned(), value: format!("{value:?}"), range })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Term = Term::Renewable(Duration::from_secs(30));

    #[test]
    fn the_defaults_are_within_their_ranges() {
        assert_eq!(Settings::default().check(LEASE), Ok(()));
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_name() {
        let ms = Duration::from_millis;
        type Change = fn(&mut Settings);
        let wrong: [(&str, Change); 14] = [
            ("slots", |s| s.slots = 0),
            ("slots", |s| s.slots = 1025),
            ("route_slots.wire", |s| s.route_slots = BTreeMap::from([("wire".to_owned(), 0)])),
            ("max_batch", |s| s.max_batch = 1001),
            ("debounce", |s| s.debounce = Duration::from_millis(24)),
            ("debounce", |s| s.debounce = Duration::from_millis(51)),
            ("poll_interval", |s| s.poll_interval = Some(Duration::from_millis(249))),
            ("flush_interval", |s| s.flush_interval = Duration::from_millis(101)),
            ("call_timeout", |s| s.call_timeout = Duration::from_secs(30)),
            ("lease_margin", |s| s.lease_margin = Duration::from_secs(10)),
            ("repair_every", |s| s.repair_every = Duration::from_millis(1)),
            ("grace", |s| s.grace = Duration::from_secs(601)),
            ("breaker.failures", |s| s.breaker.failures = 0),
            ("breaker.open_for", |s| s.breaker.open_for = Duration::from_secs(61)),
        ];
        for (name, change) in wrong {
            let mut settings = Settings::default();
            change(&mut settings);
            let refusal = settings.check(LEASE).expect_err(name);
            assert_eq!(refusal.setting, name);
        }
        let short = Settings::default().check(Term::Renewable(Duration::from_secs(5)));
        assert_eq!(
            short.expect_err("longer than the lease").to_string(),
            "call_timeout is 10s, and must be 100ms to 4.999s"
        );
        let off = Settings {
            poll_interval: None,
            repair_every: Duration::ZERO,
            flush_interval: ms(0),
            ..Settings::default()
        };
        assert_eq!(off.check(LEASE), Ok(()));
    }
}
