//! Ratios of all requests, and their intervals, from misses in the sample.
//!
//! The misses of all requests are those of the sample, divided by the rate. By chance the sample has more or fewer
//! requests than its rate says, mostly because a popular object is in it or is not. Such an object has few misses,
//! so that the difference counts as hits (SHARDS, FAST'15, Sec. 3.3). Misses are therefore divided by the number
//! of all requests times the rate, not by the number of sampled requests.
//!
//! The interval comes from disjoint parts of the sample, each simulated in a cache of its own: the estimates of the
//! parts spread as estimates of other samples would. A cache that is too small for its objects gives another mean
//! than the whole sample; some of that difference is left in the estimate, and is added to the interval.

use crate::{
    CurvePoint,
    part::{Counts, SHARDS},
};

/// The misses of a cache in the whole sample, and in each of its parts if it is a sample.
pub(crate) struct Misses {
    pub(crate) sample: Counts,
    pub(crate) shards: Vec<Counts>,
}

/// The ratios of a cache of `bytes` with `all` requests, of which the sample has the share `rate`.
pub(crate) fn point(bytes: u64, rate: f64, all: Counts, misses: &Misses) -> CurvePoint {
    let estimate = |measure: fn(&Counts) -> f64| {
        let ratio = |misses: &Counts, rate: f64| match measure(&all) * rate {
            0.0 => 0.0,
            expected => 1.0 - measure(misses) / expected,
        };
        let of_sample = ratio(&misses.sample, rate);
        let shards = misses.shards.iter();
        let of_shards: Vec<f64> = shards.map(|shard| ratio(shard, rate / SHARDS as f64)).collect();
        (of_sample.clamp(0.0, 1.0), error(of_sample, &of_shards, rate).min(1.0))
    };
    let (hit_ratio, hit_error) = estimate(|counts| counts.requests);
    let (byte_hit_ratio, byte_hit_error) = estimate(|counts| counts.bytes);
    CurvePoint { bytes, hit_ratio, byte_hit_ratio, hit_error, byte_hit_error }
}

/// Half of the interval of 95 %. The part of the objects that was sampled has no error.
fn error(of_sample: f64, of_shards: &[f64], rate: f64) -> f64 {
    if of_shards.is_empty() {
        return 0.0;
    }
    let count = of_shards.len() as f64;
    let mean = of_shards.iter().sum::<f64>() / count;
    let squares: f64 = of_shards.iter().map(|of_shard| (of_shard - mean).powi(2)).sum();
    let standard_error = (squares / (count - 1.0) / count * (1.0 - rate)).sqrt();
    STUDENT * standard_error + BIAS * (1.0 - rate) * (mean - of_sample).abs()
}

/// The quantile 0.975 of Student's distribution with [`SHARDS`] - 1 = 7 degrees of freedom.
const STUDENT: f64 = 2.365;
const _: () = assert!(SHARDS == 8, "the quantile belongs to this number");

/// The part of the difference that is left: a bias that falls with the root of the cache's size leaves 1 / (√8 - 1).
const BIAS: f64 = 0.55;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_object_by_chance_counts_as_hits() {
        // 6,400 requests, half of them misses. The sample has 1,000 instead of 640: one object more, all hits.
        let all = Counts { requests: 6_400.0, bytes: 64_000.0 };
        let misses =
            Misses { sample: Counts { requests: 320.0, bytes: 1_600.0 }, shards: Vec::new() };
        let point = point(1, 0.1, all, &misses);
        assert_eq!((point.hit_ratio, point.byte_hit_ratio), (0.5, 0.75));
    }

    #[test]
    fn nothing_requested_gives_no_hits() {
        let misses = Misses { sample: Counts::default(), shards: Vec::new() };
        assert_eq!(point(1, 1.0, Counts::default(), &misses).byte_hit_ratio, 0.0);
    }

    #[test]
    fn interval_follows_the_spread_of_the_parts() {
        assert_eq!(error(0.5, &[], 1.0), 0.0);
        assert_eq!(error(0.5, &[0.5; 8], 0.1), 0.0);
        let spread = [0.4, 0.6, 0.4, 0.6, 0.4, 0.6, 0.4, 0.6];
        let expected = STUDENT * (0.08_f64 / 7.0 / 8.0 * 0.9).sqrt();
        assert!((error(0.5, &spread, 0.1) - expected).abs() < 1e-12);
        assert!(error(0.6, &spread, 0.1) > expected, "means that differ");
    }
}
