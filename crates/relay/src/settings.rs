//! What can be set about an engine, its defaults and its limits.
//!
//! Nothing is clamped: a value out of range is refused with the name of the setting and the range.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::breaker;
use crate::lease::Term;

/// How an engine works. [`Settings::default`] is what a lane runs with unless somebody knows better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Dispatches that run at the same time in this process; 1 to 1024.
    pub slots: usize,
    /// Dispatches of one route that run at the same time in this process, where it is fewer; 1 to 1024 each.
    pub route_slots: BTreeMap<String, usize>,
    /// The most that one claim brings; 1 to 1000.
    pub batch: usize,
    /// How far wake-ups are spaced out when they come thick and bring little; 25 to 50 ms.
    pub window: Duration,
    /// How often to look for work without being woken; 250 to 1000 ms. `None` is for tests.
    pub poll: Option<Duration>,
    /// How long outcomes are gathered before they are recorded together; at most 100 ms.
    pub gather: Duration,
    /// How long a call to the database may take; 100 ms at least, and below the lease.
    pub call_timeout: Duration,
    /// How long before its end a lease counts as over for whoever works under it; 100 ms at least, and
    /// below a third of the lease.
    pub lease_margin: Duration,
    /// How often expired leases are looked for; 1 s to 1 h, or zero for never.
    pub repair_every: Duration,
    /// How long dispatches may go on after the first signal to stop; at most 10 minutes.
    pub grace: Duration,
    /// When a failing route is left alone, and for how long.
    pub breaker: breaker::Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: 64,
            route_slots: BTreeMap::new(),
            batch: 500,
            window: Duration::from_millis(25),
            poll: Some(Duration::from_millis(500)),
            gather: Duration::from_millis(5),
            call_timeout: Duration::from_secs(10),
            lease_margin: Duration::from_secs(3),
            repair_every: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            breaker: breaker::Policy::default(),
        }
    }
}

/// A setting that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {value}, and must be {range}")]
pub struct OutOfRange {
    /// Which one.
    pub setting: String,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub range: String,
}

impl Settings {
    /// Looks at every value, for a lane with such leases.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range.
    pub fn check(&self, term: Term) -> Result<(), OutOfRange> {
        const MS: Duration = Duration::from_millis(1);
        const S: Duration = Duration::from_secs(1);
        let lease = term.length();
        time("lease", lease, S, 3600 * S)?;
        count("slots", self.slots, 1024)?;
        for (route, slots) in &self.route_slots {
            count(&format!("route_slots.{route}"), *slots, 1024)?;
        }
        count("batch", self.batch, 1000)?;
        time("window", self.window, 25 * MS, 50 * MS)?;
        if let Some(poll) = self.poll {
            time("poll", poll, 250 * MS, S)?;
        }
        time("gather", self.gather, Duration::ZERO, 100 * MS)?;
        time("call_timeout", self.call_timeout, 100 * MS, lease.saturating_sub(MS))?;
        time("lease_margin", self.lease_margin, 100 * MS, (lease / 3).saturating_sub(MS))?;
        if !self.repair_every.is_zero() {
            time("repair_every", self.repair_every, S, 3600 * S)?;
        }
        time("grace", self.grace, Duration::ZERO, 600 * S)?;
        count("breaker.failures", self.breaker.failures as usize, 1000)?;
        time("breaker.first_pause", self.breaker.first_pause, 10 * MS, self.breaker.longest_pause)?;
        time("breaker.longest_pause", self.breaker.longest_pause, 10 * MS, 3600 * S)
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
        type Spoil = fn(&mut Settings);
        let wrong: [(&str, Spoil); 14] = [
            ("slots", |s| s.slots = 0),
            ("slots", |s| s.slots = 1025),
            ("route_slots.wire", |s| s.route_slots = BTreeMap::from([("wire".to_owned(), 0)])),
            ("batch", |s| s.batch = 1001),
            ("window", |s| s.window = Duration::from_millis(24)),
            ("window", |s| s.window = Duration::from_millis(51)),
            ("poll", |s| s.poll = Some(Duration::from_millis(249))),
            ("gather", |s| s.gather = Duration::from_millis(101)),
            ("call_timeout", |s| s.call_timeout = Duration::from_secs(30)),
            ("lease_margin", |s| s.lease_margin = Duration::from_secs(10)),
            ("repair_every", |s| s.repair_every = Duration::from_millis(1)),
            ("grace", |s| s.grace = Duration::from_secs(601)),
            ("breaker.failures", |s| s.breaker.failures = 0),
            ("breaker.first_pause", |s| s.breaker.first_pause = Duration::from_secs(61)),
        ];
        for (name, break_it) in wrong {
            let mut settings = Settings::default();
            break_it(&mut settings);
            let refusal = settings.check(LEASE).expect_err(name);
            assert_eq!(refusal.setting, name);
        }
        let short = Settings::default().check(Term::Renewable(Duration::from_secs(5)));
        assert_eq!(
            short.expect_err("longer than the lease").to_string(),
            "call_timeout is 10s, and must be 100ms to 4.999s"
        );
        let off = Settings { poll: None, repair_every: Duration::ZERO, gather: ms(0), ..Settings::default() };
        assert_eq!(off.check(LEASE), Ok(()));
    }
}
