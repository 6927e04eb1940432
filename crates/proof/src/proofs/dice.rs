//! Chance that can be repeated: a seed decides every throw.

use std::hash::{BuildHasher, RandomState};

/// The setting that repeats a run.
const SETTING: &str = "SYMPHONY_PROOF_SEED";

/// A generator of numbers (SplitMix64), small enough to read.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    state: u64,
}

/// The seed of this run: the one that `SYMPHONY_PROOF_SEED` gives, or a new one.
pub(super) fn seed() -> u64 {
    let given = std::env::var(SETTING).ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) % 1_000_000_000)
}

/// How to repeat a run, for whoever reads of it.
pub(super) fn repeat(seed: u64) -> String {
    format!("{SETTING}={seed} repeats it")
}

impl Dice {
    /// The throws of one among several who share a seed.
    pub(super) fn new(seed: u64, player: usize) -> Self {
        Self { state: seed ^ (player as u64).wrapping_mul(0xD134_2543_DE82_EF95) }
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

    /// True as often as this, in a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Any of these.
    pub(super) fn any<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// The same things in any order.
    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_every_throw_and_players_throw_apart() {
        let throws = |seed, player| {
            let mut dice = Dice::new(seed, player);
            (0..20).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7, 1), throws(7, 1));
        assert_ne!(throws(7, 1), throws(7, 2));
        assert_ne!(throws(7, 1), throws(8, 1));
    }
}
