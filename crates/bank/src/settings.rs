//! The fault settings: `name=value` on the command line, members of a JSON object over HTTP.
//!
//! It parses and checks settings and applies none.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;

use super::fault::Fault;

/// The longest delay: waiting requests are kept in memory.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// A probability in millionths, not a float: what the setting says is what is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probability(u32);

impl Probability {
    /// 1 in millionths.
    pub(crate) const ONE: u32 = 1_000_000;

    pub(crate) fn millionths(self) -> u64 {
        u64::from(self.0)
    }
}

impl FromStr for Probability {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !matches!(whole, "0" | "1") || !digits(places) || places.len() > 6 {
            return Err(());
        }
        let fraction: u32 = format!("{places:0<6}").parse().map_err(|_| ())?;
        let millionths = if whole == "1" { Self::ONE + fraction } else { fraction };
        if millionths > Self::ONE { Err(()) } else { Ok(Self(millionths)) }
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / Self::ONE, self.0 % Self::ONE);
        out.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Which keys the bank still remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forget {
    /// Keys younger than this.
    Age(Duration),
    /// The last keys that were executed or refused.
    Last(u64),
}

/// All fault settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    pub(crate) seed: u64,
    chances: BTreeMap<Fault, Probability>,
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
    /// Payments per second; more are answered with 429.
    pub(crate) rate_limit: Option<u64>,
    pub(crate) forget_after: Option<Forget>,
    pub(crate) refuse_code: String,
    pub(crate) retry_after: Duration,
    /// How long after an acceptance the bank decides; none if only PUT /v1/settlements does.
    pub(crate) settle_after: Option<Duration>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            seed: 0,
            chances: BTreeMap::new(),
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            rate_limit: None,
            forget_after: None,
            refuse_code: "REFUSED_BY_BANK".to_owned(),
            retry_after: Duration::from_secs(1),
            settle_after: Some(Duration::from_secs(1)),
        }
    }
}

/// Why settings were refused. None of them applies.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Look up the name.
    #[error("there is no fault setting of this name; there are: {}", names())]
    Name,
    /// Write the value in its own form.
    #[error("{name} needs {wants}")]
    Value {
        /// The fault.
        name: &'static str,
        /// What its value must look like.
        wants: &'static str,
    },
    /// Lower the probabilities.
    #[error("the probabilities of all payment faults add up to more than 1")]
    Sum,
    /// Look up the preset.
    #[error("there is no such preset; there are: none, some, many")]
    Preset,
}

const OTHER_SETTINGS: [&str; 8] =
    ["seed", "latency", "jitter", "rate_limit", "forget_after", "refuse_code", "retry_after", "settle_after"];

fn names() -> String {
    let drawn = Fault::NAMES.iter().filter(|(fault, _)| is_drawn(*fault)).map(|(_, name)| *name);
    drawn.chain(OTHER_SETTINGS).collect::<Vec<_>>().join(", ")
}

fn is_drawn(fault: Fault) -> bool {
    fault == Fault::InquiryDown || Fault::DRAWN.contains(&fault)
}

impl Faults {
    /// A mixture for demos. The seed stays.
    pub fn preset(name: &str, seed: u64) -> Result<Self, Error> {
        let chosen: &[(&str, &str)] = match name {
            "none" => &[],
            "some" => &[
                ("latency", "5ms"),
                ("jitter", "20ms"),
                ("timeout_before", "0.002"),
                ("timeout_after", "0.005"),
                ("cut_before", "0.01"),
                ("cut_after", "0.01"),
                ("half_answer", "0.01"),
                ("error_500_before", "0.01"),
                ("error_500_after", "0.01"),
                ("refuse", "0.005"),
                ("busy", "0.02"),
                ("inquiry_down", "0.02"),
            ],
            "many" => &[
                ("latency", "10ms"),
                ("jitter", "100ms"),
                ("timeout_before", "0.02"),
                ("timeout_after", "0.03"),
                ("cut_before", "0.08"),
                ("cut_after", "0.08"),
                ("half_answer", "0.08"),
                ("error_500_before", "0.08"),
                ("error_500_after", "0.08"),
                ("refuse", "0.02"),
                ("busy", "0.1"),
                ("inquiry_down", "0.2"),
            ],
            _ => return Err(Error::Preset),
        };
        Self { seed, ..Self::default() }.changed(chosen.iter().copied())
    }

