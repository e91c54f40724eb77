//! A random generator whose sequence can be repeated.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded random generator (xoshiro256++): the same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// Creates a generator; its whole sequence follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A whole number in `0..bound`, by multiplication (the bias is below `bound` / 2^64).
    ///
    /// # Panics
    /// When `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "below(0): the range is empty");
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// A number in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number of the exponential distribution with mean 1: the time between events that come by chance.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers() {
        let take = |seed| {
            let mut rng = Rng::new(seed);
            (0..5).map(|_| rng.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }

    #[test]
    fn every_number_below_the_bound_comes_up() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 5];
        for _ in 0..5_000 {
            seen[rng.below(5)] += 1;
            assert!((0.0..1.0).contains(&rng.unit()));
        }
        assert!(seen.iter().all(|&n| n > 900), "{seen:?}");
    }

    #[test]
    fn exponential_numbers_have_mean_and_deviation_1() {
        let mut rng = Rng::new(1);
        let drawn: Vec<_> = (0..200_000).map(|_| rng.exponential()).collect();
        let mean = |moment: i32| drawn.iter().map(|x| x.powi(moment)).sum::<f64>() / 200_000.0;
        assert!((mean(1) - 1.0).abs() < 0.01 && (mean(2) - 2.0).abs() < 0.06);
    }
}
