//! A seeded random number generator, so that a run can be repeated.

use std::hash::{BuildHasher, RandomState};

/// The environment variable that sets the seed.
const SEED_VARIABLE: &str = "SYMPHONY_PROOF_SEED";

/// SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct SeededRng {
    state: u64,
}

/// The seed of this run: the one that `SYMPHONY_PROOF_SEED` gives, or a new one.
pub(super) fn seed() -> u64 {
    let given = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) % 1_000_000_000)
}

/// The setting that repeats this run, for the evidence.
pub(super) fn rerun_hint(seed: u64) -> String {
    format!("{SEED_VARIABLE}={seed} repeats it")
}

impl SeededRng {
    /// One of several independent streams of the same seed.
    pub(super) fn new(seed: u64, stream: usize) -> Self {
        Self { state: seed ^ (stream as u64).wrapping_mul(0xD134_2543_DE82_EF95) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one, which is not zero.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }

    /// A number from 1 to this one.
    pub(super) fn up_to(&mut self, most: i32) -> i32 {
        i32::try_from(self.below(usize::try_from(most).unwrap_or(1))).unwrap_or_default() + 1
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A random element.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Shuffles in place.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_values_and_streams_differ() {
        let values = |seed, stream| {
            let mut rng = SeededRng::new(seed, stream);
            (0..20).map(|_| rng.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(values(7, 1), values(7, 1));
        assert_ne!(values(7, 1), values(7, 2));
        assert_ne!(values(7, 1), values(8, 1));
    }
}