    /// How likely a fault is.
    pub(crate) fn chance(&self, fault: Fault) -> Probability {
        self.chances.get(&fault).copied().unwrap_or_default()
    }

    /// A copy with these changes: all of them or none.
    pub fn changed<'a>(&self, changes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let mut faults = self.clone();
        for (name, value) in changes {
            faults.set(name, value)?;
        }
        let sum: u64 = Fault::DRAWN.iter().map(|fault| faults.chance(*fault).millionths()).sum();
        if sum > u64::from(Probability::ONE) { Err(Error::Sum) } else { Ok(faults) }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let invalid = |name, wants| move || Error::Value { name, wants };
        let off = value == "off";
        match name {
            "seed" => self.seed = value.parse().map_err(|_| invalid("seed", "a whole number")())?,
            "latency" => {
                self.latency = duration(value).ok_or_else(invalid("latency", "a time such as 20ms, to 60s"))?;
            }
            "jitter" => {
                self.jitter = duration(value).ok_or_else(invalid("jitter", "a time such as 20ms, to 60s"))?;
            }
            "rate_limit" if off => self.rate_limit = None,
            "rate_limit" => {
                let wants = invalid("rate_limit", "payments per second, a whole number, or off");
                self.rate_limit = Some(value.parse().map_err(|_| wants())?);
            }
            "forget_after" if off => self.forget_after = None,
            "forget_after" => {
                let wants =
                    invalid("forget_after", "an age such as 30s or 500ms, a number such as 100keys, or off");
                self.forget_after = Some(forget(value).ok_or_else(wants)?);
            }
            "refuse_code" => {
                let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
                if value.is_empty() || value.len() > 64 || !value.bytes().all(fits) {
                    return Err(invalid("refuse_code", "A to Z, 0 to 9 and _, to 64 of them")());
                }
                value.clone_into(&mut self.refuse_code);
            }
            "retry_after" => {
                let whole = duration(value).filter(|time| time.subsec_nanos() == 0);
                self.retry_after = whole.ok_or_else(invalid("retry_after", "whole seconds such as 2s, to 60s"))?;
            }
            "settle_after" if off => self.settle_after = None,
            "settle_after" => {
                let wants = invalid("settle_after", "a time such as 500ms, to 60s, or off");
                self.settle_after = Some(duration(value).ok_or_else(wants)?);
            }
            _ => {
                let known = Fault::NAMES.iter().find(|(fault, known)| *known == name && is_drawn(*fault));
                let (fault, name) = known.ok_or(Error::Name)?;
                let wants = invalid(name, "a probability from 0 to 1 such as 0.05");
                let chance = if off { Probability::default() } else { value.parse().map_err(|()| wants())? };
                // A probability of 0 is not stored, so that equal settings compare equal.
                self.chances.remove(fault);
                if chance.millionths() > 0 {
                    self.chances.insert(*fault, chance);
                }
            }
        }
        Ok(())
    }

    /// All settings as text.
    pub(crate) fn to_text(&self) -> BTreeMap<&'static str, String> {
        let off = || "off".to_owned();
        let mut to_text: BTreeMap<_, _> = Fault::NAMES
            .iter()
            .filter(|(fault, _)| is_drawn(*fault))
            .map(|(fault, name)| (*name, self.chance(*fault).to_string()))
            .collect();
        to_text.insert("seed", self.seed.to_string());
        to_text.insert("latency", format!("{}ms", self.latency.as_millis()));
        to_text.insert("jitter", format!("{}ms", self.jitter.as_millis()));
        to_text.insert("rate_limit", self.rate_limit.map_or_else(off, |limit| limit.to_string()));
        let forget = self.forget_after.map_or_else(off, |forget| match forget {
            Forget::Age(age) => format!("{}ms", age.as_millis()),
            Forget::Last(keys) => format!("{keys}keys"),
        });
        to_text.insert("forget_after", forget);
        to_text.insert("refuse_code", self.refuse_code.clone());
        to_text.insert("retry_after", format!("{}s", self.retry_after.as_secs()));
        let settle_after = self.settle_after.map_or_else(off, |after| format!("{}ms", after.as_millis()));
        to_text.insert("settle_after", settle_after);
        to_text
    }
}

