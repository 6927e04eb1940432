//! Chooses the fault of a request: a pure function of the settings, the key and how often the key came.
//!
//! It does not depend on the clock: the same seed gives the same fault to the same (key, ordinal), however requests
//! race.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    settings::{Faults, Probability},
    wire::Kind,
};

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    /// Nothing.
    Ok,
    /// Not executed, and never answered.
    TimeoutBefore,
    /// Executed, and never answered.
    TimeoutAfter,
    /// The connection is closed; not executed.
    CutBefore,
    /// Executed; the connection is closed without an answer.
    CutAfter,
    /// Executed; half of the answer is sent, then the connection is closed.
    HalfAnswer,
    /// Not executed; answered with 500.
    #[serde(rename = "error_500_before")]
    Error500Before,
    /// Executed; answered with 500 all the same.
    #[serde(rename = "error_500_after")]
    Error500After,
    /// Refused with 422, unless the key is known.
    Refuse,
    /// Not executed; answered with 503 and Retry-After.
    Busy,
    /// Not executed; answered with 429 and Retry-After.
    RateLimit,
    /// Accepted with 202, and executed later.
    Accept,
    /// Accepted with 202, and refused later.
    AcceptRefuse,
    /// An inquiry is answered with 503.
    InquiryDown,
    /// An inquiry is answered; for the faults of a single key.
    InquiryOk,
}

impl Fault {
    /// All faults with their names in settings.
    pub(crate) const NAMES: [(Self, &str); 15] = [
        (Self::Ok, "ok"),
        (Self::TimeoutBefore, "timeout_before"),
        (Self::TimeoutAfter, "timeout_after"),
        (Self::CutBefore, "cut_before"),
        (Self::CutAfter, "cut_after"),
        (Self::HalfAnswer, "half_answer"),
        (Self::Error500Before, "error_500_before"),
        (Self::Error500After, "error_500_after"),
        (Self::Refuse, "refuse"),
        (Self::Busy, "busy"),
        (Self::RateLimit, "rate_limit"),
        (Self::Accept, "accept"),
        (Self::AcceptRefuse, "accept_refuse"),
        (Self::InquiryDown, "inquiry_down"),
        (Self::InquiryOk, "inquiry_ok"),
    ];

    /// The faults of payments that come by chance, in the order of their share of a draw.
    pub(crate) const DRAWN: [Self; 11] = [
        Self::TimeoutBefore,
        Self::TimeoutAfter,
        Self::CutBefore,
        Self::CutAfter,
        Self::HalfAnswer,
        Self::Error500Before,
        Self::Error500After,
        Self::Refuse,
        Self::Busy,
        Self::Accept,
        Self::AcceptRefuse,
    ];

    /// The fault with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(fault, _)| *fault)
    }

    /// The kind of request that it applies to.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::InquiryDown | Self::InquiryOk => Kind::Inquiry,
            Self::Ok
            | Self::TimeoutBefore
            | Self::TimeoutAfter
            | Self::CutBefore
            | Self::CutAfter
            | Self::HalfAnswer
            | Self::Error500Before
            | Self::Error500After
            | Self::Refuse
            | Self::Busy
            | Self::RateLimit
            | Self::Accept
            | Self::AcceptRefuse => Kind::Payment,
        }
    }

    /// Whether the request ends before the bank reads it.
    pub(crate) fn comes_first(self) -> bool {
        match self {
            Self::TimeoutBefore
            | Self::CutBefore
            | Self::Error500Before
            | Self::Busy
            | Self::RateLimit
            | Self::InquiryDown => true,
            Self::Ok
            | Self::TimeoutAfter
            | Self::CutAfter
            | Self::HalfAnswer
            | Self::Error500After
            | Self::Refuse
            | Self::Accept
            | Self::AcceptRefuse
            | Self::InquiryOk => false,
        }
    }
}

/// The random fault of the n-th request of a kind for a key.
pub(crate) fn drawn(faults: &Faults, kind: Kind, key: &str, key_ordinal: u64) -> Fault {
    let draw = draw(faults.seed, "fault", kind, key, key_ordinal) % u64::from(Probability::ONE);
    match kind {
        Kind::Inquiry if draw < faults.chance(Fault::InquiryDown).millionths() => Fault::InquiryDown,
        Kind::Inquiry => Fault::InquiryOk,
        // It is no request, so nothing disturbs it.
        Kind::Settlement => Fault::Ok,
        Kind::Payment => {
            let mut bound = 0;
            for fault in Fault::DRAWN {
                bound += faults.chance(fault).millionths();
                if draw < bound {
                    return fault;
                }
            }
            Fault::Ok
        }
    }
}

