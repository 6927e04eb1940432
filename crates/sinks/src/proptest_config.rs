//! Configures property tests: their seed is printed and can be set, so that a failure can be repeated.
//!
//! - `SYMPHONY_SEED=17` starts from that seed instead of a random one.
//! - `SYMPHONY_CASES=20000` sets the number of cases; the default is 256.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

pub(crate) fn proptest_config() -> Config {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = variable("SYMPHONY_SEED").unwrap_or_else(|| RandomState::new().hash_one("a seed") >> 16);
    let cases = variable("SYMPHONY_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(256);
    println!("SYMPHONY_SEED={seed} SYMPHONY_CASES={cases}");
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}
