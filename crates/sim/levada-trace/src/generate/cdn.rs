//! A content delivery network's requests: Zipf's law with exponent 0.9 over 100,000 files, whose sizes
//! follow a lognormal law and do not depend on popularity. The catalogue has about 2 GB.

use levada_types::Rng;

use super::normal;
use crate::{Trace, TraceObject, Workload};

pub(super) const FILES: usize = 100_000;
pub(super) const REQUESTS: u64 = 3_000_000;

/// A trace of [`REQUESTS`] independent requests; the same seed gives the same trace.
pub(super) fn trace(seed: u64) -> Trace {
    let mut rng = Rng::new(seed ^ DRAWN);
    let size = |rng: &mut Rng| {
        (libm::exp(MU + SIGMA * normal::draw(rng)).round() as u64).clamp(100, LARGEST)
    };
    let file = |rank: usize| TraceObject { name: format!("/{rank}").into(), size: size(&mut rng) };
    let files: Vec<_> = (1..=FILES).map(file).collect();
    let weight = |rank: usize| (ONE / libm::pow(rank as f64, EXPONENT)).round() as u64;
    let weights: Vec<_> = (1..=FILES).map(weight).collect();
    let seed = Rng::new(!seed ^ DRAWN).bits();
    Trace::new(files, Workload::new(&weights, seed).take(REQUESTS as usize).collect())
}

const EXPONENT: f64 = 0.9;

/// The weight of the most requested file: large enough that weights are exact to four digits.
const ONE: f64 = 1e9;

/// The logarithm of sizes: the mean is 19.5 kB.
const MU: f64 = 8.9;
const SIGMA: f64 = 1.4;
const LARGEST: u64 = 10_000_000;

/// Separates this random stream from those of other models with the same seed.
const DRAWN: u64 = 0x6364_6e20_7a69_7066;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceSummary;

    #[test]
    fn popularity_and_sizes_are_as_described() {
        let trace = trace(1);
        let summary = TraceSummary::of(&trace);
        assert_eq!(summary.requests, REQUESTS);
        let bytes: u64 = trace.objects().iter().map(|file| file.size).sum();
        assert!((1.8e9..2.1e9).contains(&(bytes as f64)), "{bytes}");
        let mut counts = vec![0u32; FILES];
        trace.requests().iter().for_each(|file| counts[*file as usize] += 1);
        let ratio = f64::from(counts[0]) / f64::from(counts[9]);
        assert!((ratio / libm::pow(10.0, EXPONENT) - 1.0).abs() < 0.05, "{ratio}");
    }
}
