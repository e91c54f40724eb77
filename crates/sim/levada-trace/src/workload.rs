//! An endless sequence of requests, drawn independently by popularity.
//!
//! The alias method (Walker, Electronics Letters 1974; Vose, IEEE TSE 1991): every object has a
//! slot that it shares with at most one other object. So a draw costs two random numbers, for any
//! number of objects.

use levada_types::Rng;

/// Draws object ids without end; the same seed gives the same ids.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The share of its own slot that an object keeps, and the object that gets the rest.
    slots: Vec<(f64, u32)>,
    rng: Rng,
}

impl Workload {
    /// Draws object `i` with a probability proportional to `weights[i]`.
    ///
    /// The sequence is empty if all weights are zero.
    pub fn new(weights: &[u64], seed: u64) -> Self {
        let total: f64 = weights.iter().map(|weight| *weight as f64).sum();
        let slots = if total > 0.0 { alias_table(weights, total) } else { Vec::new() };
        Self { slots, rng: Rng::new(seed) }
    }
}

impl Iterator for Workload {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.rng.below(self.slots.len());
        let (keep, other) = self.slots[slot];
        Some(if self.rng.unit() < keep { slot as u32 } else { other })
    }
}

/// Pairs each object that needs less than a slot with one that needs more.
fn alias_table(weights: &[u64], total: f64) -> Vec<(f64, u32)> {
    let scale = weights.len() as f64 / total;
    let mut slots: Vec<(f64, u32)> =
        (0..).zip(weights).map(|(id, weight)| (*weight as f64 * scale, id)).collect();
    let ids = 0..slots.len() as u32;
    let (mut small, mut large): (Vec<u32>, Vec<u32>) =
        ids.partition(|id| slots[*id as usize].0 < 1.0);
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        slots[poor as usize].1 = rich;
        let given = 1.0 - slots[poor as usize].0;
        let left = &mut slots[rich as usize].0;
        *left -= given;
        if *left < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    // The remaining slots differ from full ones by rounding only; their alias is the object itself.
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_weights() {
        let weights = [50, 0, 30, 15, 5];
        let mut drawn = [0u32; 5];
        for id in Workload::new(&weights, 3).take(100_000) {
            drawn[id as usize] += 1;
        }
        for (weight, drawn) in weights.iter().zip(drawn) {
            assert!((f64::from(drawn) / 1_000.0 - *weight as f64).abs() < 0.6, "{drawn}");
        }
        assert_eq!(drawn[1], 0);
    }

    #[test]
    fn same_seed_same_draws() {
        let draw = |seed| Workload::new(&[1, 2, 3], seed).take(50).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn nothing_to_draw_is_an_end_not_a_panic() {
        assert_eq!(Workload::new(&[], 1).next(), None);
        assert_eq!(Workload::new(&[0, 0], 1).next(), None);
    }
}
