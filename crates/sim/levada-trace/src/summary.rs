//! The statistics of a trace.

use std::fmt;

use crate::Trace;

/// The figures by which papers describe a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSummary {
    /// Requests.
    pub requests: u64,
    /// Distinct objects that are requested.
    pub objects: u64,
    /// The bytes of all distinct objects.
    pub bytes: u64,
    /// The mean number of bytes per request.
    pub mean_transfer: f64,
    /// The share of objects that are requested once.
    pub once: f64,
    /// Requests and sizes of each object, most requested first.
    ranked: Vec<(u64, u64)>,
}

impl TraceSummary {
    /// Computes the statistics of a trace.
    pub fn of(trace: &Trace) -> Self {
        let sizes = trace.objects().iter().map(|object| object.size);
        Self::of_ranked(trace.counts().into_iter().zip(sizes).collect())
    }

    /// Computes the statistics from requests and size of each object.
    pub(crate) fn of_ranked(mut ranked: Vec<(u64, u64)>) -> Self {
        ranked.retain(|(count, _)| *count > 0);
        ranked.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let requests: u64 = ranked.iter().map(|(count, _)| count).sum();
        let moved: f64 = ranked.iter().map(|(count, size)| *count as f64 * *size as f64).sum();
        let once = ranked.iter().filter(|(count, _)| *count == 1).count();
        Self {
            requests,
            objects: ranked.len() as u64,
            bytes: ranked.iter().fold(0, |sum, (_, size)| sum.saturating_add(*size)),
            mean_transfer: moved / requests.max(1) as f64,
            once: once as f64 / ranked.len().max(1) as f64,
            ranked,
        }
    }

    /// The share of requests that go to the `count` most requested objects.
    pub fn top_share(&self, count: usize) -> f64 {
        let top: u64 = self.ranked.iter().take(count).map(|(count, _)| count).sum();
        top as f64 / self.requests.max(1) as f64
    }

    /// The bytes of the most requested objects that together receive `share` of the requests.
    pub fn coverage(&self, share: f64) -> u64 {
        let (mut requests, mut bytes) = (0u64, 0u64);
        for (count, size) in &self.ranked {
            requests += count;
            bytes = bytes.saturating_add(*size);
            if requests as f64 / self.requests as f64 >= share {
                break;
            }
        }
        bytes
    }

    /// The hit ratio of a cache without limits.
    pub fn infinite_cache_hits(&self) -> f64 {
        (self.requests - self.objects) as f64 / self.requests.max(1) as f64
    }
}

impl fmt::Display for TraceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        writeln!(f, "requests             {}", self.requests)?;
        writeln!(f, "objects              {}", self.objects)?;
        writeln!(f, "distinct bytes       {:.1} MB", megabytes(self.bytes))?;
        writeln!(f, "mean transfer        {:.0} B", self.mean_transfer)?;
        for share in [0.97, 0.98, 0.99] {
            let bytes = megabytes(self.coverage(share));
            writeln!(f, "bytes of {:.0} % of requests  {bytes:.1} MB", share * 100.0)?;
        }
        for count in [1, 10, 100, 1000] {
            writeln!(f, "top {count:<4} share       {:.2} %", self.top_share(count) * 100.0)?;
        }
        writeln!(f, "requested once       {:.1} %", self.once * 100.0)?;
        write!(f, "infinite cache hits  {:.1} %", self.infinite_cache_hits() * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_from_counts_and_sizes() {
        let summary = TraceSummary::of_ranked(vec![(1, 50), (8, 10), (0, 999), (1, 40)]);
        assert_eq!((summary.requests, summary.objects, summary.bytes), (10, 3, 100));
        assert_eq!(summary.mean_transfer, 17.0);
        assert_eq!(summary.top_share(1), 0.8);
        assert_eq!(
            (summary.coverage(0.8), summary.coverage(0.81), summary.coverage(1.0)),
            (10, 60, 100)
        );
        assert_eq!(summary.infinite_cache_hits(), 0.7);
    }

    #[test]
    fn an_empty_trace_has_figures_too() {
        let summary = TraceSummary::of(&Trace::default());
        assert_eq!((summary.mean_transfer, summary.coverage(0.99)), (0.0, 0));
        assert!(summary.to_string().contains("requests             0"));
    }
}