/// The random delay of that request.
pub(crate) fn delay(faults: &Faults, kind: Kind, key: &str, key_ordinal: u64) -> Duration {
    let jitter = u64::try_from(faults.jitter.as_micros()).unwrap_or(u64::MAX);
    let draw = draw(faults.seed, "delay", kind, key, key_ordinal);
    // Both ends can be drawn.
    faults.latency + Duration::from_micros(draw % jitter.saturating_add(1))
}

/// A pseudo-random number that depends only on its arguments.
fn draw(seed: u64, purpose: &str, kind: Kind, key: &str, key_ordinal: u64) -> u64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(key_ordinal.to_be_bytes());
    hash.update([match kind {
        Kind::Payment => 1,
        Kind::Inquiry => 2,
        Kind::Settlement => 3,
    }]);
    // All that comes before has a fixed length, so the key can come last as it is.
    hash.update(purpose.as_bytes());
    hash.update(key.as_bytes());
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(settings: &[(&str, &str)]) -> Faults {
        Faults::default().changed(settings.iter().copied()).unwrap()
    }

    /// The faults of 2000 requests: 500 keys, four times each.
    fn met(faults: &Faults) -> Vec<Fault> {
        let keys = (0..500).map(|n| format!("key-{n}"));
        keys.flat_map(|key| (1..=4).map(move |nth| drawn(faults, Kind::Payment, &key, nth))).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_seed_gives_others() {
        let seven = faults(&[("seed", "7"), ("cut_after", "0.3"), ("busy", "0.3")]);
        assert_eq!(met(&seven), met(&seven));
        let eight = faults(&[("seed", "8"), ("cut_after", "0.3"), ("busy", "0.3")]);
        assert_ne!(met(&seven), met(&eight));
    }

    #[test]
    fn the_fault_of_a_request_does_not_depend_on_other_requests() {
        let faults = faults(&[("seed", "7"), ("timeout_after", "0.5")]);
        let forward: Vec<_> = (1..=50).map(|nth| drawn(&faults, Kind::Payment, "k", nth)).collect();
        let mut backward: Vec<_> = (1..=50).rev().map(|nth| drawn(&faults, Kind::Payment, "k", nth)).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert!(forward.contains(&Fault::Ok) && forward.contains(&Fault::TimeoutAfter));
    }

    #[test]
    fn the_faults_of_a_seed_stay_the_same_from_release_to_release() {
        let faults = faults(&[("seed", "42"), ("cut_before", "0.25"), ("cut_after", "0.25"), ("busy", "0.25")]);
        let first: Vec<_> = (1..=6).map(|nth| drawn(&faults, Kind::Payment, "PAY-1", nth)).collect();
        use Fault::{Busy, CutBefore, Ok};
        assert_eq!(first, [CutBefore, Busy, CutBefore, Busy, Busy, Ok]);
    }

    #[test]
    fn each_fault_comes_about_as_often_as_its_probability() {
        let faults = faults(&[("cut_before", "0.1"), ("cut_after", "0.2"), ("refuse", "0.3")]);
        let met = met(&faults);
        for (fault, expected) in
            [(Fault::CutBefore, 200), (Fault::CutAfter, 400), (Fault::Refuse, 600), (Fault::Ok, 800)]
        {
            let count = met.iter().filter(|seen| **seen == fault).count();
            assert!(count.abs_diff(expected) < 80, "{fault:?} came {count} times, not about {expected}");
        }
    }

    #[test]
    fn never_is_never_and_always_is_always() {
        assert!(met(&faults(&[])).iter().all(|fault| *fault == Fault::Ok));
        for fault in Fault::DRAWN {
            let (_, name) = Fault::NAMES.iter().find(|(known, _)| *known == fault).unwrap();
            assert!(met(&faults(&[(name, "1")])).iter().all(|met| *met == fault), "{name}");
        }
        let down = faults(&[("inquiry_down", "1"), ("cut_after", "1")]);
        assert_eq!(drawn(&down, Kind::Inquiry, "k", 1), Fault::InquiryDown);
        assert_eq!(drawn(&faults(&[("cut_after", "1")]), Kind::Inquiry, "k", 1), Fault::InquiryOk);
    }

    #[test]
    fn a_delay_lies_between_the_latency_and_the_jitter_above_it() {
        let faults = faults(&[("latency", "20ms"), ("jitter", "30ms")]);
        let delays: Vec<_> = (1..=200).map(|nth| delay(&faults, Kind::Payment, "k", nth)).collect();
        assert!(delays.iter().all(|delay| (20..=50).contains(&delay.as_millis())));
        assert!(delays.iter().min().unwrap().as_millis() < 25 && delays.iter().max().unwrap().as_millis() > 45);
    }

    #[test]
    fn a_fault_has_the_same_name_in_json_and_in_settings() {
        for (fault, name) in Fault::NAMES {
            assert_eq!(serde_json::to_string(&fault).unwrap(), format!("\"{name}\""));
            assert_eq!(Fault::named(name), Some(fault));
        }
        assert_eq!(Fault::named("meteor"), None);
    }
}
