//! Generated requests.

use levada_curves::{Admission, CacheCurve, CurveOptions, CurveReport, Curves};
use levada_trace::{StatedSize, Workload};
use levada_types::{Key, Rng};

/// Keys and sizes.
pub(crate) type Requests = Vec<(Key, u64)>;

/// Requests by Zipf's law with exponent 0.9 for objects of log-uniform sizes from 100 bytes to 100 kB.
pub(crate) fn zipf(objects: usize, requests: usize, seed: u64) -> Requests {
    let mut rng = Rng::new(seed);
    let sizes: Vec<u64> =
        (0..objects).map(|_| (100.0 * 1000_f64.powf(rng.unit())) as u64).collect();
    let weights: Vec<u64> =
        (1..=objects).map(|rank| (1e9 / (rank as f64).powf(0.9)) as u64).collect();
    let key = |id: u32| Key::of(&[seed, u64::from(id)].map(u64::to_le_bytes).concat());
    let draws = Workload::new(&weights, seed).take(requests);
    draws.map(|id| (key(id), sizes[id as usize])).collect()
}

/// The curves of these requests.
pub(crate) fn report(requests: &Requests, options: CurveOptions) -> CurveReport {
    let mut curves = Curves::new(options);
    requests.iter().for_each(|(key, size)| curves.request(*key, StatedSize::Whole(*size)));
    curves.finish().unwrap()
}

/// One of the curves.
pub(crate) fn curve<'a>(
    report: &'a CurveReport,
    eviction: &str,
    admission: Admission,
) -> &'a CacheCurve {
    let mut curves = report.curves.iter();
    curves.find(|curve| curve.eviction == eviction && curve.admission == admission).unwrap()
}
