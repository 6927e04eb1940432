//! How property tests choose their cases: by a seed that is printed and can be given back.
//!
//! - `SYMPHONY_SEED=17` starts from that seed instead of a random one.
//! - `SYMPHONY_CASES=20000` is a long run.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// The settings of a property test.
pub(crate) fn cases() -> Config {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = setting("SYMPHONY_SEED").unwrap_or_else(|| RandomState::new().hash_one("a seed") >> 16);
    let cases = setting("SYMPHONY_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(256);
    println!("SYMPHONY_SEED={seed} SYMPHONY_CASES={cases}");
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}
