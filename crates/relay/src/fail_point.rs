//! Fault injection: steps at which a test build aborts the process, so that tests can check crash recovery.
//!
//! `SYMPHONY_FAIL_POINT=name` aborts the process when it reaches that step, `name:3` when it reaches it the third
//! time. This is for builds with the feature `fail-points`; without it, [`reach`] is an empty function and the
//! variable means nothing.

/// A step at which the process can abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is named like the step itself")]
pub enum Step {
    BeforeClaim,
    AfterClaim,
    BeforeDispatch,
    AfterDispatch,
    BeforeComplete,
    AfterComplete,
    BeforeRenew,
    AfterRenew,
    BeforeRepair,
    AfterRepair,
    BeforeRelease,
    AfterRelease,
    AfterArm,
}

/// Every step with its name.
pub const ALL: &[(Step, &str)] = &[
    (Step::BeforeClaim, "before_claim"),
    (Step::AfterClaim, "after_claim"),
    (Step::BeforeDispatch, "before_dispatch"),
    (Step::AfterDispatch, "after_dispatch"),
    (Step::BeforeComplete, "before_complete"),
    (Step::AfterComplete, "after_complete"),
    (Step::BeforeRenew, "before_renew"),
    (Step::AfterRenew, "after_renew"),
    (Step::BeforeRepair, "before_repair"),
    (Step::AfterRepair, "after_repair"),
    (Step::BeforeRelease, "before_release"),
    (Step::AfterRelease, "after_release"),
    (Step::AfterArm, "after_arm"),
];

/// The environment variable that names the step.
pub const VARIABLE: &str = "SYMPHONY_FAIL_POINT";

/// Marks a step. Does nothing in a build without the feature.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub fn reach(_step: Step) {}

#[cfg(feature = "fail-points")]
pub use armed::reach;

#[cfg(feature = "fail-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{ALL, Step, VARIABLE};

    /// Marks a step. Aborts the process if the environment names this step.
    pub fn reach(step: Step) {
        static WANTED: OnceLock<Option<(Step, u32)>> = OnceLock::new();
        static REACHED: AtomicU32 = AtomicU32::new(0);
        let wanted = WANTED.get_or_init(|| {
            let text = std::env::var(VARIABLE).ok()?;
            let wanted = parse(&text);
            if wanted.is_none() {
                // A test with a misspelt name must not pass because nothing happened.
                eprintln!("{VARIABLE}: unknown step {text:?}");
                std::process::exit(2);
            }
            wanted
        });
        if let Some((at, nth)) = wanted
            && *at == step
            && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == *nth
        {
            eprintln!("{VARIABLE}: aborting at {step:?}");
            std::process::abort();
        }
    }

    fn parse(text: &str) -> Option<(Step, u32)> {
        let (name, nth) = match text.split_once(':') {
            Some((name, nth)) => (name, nth.parse().ok().filter(|nth| *nth > 0)?),
            None => (text, 1),
        };
        ALL.iter().find(|(_, known)| *known == name).map(|(step, _)| (*step, nth))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_step_is_parsed_with_its_count() {
            assert_eq!(parse("after_claim"), Some((Step::AfterClaim, 1)));
            assert_eq!(parse("before_renew:3"), Some((Step::BeforeRenew, 3)));
            for wrong in ["", "after_lunch", "after_claim:0", "after_claim:x", "after_claim:"] {
                assert_eq!(parse(wrong), None, "{wrong}");
            }
        }

        #[test]
        fn every_name_is_that_of_its_step() {
            for (step, name) in ALL {
                assert_eq!(format!("{step:?}").to_lowercase(), name.replace('_', ""));
            }
        }
    }
}
