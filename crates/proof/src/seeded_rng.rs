//! The seed of a run, so that it can be repeated.

use std::hash::{BuildHasher, RandomState};

pub(super) use symphony_testkit::seeded_rng::SeededRng;

/// The environment variable that sets the seed.
const SEED_VARIABLE: &str = "SYMPHONY_PROOF_SEED";

/// The seed of this run: the one that `SYMPHONY_PROOF_SEED` gives, or a new one.
pub(super) fn seed() -> u64 {
    let given = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) % 1_000_000_000)
}

/// The setting that repeats this run, for the evidence.
pub(super) fn rerun_hint(seed: u64) -> String {
    format!("{SEED_VARIABLE}={seed} repeats it")
}
