//! The curves for a terminal.

use std::fmt::Write as _;

use levada_report::grouped;
use levada_types::ByteSize;

use crate::{CacheCurve, CurvePoint, CurveReport};

/// Text with a table for each of the two ratios.
pub fn text(report: &CurveReport) -> String {
    let mut out = String::new();
    let about = if report.rate < 1.0 { "about " } else { "" };
    let _ =
        writeln!(out, "requests   {}, {about}{}", grouped(report.requests), ByteSize(report.bytes));
    let size = ByteSize(report.object_bytes);
    let _ = writeln!(out, "objects    {about}{}, {about}{size}", grouped(report.objects));
    let _ = writeln!(out, "sample     {}", sample(report));
    let unlimited = report.unlimited;
    let (hits, bytes) = (percent(unlimited.hit_ratio), percent(unlimited.byte_hit_ratio));
    let _ =
        writeln!(out, "at most    {hits} % hits, {bytes} % of bytes: a cache that never evicts");
    for ratio in RATIOS {
        table(&mut out, report, &ratio);
    }
    out
}

/// One of the two ratios.
pub(crate) struct Ratio {
    pub(crate) name: &'static str,
    pub(crate) of: fn(&CurvePoint) -> f64,
    pub(crate) error: fn(&CurvePoint) -> f64,
}

pub(crate) const RATIOS: [Ratio; 2] = [
    Ratio { name: "Hit ratio", of: |point| point.hit_ratio, error: |point| point.hit_error },
    Ratio {
        name: "Byte hit ratio",
        of: |point| point.byte_hit_ratio,
        error: |point| point.byte_hit_error,
    },
];

/// The sentence about the sample.
pub(crate) fn sample(report: &CurveReport) -> String {
    if report.rate >= 1.0 {
        return "all requests, so that there is no sampling error".to_owned();
    }
    let (requests, objects) = (grouped(report.sampled_requests), grouped(report.sampled_objects));
    format!("{requests} requests for {objects} objects: one object in {:.1}", 1.0 / report.rate)
}

fn table(out: &mut String, report: &CurveReport, ratio: &Ratio) {
    let Some(first) = report.curves.first() else { return };
    let _ = writeln!(out, "\n{} in percent, by the size of the cache", ratio.name);
    let sizes = first.points.iter().map(|point| ByteSize(point.bytes).to_string());
    let sizes: String = sizes.map(|size| format!("{size:>9}")).collect();
    let _ = writeln!(out, "{:<14}{:<11}{sizes}    error", "eviction", "admission");
    for curve in &report.curves {
        let cells = curve.points.iter().map(|point| format!("{:>9}", percent((ratio.of)(point))));
        let (cells, error): (String, _) = (cells.collect(), largest(curve, ratio));
        let (name, admission) = (&curve.eviction, curve.admission.as_str());
        let _ = writeln!(out, "{name:<14}{admission:<11}{cells}   ±{error:>5}");
    }
}

/// The largest error of a curve.
fn largest(curve: &CacheCurve, ratio: &Ratio) -> String {
    percent(curve.points.iter().map(ratio.error).fold(0.0, f64::max))
}

pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.2}", ratio * 100.0)
}
