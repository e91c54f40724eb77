//! The numbers of each region, where a scenario has regions.

use levada_sim::{Metric, Outcome, RegionUse};

use crate::{
    Case, Report, Table, Verdict,
    report::{Cell, ReportColumn, ReportRow},
    table::Row,
};

/// The columns of a table of whole runs with regions.
pub const OF_ALL_REGIONS: &[Metric] = &[
    Metric::Requests,
    Metric::Throughput,
    Metric::HitRatio,
    Metric::OriginRequests,
    Metric::LongBytes,
];

/// A row for each region of each run of `table`; `None` without regions.
pub fn of_regions<'o>(
    table: &Table,
    outcome: &dyn Fn(&Case) -> Option<&'o Outcome>,
) -> Option<Report> {
    let of_row = |row: &Row| {
        let regions = outcome(&row.case).map_or(&[][..], |outcome| &outcome.regions);
        regions.iter().map(|region| row_of(row, region)).collect::<Vec<_>>()
    };
    let rows: Vec<_> = table.rows.iter().flat_map(of_row).collect();
    let column = |metric: &Metric| ReportColumn { metric: *metric, tolerance: None };
    (!rows.is_empty()).then(|| Report {
        id: format!("{}-regions", table.id),
        title: "Regions".to_owned(),
        source: table.source.clone(),
        note:
            "First: a region's first request for each object. All other numbers are of later ones."
                .to_owned(),
        columns: OF_A_REGION.iter().map(column).collect(),
        rows,
        claims: Vec::new(),
        plots: Vec::new(),
    })
}

fn row_of(row: &Row, region: &RegionUse) -> ReportRow {
    let cell = |metric: &Metric| {
        let ours = region.readings.get(&(*metric).into()).copied();
        Cell { ours, spread: None, paper: None, difference: None, verdict: Verdict::Reported }
    };
    ReportRow {
        key: format!("{} {}", row.key, region.name),
        series: row.series.clone(),
        x: None,
        label: format!("{} {}", row.label, region.name).trim().to_owned(),
        at: None,
        beyond: false,
        done: true,
        cells: OF_A_REGION.iter().map(cell).collect(),
        latencies: Vec::new(),
    }
}

const OF_A_REGION: &[Metric] = &[
    Metric::Requests,
    Metric::FirstP50,
    Metric::FirstP95,
    Metric::LatencyP50,
    Metric::LatencyP95,
    Metric::HitRatio,
    Metric::LongBytes,
];
