//! The static part of SPECweb99: a file set that its rules define completely.
//!
//! ```text
//! directory 1 .. n   by Zipf's law with exponent 1
//!   class 0 .. 3     35, 50, 14 and 1 % of the requests; files from 102, 1024, 10240, 102400 bytes
//!     file 1 .. 9    one to nine times that size; the fifth is requested most
//! ```
//!
//! In the benchmark the number of directories grows with the measured load. Here it is fixed, so
//! that results can be compared, as Ruan and Pai do ("Understanding and Addressing Blocking-Induced
//! Network Server Latency", USENIX'06); a test compares the result with their Table 2.

use levada_types::Rng;

use crate::{Trace, TraceObject, Workload};

/// The number of directories: about 1 GB.
const DIRECTORIES: u64 = 210;

/// The number of files.
pub(super) const FILES: usize = DIRECTORIES as usize * CLASSES.len() * WITHIN.len();

/// The number of requests of a trace.
pub(super) const REQUESTS: u64 = 2_300_000;

/// A trace of [`REQUESTS`] independent requests; the same seed gives the same trace.
pub(super) fn trace(seed: u64) -> Trace {
    let mut files = Vec::with_capacity(FILES);
    let mut weights = Vec::with_capacity(FILES);
    for directory in 1..=DIRECTORIES {
        for (class, (share, smallest)) in CLASSES.iter().enumerate() {
            for (file, part) in (1..).zip(WITHIN) {
                let name = format!("/file_set/dir{directory:05}/class{class}_{file}").into();
                files.push(TraceObject { name, size: smallest * file });
                weights.push(ONE * share * part / directory);
            }
        }
    }
    let seed = Rng::new(seed ^ DRAWN).bits();
    Trace::new(files, Workload::new(&weights, seed).take(REQUESTS as usize).collect())
}

/// Each class: its share of the requests in percent, and its smallest file in bytes.
const CLASSES: [(u64, u64); 4] = [(35, 102), (50, 1024), (14, 10_240), (1, 102_400)];

/// The share of each file in its class's requests, in thousandths, smallest file first.
const WITHIN: [u64; 9] = [39, 59, 88, 177, 353, 118, 71, 50, 44];

/// Weights are whole numbers. This factor is large enough that the division by the directory's
/// number is exact to six digits.
const ONE: u64 = 1_000_000;

/// Separates this random stream from those of other models with the same seed.
const DRAWN: u64 = 0x7370_6563_7765_6239;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceSummary;

    #[test]
    fn popularity_and_sizes_are_the_published_ones() {
        let summary = TraceSummary::of(&trace(1));
        assert_eq!(summary.requests, REQUESTS);
        // 14.7 kB if every file of the set is drawn as often as expected.
        assert!((summary.mean_transfer / 14_726.0 - 1.0).abs() < 0.02, "{}", summary.mean_transfer);
        // USENIX'06, Table 2, 1024 MB: the bytes of the most popular 90, 95 and 99 % of the
        // requests.
        for (share, megabytes, tolerance) in
            [(0.9, 39.5, 0.10), (0.95, 64.6, 0.05), (0.99, 138.3, 0.05)]
        {
            let off = summary.coverage(share) as f64 / (megabytes * 1e6) - 1.0;
            assert!(off.abs() < tolerance, "{share}: off by {off}");
        }
    }

    #[test]
    fn same_seed_same_trace() {
        assert!(trace(3) == trace(3) && trace(3) != trace(4));
    }
}
