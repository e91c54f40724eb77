//! One cache of the whole memory, as `levada sim cache` computes it: what nodes can reach at most.

use levada_cache::eviction::EvictionEntry;
use levada_curves::{Admission, CacheCurve, CurveOptions, CurveReport, Curves};
use levada_trace::StatedSize;
use levada_types::Key;

/// The curves over these sizes, ascending. The first `filling` requests do not count.
///
/// # Errors
/// If no request counts.
pub(crate) fn one_cache(
    requests: impl Iterator<Item = (Key, u64)>,
    filling: usize,
    evictions: Vec<&'static EvictionEntry>,
    sizes: Vec<u64>,
) -> anyhow::Result<CurveReport> {
    let admissions = vec![Admission::Always];
    let options = CurveOptions { sizes, evictions, admissions, ..CurveOptions::default() };
    let mut curves = Curves::new(options);
    for (at, (key, bytes)) in requests.enumerate() {
        if at == filling {
            curves.begin();
        }
        curves.request(key, StatedSize::Whole(bytes));
    }
    Ok(curves.finish()?)
}

/// Eleven sizes, each three times the one before; the last holds objects of so many bytes.
pub(crate) fn sizes(all: u64) -> Vec<u64> {
    let mut sizes: Vec<u64> = (0..11).rev().map(|step| (all / 3u64.pow(step)).max(1)).collect();
    sizes.dedup();
    sizes
}

/// The hit ratio at a size, between points in proportion to the logarithm of the size.
pub(crate) fn hit(curve: &CacheCurve, bytes: u64) -> f64 {
    let log = |bytes: u64| (bytes.max(1) as f64).ln();
    let points: Vec<_> = curve.points.iter().map(|p| (log(p.bytes), p.hit_ratio)).collect();
    between(&points, log(bytes))
}

/// Linear between the points, which ascend in x; from the origin to the first one.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for &point in points {
        if x <= point.0 {
            let width = point.0 - before.0;
            return if width > 0.0 {
                before.1 + (point.1 - before.1) * (x - before.0) / width
            } else {
                point.1
            };
        }
        before = point;
    }
    before.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_between_points_are_between_their_values() {
        let points = [(1.0, 0.2), (2.0, 0.6), (2.0, 0.6)];
        assert!((between(&points, 1.5) - 0.4).abs() < 1e-9);
        assert!((between(&points, 0.5) - 0.1).abs() < 1e-9);
        assert_eq!(between(&points, 9.0), 0.6);
        assert_eq!(between(&[], 1.0), 0.0);
    }
}
