//! A sample says how far its figures may be from those of all requests.

mod support;

use std::{io::Write as _, path::PathBuf};

use levada_cache::eviction::find_eviction;
use levada_curves::{Admission, CurveError, CurveOptions, CurveReport, Curves, read};
use levada_trace::StatedSize;
use levada_types::Key;
use support::{Requests, curve, report, zipf};

fn options(rate: f64, seed: u64) -> CurveOptions {
    let sizes = vec![16_000_000, 64_000_000, 256_000_000];
    CurveOptions { sizes, rate, seed, ..CurveOptions::default() }
}

/// The points with an error, and those whose intervals have the truth.
fn covered(truth: &CurveReport, sampled: &CurveReport) -> (u32, u32) {
    let (mut points, mut covered) = (0, 0);
    for (whole, part) in truth.curves.iter().zip(&sampled.curves) {
        for (truth, found) in whole.points.iter().zip(&part.points) {
            for (truth, found, error) in [
                (truth.hit_ratio, found.hit_ratio, found.hit_error),
                (truth.byte_hit_ratio, found.byte_hit_ratio, found.byte_hit_error),
            ] {
                assert!(error > 0.0 && error < 0.2, "{} {error}", part.eviction);
                points += 1;
                covered += u32::from((truth - found).abs() <= error);
            }
        }
    }
    (points, covered)
}

#[test]
fn intervals_cover_the_truth() {
    let requests = zipf(40_000, 200_000, 3);
    let truth = report(&requests, options(1.0, 1));
    let (mut points, mut inside) = (0, 0);
    for seed in 1..=6 {
        let (of_seed, covered) = covered(&truth, &report(&requests, options(0.1, seed)));
        (points, inside) = (points + of_seed, inside + covered);
    }
    assert!(f64::from(inside) > 0.9 * f64::from(points), "{inside} of {points}");
}

#[test]
fn same_seed_gives_the_same_figures_with_any_number_of_threads() {
    let requests = zipf(20_000, 40_000, 4);
    let with = |seed, threads| report(&requests, CurveOptions { threads, ..options(0.2, seed) });
    assert_eq!(with(1, 1), with(1, 3));
    assert_ne!(with(1, 1).curves, with(2, 1).curves);
}

#[test]
fn popular_object_does_not_move_the_curve() {
    // Every third request is for one object: hits, whether it is sampled or not.
    let mut requests: Requests = Vec::new();
    for (n, request) in zipf(20_000, 60_000, 5).into_iter().enumerate() {
        requests.push(request);
        if n % 2 == 0 {
            requests.push((Key(7), 5_000));
        }
    }
    let lru = |rate, seed| {
        let report = report(&requests, options(rate, seed));
        curve(&report, "lru", Admission::Always).points[1]
    };
    let truth = lru(1.0, 1);
    for seed in 1..=12 {
        let found = lru(0.1, seed);
        assert!((found.hit_ratio - truth.hit_ratio).abs() < 0.03, "{found:?} {truth:?}");
    }
}

#[test]
fn sample_that_is_too_small_is_refused() {
    let mut curves = Curves::new(options(0.01, 1));
    for n in 0..10_000 {
        curves.request(Key::of(&u64::to_le_bytes(n)), StatedSize::Whole(1));
    }
    assert!(matches!(curves.finish(), Err(CurveError::TooFewSampled { objects: 50..200 })));
}

#[test]
fn compressed_logs_and_several_files_are_the_log_itself() {
    let requests = zipf(3_000, 30_000, 6);
    let line = |(n, (key, size)): (usize, &(Key, u64))| format!("{n} {} {size}\n", key.0);
    let text: String = requests.iter().enumerate().map(line).collect();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let half = text.len() / 2 + text[text.len() / 2..].find('\n').unwrap() + 1;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text.as_bytes()[..half]).unwrap();
    let first = file("1.gz", &gzip.finish().unwrap());
    let second = file("2.zst", &zstd::encode_all(&text.as_bytes()[half..], 1).unwrap());
    let of = |files: &[PathBuf]| {
        let options = CurveOptions {
            sample: 5_000,
            evictions: vec![find_eviction("lru").unwrap()],
            admissions: vec![Admission::Always],
            ..options(1.0, 1)
        };
        read(files, options).unwrap().curves.finish().unwrap()
    };
    let whole = of(&[file("whole", text.as_bytes())]);
    assert!(whole.rate < 0.3, "{}", whole.rate);
    assert_eq!(whole, of(&[first, second]));
}
