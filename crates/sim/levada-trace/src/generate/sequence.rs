//! The order of requests.

use levada_types::Rng;

/// The temporal locality of the requests for one file.
///
/// A fraction of a file's requests is clustered around a time of its own, at distances that follow
/// Laplace's law; the others are uniform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locality {
    /// The fraction of clustered requests; 0 is the independent reference model.
    pub fraction: f64,
    /// Twice the mean distance from the file's time, as a fraction of the whole trace.
    pub width: f64,
}

impl Locality {
    /// All orders are equally likely.
    pub const NONE: Self = Self { fraction: 0.0, width: 0.02 };
}

/// Every id as often as `counts` says, in an order that follows `locality`.
pub(super) fn arrange(counts: &[u64], locality: Locality, rng: &mut Rng) -> Vec<u32> {
    let ids = (0u32..).zip(counts);
    let mut ids: Vec<u32> =
        ids.flat_map(|(id, count)| std::iter::repeat_n(id, *count as usize)).collect();
    if locality.fraction <= 0.0 {
        shuffle(&mut ids, rng);
        return ids;
    }
    let moments: Vec<f64> = counts.iter().map(|_| rng.unit()).collect();
    let mut placed: Vec<(f64, u32)> =
        ids.into_iter().map(|id| (position(moments[id as usize], locality, rng), id)).collect();
    placed.sort_unstable_by(|(x, i), (y, j)| x.total_cmp(y).then(i.cmp(j)));
    placed.into_iter().map(|(_, id)| id).collect()
}

/// The shuffle of Fisher and Yates, as given by Durstenfeld (CACM 1964).
fn shuffle(ids: &mut [u32], rng: &mut Rng) {
    for last in (1..ids.len()).rev() {
        ids.swap(last, rng.below(last + 1));
    }
}

/// The position of a request in the trace, from 0 to 1.
fn position(moment: f64, locality: Locality, rng: &mut Rng) -> f64 {
    if rng.unit() >= locality.fraction {
        return rng.unit();
    }
    let side = rng.unit() - 0.5;
    // Never zero, because the logarithm of zero is infinite.
    let beyond = (1.0 - 2.0 * side.abs()).max(f64::MIN_POSITIVE);
    let distance = -locality.width / 2.0 * side.signum() * libm::log(beyond);
    (moment + distance).rem_euclid(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Locality = Locality { fraction: 0.9, width: 0.02 };

    fn counted(ids: &[u32]) -> [u64; 3] {
        let mut counts = [0; 3];
        ids.iter().for_each(|&id| counts[id as usize] += 1);
        counts
    }

    #[test]
    fn every_order_keeps_the_counts() {
        let counts = [500, 30, 1];
        for locality in [Locality::NONE, LOCAL] {
            assert_eq!(counted(&arrange(&counts, locality, &mut Rng::new(1))), counts);
        }
    }

    #[test]
    fn locality_brings_repetitions_together() {
        let counts = vec![20; 500];
        let mean_gap = |locality| {
            let ids = arrange(&counts, locality, &mut Rng::new(1));
            let mut last = vec![None; 500];
            let mut gaps = Vec::new();
            for (now, id) in ids.into_iter().enumerate() {
                gaps.extend(last[id as usize].replace(now).map(|before| now - before));
            }
            gaps.iter().sum::<usize>() / gaps.len()
        };
        let (anywhere, local) = (mean_gap(Locality::NONE), mean_gap(LOCAL));
        assert!(local < anywhere, "{local} {anywhere}");
    }
}
