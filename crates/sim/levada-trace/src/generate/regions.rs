//! The warm requests of `levada lab regions` with its defaults: for objects that are all alike, at exponentially
//! distributed intervals.

use std::time::Duration;

use levada_types::{Rng, Timestamp};

use crate::{Trace, TraceObject};

pub(super) const FILES: usize = 300;
/// A thousand of each region.
pub(super) const REQUESTS: u64 = 3_000;

/// A trace of [`REQUESTS`] requests with their times. The same seed gives the requests that the lab sends with it.
pub(super) fn trace(seed: u64) -> Trace {
    let mut rng = Rng::new(seed);
    let (mut choice, mut gaps) = (Rng::new(rng.bits()), Rng::new(rng.bits()));
    let object = |number: u64| {
        let size = size(number);
        TraceObject { name: format!("http://levada.test/fresh/{number}/{size}").into(), size }
    };
    let mut at = Timestamp::ZERO;
    let mut time = || {
        at = at + Duration::from_secs_f64(gaps.exponential() / RATE);
        at
    };
    let requests = (0..REQUESTS).map(|_| choice.below(FILES) as u32).collect();
    Trace::new((0..FILES as u64).map(object).collect(), requests)
        .at((0..REQUESTS).map(|_| time()).collect())
}

/// From 1 to 32 KB.
const fn size(number: u64) -> u64 {
    1_000 + number * 7_919 % 31_000
}

/// Requests per second of all three regions.
const RATE: f64 = 120.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_spread_over_all_objects_and_come_at_the_rate() {
        let trace = trace(1);
        assert!(trace.counts().iter().all(|count| (1..40).contains(count)));
        let last = trace.times().and_then(|times| times.last()).expect("it has times");
        assert!((23.0..27.0).contains(&last.as_secs_f64()), "{last:?}");
    }
}
