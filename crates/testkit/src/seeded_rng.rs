//! A seeded random number generator, so that a run can be repeated.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct SeededRng {
    state: u64,
}

impl SeededRng {
    /// One of several independent streams of the same seed.
    #[must_use]
    pub fn new(seed: u64, stream: usize) -> Self {
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
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }

    /// A number from 1 to this one.
    pub fn up_to(&mut self, most: i32) -> i32 {
        i32::try_from(self.below(usize::try_from(most).unwrap_or(1))).unwrap_or_default() + 1
    }

    /// True with this probability.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A random element.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Shuffles in place.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
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
