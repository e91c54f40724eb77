//! The schedule: the phases of the demo and the times of requests.

use std::time::Duration;

use levada_testbed::cluster::load::poisson;
use levada_types::Rng;
use serde::Serialize;

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Caches fill.
    WarmUp,
    /// The trace alone.
    Before,
    /// The trace and a crowd that requests one object.
    Crowd,
    /// The trace alone again.
    After,
    /// The trace, with one node killed.
    NodeDown,
    /// The trace, with the node started again and its cache empty.
    NodeBack,
}

impl Phase {
    pub(super) const ALL: [Self; 6] =
        [Self::WarmUp, Self::Before, Self::Crowd, Self::After, Self::NodeDown, Self::NodeBack];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Before => "before",
            Self::Crowd => "flash crowd",
            Self::After => "after",
            Self::NodeDown => "node down",
            Self::NodeBack => "node back",
        }
    }

    /// Its course, in a sentence.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::WarmUp => "A trace is replayed, and caches fill.",
            Self::Before => "The trace alone: each object is served by one node, or by few.",
            Self::Crowd => {
                "A crowd requests one object, faster than the link of one node: its set grows."
            }
            Self::After => "The crowd has gone, and the set shrinks.",
            Self::NodeDown => "A node was killed: others serve its objects, and no request fails.",
            Self::NodeBack => "The node is back with an empty cache, and its share rises slowly.",
        }
    }

    /// The end of the phase in a demo of length `whole`.
    pub(super) fn end(self, whole: Duration) -> Duration {
        let fortieths = match self {
            Self::WarmUp => 8,
            Self::Before => 14,
            Self::Crowd => 24,
            Self::After => 30,
            Self::NodeDown => 35,
            Self::NodeBack => 40,
        };
        whole * fortieths / 40
    }

    /// The phase at a time since the beginning.
    pub(super) fn at(moment: Duration, whole: Duration) -> Self {
        Self::ALL.into_iter().find(|p| moment < p.end(whole)).unwrap_or(Self::NodeBack)
    }
}

/// A scheduled request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    /// Its time since the beginning.
    pub(super) at: Duration,
    /// Its object.
    pub(super) object: u32,
}

/// Two Poisson streams, merged: the trace in its own order from the beginning to the end, and the crowd
/// while it lasts. Clients do not wait for each other, so neither stream slows down when nodes do.
pub(super) fn arrivals<'a>(
    (requests, rate): (&'a [u32], f64),
    (hot, crowd_rate): (&'a [u32], f64),
    whole: Duration,
    seed: u64,
) -> impl Iterator<Item = Arrival> + Send + use<'a> {
    let crowd = (Phase::Before.end(whole), Phase::Crowd.end(whole));
    let trace = stream(requests.iter().cycle(), rate, (Duration::ZERO, whole), seed);
    let crowd = stream(hot.iter().cycle(), crowd_rate, crowd, seed ^ 1);
    let (mut trace, mut crowd) = (trace.peekable(), crowd.peekable());
    std::iter::from_fn(move || match (trace.peek(), crowd.peek()) {
        (Some(first), Some(other)) if other.at < first.at => crowd.next(),
        (None, Some(_)) => crowd.next(),
        _ => trace.next(),
    })
}

/// One stream: objects in order, at random distances with a mean of `1 / rate`.
pub(super) fn stream<'a>(
    objects: impl Iterator<Item = &'a u32>,
    rate: f64,
    times: (Duration, Duration),
    seed: u64,
) -> impl Iterator<Item = Arrival> {
    let times = poisson(rate, times, Rng::new(seed));
    times.zip(objects).map(|(at, object)| Arrival { at, object: *object })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Duration = Duration::from_secs(40);

    fn arrivals(seed: u64) -> Vec<Arrival> {
        super::arrivals((&[1, 2, 3], 100.0), (&[9], 200.0), WHOLE, seed).collect()
    }

    #[test]
    fn phases_follow_each_other_to_the_end() {
        let ends: Vec<_> = Phase::ALL.iter().map(|phase| phase.end(WHOLE).as_secs()).collect();
        assert_eq!(ends, [8, 14, 24, 30, 35, 40]);
        assert_eq!(Phase::at(Duration::ZERO, WHOLE), Phase::WarmUp);
        assert_eq!(Phase::at(Duration::from_secs(14), WHOLE), Phase::Crowd);
        assert_eq!(Phase::at(WHOLE, WHOLE), Phase::NodeBack);
    }

    #[test]
    fn the_crowd_comes_on_top_of_the_trace_and_goes() {
        let arrivals = arrivals(1);
        assert!(arrivals.is_sorted_by_key(|a| a.at));
        let crowd: Vec<_> = arrivals.iter().filter(|a| a.object == 9).collect();
        assert!(crowd.iter().all(|a| Phase::at(a.at, WHOLE) == Phase::Crowd));
        assert!((1800..2200).contains(&crowd.len()), "{}", crowd.len());
        let trace: Vec<_> = arrivals.iter().filter(|a| a.object != 9).map(|a| a.object).collect();
        assert!((3700..4300).contains(&trace.len()), "{}", trace.len());
        assert_eq!(trace[..4], [1, 2, 3, 1]);
    }

    #[test]
    fn same_seed_same_arrivals() {
        assert_eq!(arrivals(3), arrivals(3));
        assert_ne!(arrivals(3), arrivals(4));
    }

    #[test]
    fn no_objects_no_arrivals() {
        assert_eq!(super::arrivals((&[], 1.0), (&[], 1.0), WHOLE, 1).count(), 0);
    }
}
