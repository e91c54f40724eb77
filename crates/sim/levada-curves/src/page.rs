//! The curves as one page with figures.

use std::fmt::Write as _;

use levada_report::{
    chart::{Axes, Curve, Page, escaped, lines},
    grouped,
};
use levada_types::ByteSize;

use crate::{
    Admission, CacheCurve, CurveReport,
    text::{RATIOS, Ratio, percent, sample},
};

/// The whole page. `remarks` are sentences under its head.
pub fn page(report: &CurveReport, remarks: &[String]) -> String {
    let about = if report.rate < 1.0 { "about " } else { "" };
    let sentence = format!(
        "{} requests for {about}{} objects of {about}{}; sampled: {}.",
        grouped(report.requests),
        grouped(report.objects),
        ByteSize(report.object_bytes),
        sample(report),
    );
    let mut page = Page::new("Hit ratios by the size of the cache", &sentence);
    for remark in remarks {
        let _ = writeln!(page, "<p>{}</p>", escaped(remark));
    }
    for ratio in RATIOS {
        let _ = writeln!(page, "<h2>{}</h2>", ratio.name);
        for admission in Admission::ALL {
            figure(&mut page, report, &ratio, admission);
        }
        table(&mut page, report, &ratio);
    }
    page.finish()
}

fn figure(page: &mut Page, report: &CurveReport, ratio: &Ratio, admission: Admission) {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let curves: Vec<Curve> = (report.curves.iter())
        .filter(|curve| curve.admission == admission)
        .map(|curve| {
            let points = curve.points.iter();
            let points = points.map(|p| (mebibytes(p.bytes), (ratio.of)(p) * 100.0)).collect();
            (curve.eviction.clone(), points)
        })
        .collect();
    let axes = Axes {
        x: "size of the cache in MiB".to_owned(),
        y: "percent".to_owned(),
        log_x: true,
        markers: true,
        ..Axes::default()
    };
    let caption = format!("{}, admission {}", ratio.name, admission.as_str());
    if !curves.is_empty()
        && let Some(figure) = lines(&caption, &curves, &axes)
    {
        page.figure(&figure);
    }
}

fn table(page: &mut Page, report: &CurveReport, ratio: &Ratio) {
    let Some(first) = report.curves.first() else { return };
    let sizes = first.points.iter().map(|point| format!("<th>{}</th>", ByteSize(point.bytes)));
    let head: String = sizes.collect();
    let _ = writeln!(
        page,
        "<div class=\"wide\"><table><thead><tr><th>percent</th><th>admission</th>{head}</tr></thead><tbody>"
    );
    for curve in &report.curves {
        let _ = writeln!(page, "{}", row(curve, ratio));
    }
    page.push_str("</tbody></table></div>\n");
}

fn row(curve: &CacheCurve, ratio: &Ratio) -> String {
    let cells = curve.points.iter().map(|point| {
        let (value, error) = (percent((ratio.of)(point)), percent((ratio.error)(point)));
        format!("<td>{value} ±{error}</td>")
    });
    let (name, admission) = (escaped(&curve.eviction), curve.admission.as_str());
    let cells: String = cells.collect();
    format!("<tr><th scope=\"row\">{name}</th><td>{admission}</td>{cells}</tr>")
}
