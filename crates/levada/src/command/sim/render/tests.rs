//! A small table with invented outcomes in every form. `UPDATE_EXPECT=1` writes the golden files again.

use std::{collections::BTreeMap, env, fs, path::Path};

use levada_paper::{
    Case, Claim, Column, Plot, Report, Row, Table,
    render::{csv, text},
};
use levada_sim::{Metric, Outcome, Reading, Scenario, Series};

use super::*;

/// A report with two strategies over servers, one that was not run, and latencies at a rate.
fn reports() -> Vec<Report> {
    let row = |series: &str, servers: u32, paper: Option<f64>| Row {
        key: format!("{series}/{servers}"),
        series: series.to_owned(),
        x: Some(f64::from(servers)),
        label: format!("{servers} servers"),
        at: None,
        beyond: paper.is_none(),
        case: Case { id: format!("{series} {servers}"), scenario: Scenario::default() },
        paper: vec![paper],
    };
    let at = |series: &str, rate: u32, paper: [f64; 2]| Row {
        at: Some(rate),
        key: format!("{series}@{rate}"),
        x: None,
        label: String::new(),
        paper: paper.map(Some).to_vec(),
        ..row(series, 8, None)
    };
    let capacity = Table {
        id: "test-fig1".to_owned(),
        also: Vec::new(),
        title: "Capacity <over> servers".to_owned(),
        source: "a test".to_owned(),
        note: "Invented numbers, to see what a report makes of them.".to_owned(),
        columns: vec![
            Column { metric: Metric::Capacity, tolerance: Some(0.3) },
            Column { metric: Metric::HitRatio, tolerance: None },
        ],
        rows: vec![
            row("fdr", 8, Some(4000.0)),
            row("fdr", 16, Some(8000.0)),
            row("random", 8, Some(1500.0)),
            row("random", 16, Some(2000.0)),
            row("p2c", 8, None),
        ],
        claims: vec![
            Claim::Order { column: 0, chain: "random/8 < fdr/8".to_owned() },
            Claim::Slope { column: 0, series: "fdr".to_owned(), low: 0.9, high: 1.1 },
            Claim::Order { column: 0, chain: "random/8 < p2c/8".to_owned() },
        ],
        plots: vec![Plot::Lines { x: "servers".to_owned(), log: true }, Plot::Bars],
    };
    let latency = Table {
        id: "test-table2".to_owned(),
        title: "Latency".to_owned(),
        columns: vec![
            Column { metric: Metric::LatencyP50, tolerance: Some(0.25) },
            Column { metric: Metric::LatencyP90, tolerance: Some(0.35) },
        ],
        rows: vec![at("fdr", 9300, [0.5, 1.4]), at("random", 9300, [1.8, 11.0])],
        claims: Vec::new(),
        plots: vec![Plot::Latencies],
        ..capacity.clone()
    };
    let mut outcomes: BTreeMap<&str, Outcome> = BTreeMap::new();
    for (case, capacity, hits) in [
        ("fdr 8", 4100.0, 0.981),
        ("fdr 16", 8300.0, 0.979),
        ("random 8", 1000.0, 0.853),
        ("random 16", 2010.0, 0.85),
    ] {
        let outcome = outcomes.entry(case).or_default();
        outcome.readings.insert(Metric::Capacity.into(), capacity);
        outcome.readings.insert(Metric::HitRatio.into(), hits);
        let slow = if case.starts_with("fdr") { 1.0 } else { 3.0 };
        outcome.readings.insert(Reading::at(Metric::LatencyP50, 9300), 0.5 * slow);
        outcome.readings.insert(Reading::at(Metric::LatencyP90, 9300), 1.25 * slow);
        let points = (1..=100).map(|n| f64::from(n) / 100.0);
        outcome.series.push(Series {
            name: "latency_cdf@9300".to_owned(),
            points: points.map(|part| (0.5 * slow * part / (1.02 - part), part)).collect(),
            ..Series::default()
        });
    }
    let outcome = |case: &Case| outcomes.get(case.id.as_str());
    vec![Report::new(&capacity, &outcome), Report::new(&latency, &outcome)]
}

fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim").join(name);
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap_or_default(), "UPDATE_EXPECT=1 rewrites");
}

#[test]
fn a_report_reads_as_text() {
    assert_golden("report.txt", &text::render(&reports()));
}

#[test]
fn a_report_is_a_line_for_each_number() {
    assert_golden("report.csv", &csv::render(&reports()));
}

#[test]
fn a_page_needs_nothing_else() {
    let page = html::render("A test & a page", &reports());
    if let Some(path) = env::var_os("LEVADA_SHOW_PAGE") {
        fs::write(path, &page).unwrap();
    }
    // The namespace of SVG is not an address that a browser loads.
    let linked = page.replace("http://www.w3.org/2000/svg", "");
    for foreign in ["<script", "http", "src=", "@import", "url("] {
        assert!(!linked.contains(foreign), "{foreign}");
    }
    assert!(page.contains("<title>A test &amp; a page</title>"));
    assert!(page.contains("Capacity &lt;over&gt; servers") && !page.contains("<over>"));
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
}

#[test]
fn each_plot_is_a_figure_in_the_text_colour() {
    let reports = reports();
    let figures: Vec<_> = reports.iter().flat_map(plot::figures).collect();
    assert_eq!(figures.len(), 3, "lines, bars, and latencies at one rate");
    for figure in figures {
        assert!(figure.svg.contains("currentColor") && !figure.svg.contains("#010101"));
        assert!(figure.svg.contains("fdr") && figure.svg.ends_with("</svg>\n"));
    }
}

#[test]
fn what_was_not_run_is_not_drawn() {
    let mut reports = reports();
    reports.iter_mut().flat_map(|report| &mut report.rows).for_each(|row| row.done = false);
    assert!(reports.iter().all(|report| plot::figures(report).is_empty()));
}
