//! Without sampling, the curves are those of the caches themselves.

mod support;

use std::collections::HashSet;

use levada_cache::{Doorkeeper, eviction::Keyed};
use levada_curves::{Admission, CurveOptions, CurvePoint, Curves};
use levada_trace::StatedSize;
use support::{Requests, curve, report, zipf};

/// The hit ratios of a whole cache with an index by key.
fn whole(requests: &Requests, eviction: &str, admission: Admission, bytes: u64) -> (f64, f64) {
    let mut outcomes = outcomes(requests, eviction, admission, bytes).into_iter();
    ratios(requests, |_, _| outcomes.next().unwrap())
}

/// Whether each request is a hit of such a cache.
fn outcomes(requests: &Requests, eviction: &str, admission: Admission, bytes: u64) -> Vec<bool> {
    let mut doorkeeper = (admission == Admission::SecondHit).then(|| Doorkeeper::new(bytes, 0));
    let capacity = bytes.saturating_sub(doorkeeper.as_ref().map_or(0, Doorkeeper::bytes));
    let entry = levada_cache::eviction::find_eviction(eviction).unwrap();
    let mut cache = Keyed::new((entry.build)(capacity));
    let is_hit = |&(key, size): &(levada_types::Key, u64)| {
        if cache.contains(key) {
            return cache.request(key, size);
        }
        if size <= capacity && doorkeeper.as_mut().is_none_or(|keeper| keeper.knows(key)) {
            cache.request(key, size);
        }
        false
    };
    requests.iter().map(is_hit).collect()
}

#[test]
fn requests_before_the_beginning_fill_the_caches_and_do_not_count() {
    let (requests, filling) = (zipf(2_000, 20_000, 3), 12_000);
    let mut curves = Curves::new(CurveOptions { sizes: SIZES.to_vec(), ..CurveOptions::default() });
    for (at, (key, size)) in requests.iter().enumerate() {
        if at == filling {
            curves.begin();
        }
        curves.request(*key, StatedSize::Whole(*size));
    }
    let report = curves.finish().unwrap();
    assert_eq!(report.requests, 8_000);
    for curve in &report.curves {
        for point in &curve.points {
            let counted: Requests = requests[filling..].to_vec();
            let mut all =
                outcomes(&requests, &curve.eviction, curve.admission, point.bytes).into_iter();
            all.by_ref().take(filling).for_each(drop);
            let expected = ratios(&counted, |_, _| all.next().unwrap());
            assert_equal(point, expected, &format!("{} {}", curve.eviction, point.bytes));
        }
    }
    let last = report.curves[0].points.last().unwrap();
    assert_equal(last, (report.unlimited.hit_ratio, report.unlimited.byte_hit_ratio), "unlimited");
}

fn ratios(
    requests: &Requests,
    mut is_hit: impl FnMut(levada_types::Key, u64) -> bool,
) -> (f64, f64) {
    let (mut hits, mut hit_bytes, mut bytes) = (0.0, 0.0, 0.0);
    for &(key, size) in requests {
        bytes += size as f64;
        if is_hit(key, size) {
            hits += 1.0;
            hit_bytes += size as f64;
        }
    }
    (hits / requests.len() as f64, hit_bytes / bytes)
}

fn assert_equal(point: &CurvePoint, (hits, bytes): (f64, f64), name: &str) {
    let off = (point.hit_ratio - hits).abs().max((point.byte_hit_ratio - bytes).abs());
    assert!(off < 1e-9, "{name}: {point:?}, not {hits} and {bytes}");
    assert_eq!((point.hit_error, point.byte_hit_error), (0.0, 0.0), "{name}");
}

const SIZES: [u64; 5] = [20_000, 100_000, 400_000, 1_500_000, 60_000_000];

#[test]
fn every_eviction_and_admission_is_that_of_a_whole_cache() {
    let requests = zipf(2_000, 30_000, 1);
    let options = CurveOptions { sizes: SIZES.to_vec(), ..CurveOptions::default() };
    let report = report(&requests, options);
    let names = levada_cache::eviction::EVICTIONS.iter().map(|entry| entry.name);
    assert_eq!(report.curves.len(), 2 * names.len());
    for curve in &report.curves {
        for point in &curve.points {
            let expected = whole(&requests, &curve.eviction, curve.admission, point.bytes);
            let name = format!("{} {:?} {}", curve.eviction, curve.admission, point.bytes);
            assert_equal(point, expected, &name);
        }
    }
    let objects: HashSet<_> = requests.iter().collect();
    assert_eq!(
        (report.objects, report.sampled_objects),
        (objects.len() as u64, objects.len() as u64)
    );
    assert_eq!(report.object_bytes, objects.iter().map(|(_, size)| size).sum::<u64>());
    let largest = report.curves[0].points.last().unwrap();
    let unlimited = report.unlimited;
    assert_equal(largest, (unlimited.hit_ratio, unlimited.byte_hit_ratio), "it holds all objects");
}

#[test]
fn lru_follows_from_stack_distances() {
    let requests = zipf(300, 4_000, 2);
    let options = CurveOptions { sizes: SIZES.to_vec(), ..CurveOptions::default() };
    let report = report(&requests, options);
    for point in &curve(&report, "lru", Admission::Always).points {
        let mut stack: Vec<(levada_types::Key, u64)> = Vec::new();
        // Objects that are larger than the cache are not in its stack.
        let expected = ratios(&requests, |key, size| {
            if size > point.bytes {
                return false;
            }
            let depth = stack.iter().position(|(of, _)| *of == key);
            let above = depth.map(|depth| stack[..=depth].iter().map(|(_, size)| size).sum());
            if let Some(depth) = depth {
                stack.remove(depth);
            }
            stack.insert(0, (key, size));
            above.is_some_and(|bytes: u64| bytes <= point.bytes)
        });
        assert_equal(point, expected, &point.bytes.to_string());
    }
}