/// A duration such as 20ms or 3s, at most MAX_DELAY.
fn duration(text: &str) -> Option<Duration> {
    age(text).filter(|duration| *duration <= MAX_DELAY)
}

/// A duration of any length.
fn age(text: &str) -> Option<Duration> {
    text.parse::<SignedDuration>().ok().and_then(|parsed| Duration::try_from(parsed).ok())
}

fn forget(text: &str) -> Option<Forget> {
    match text.strip_suffix("keys") {
        Some(number) => number.parse().ok().map(Forget::Last),
        None => age(text).map(Forget::Age),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_is_what_was_written() {
        for (text, millionths) in
            [("0", 0), ("1", 1_000_000), ("1.0", 1_000_000), ("0.05", 50_000), ("0.000001", 1)]
        {
            assert_eq!(text.parse(), Ok(Probability(millionths)), "{text}");
        }
        for wrong in ["", "2", "1.1", "-0.1", "0.0000001", ".5", "0.", "1e-3", "5%", "0.5.5", "+0.5", "NaN"] {
            assert_eq!(wrong.parse::<Probability>(), Err(()), "{wrong}");
        }
        assert_eq!(Probability(50_000).to_string(), "0.05");
        assert_eq!(Probability(0).to_string(), "0");
        assert_eq!(Probability(1_000_000).to_string(), "1");
    }

    #[test]
    fn what_is_written_can_be_ordered_again() {
        let orders = [
            ("seed", "18446744073709551615"),
            ("cut_after", "0.125"),
            ("latency", "20ms"),
            ("jitter", "1s"),
            ("rate_limit", "50"),
            ("forget_after", "100keys"),
            ("refuse_code", "NO_FUNDS"),
            ("retry_after", "3s"),
            ("settle_after", "off"),
            ("inquiry_down", "1"),
        ];
        let faults = Faults::default().changed(orders).unwrap();
        let to_text = faults.to_text();
        let again = Faults::default().changed(to_text.iter().map(|(name, value)| (*name, value.as_str())));
        assert_eq!(again.unwrap(), faults);
        assert_eq!(faults.changed([("cut_after", "off"), ("rate_limit", "off")]).unwrap().rate_limit, None);
    }

    #[test]
    fn settings_are_applied_completely_or_not_at_all() {
        let faults = Faults::default();
        let value = |name, value| match faults.changed([("cut_after", "0.5"), (name, value)]) {
            Err(Error::Value { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(value("latency", "61s"), "latency");
        assert_eq!(value("jitter", "5"), "jitter");
        assert_eq!(value("rate_limit", "-1"), "rate_limit");
        assert_eq!(value("forget_after", "keys"), "forget_after");
        assert_eq!(value("refuse_code", "no money"), "refuse_code");
        assert_eq!(value("retry_after", "500ms"), "retry_after");
        assert_eq!(value("settle_after", "61s"), "settle_after");
        assert_eq!(value("busy", "often"), "busy");
        assert_eq!(faults.changed([("meteor", "1")]), Err(Error::Name));
        assert_eq!(faults.changed([("ok", "1")]), Err(Error::Name));
        assert_eq!(faults.changed([("cut_after", "0.6"), ("busy", "0.5")]), Err(Error::Sum));
        // An inquiry has its own draw.
        assert!(faults.changed([("cut_after", "1"), ("inquiry_down", "1")]).is_ok());
    }

    #[test]
    fn presets_are_valid_and_keep_the_seed() {
        assert_eq!(Faults::preset("none", 0), Ok(Faults::default()));
        for name in ["some", "many"] {
            let preset = Faults::preset(name, 9).unwrap();
            assert_eq!(preset.seed, 9);
            // Only a rail that inquires soon, or takes callbacks, can use a bank that accepts.
            let accepts = |fault: &Fault| matches!(fault, Fault::Accept | Fault::AcceptRefuse);
            let drawn = |fault: &Fault| accepts(fault) != (preset.chance(*fault).millionths() > 0);
            assert!(Fault::DRAWN.iter().all(drawn), "{name}");
        }
        assert_eq!(Faults::preset("all", 0), Err(Error::Preset));
    }
}
