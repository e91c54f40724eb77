//! Latencies at given rates: Tables 3, 4, 6, 7 and 9, with Figures 6-9 and 12-15.

use std::collections::BTreeSet;

use levada_sim::Metric;

use super::capacity::LARGE;
use super::cases::{
    CDR, FDR, FDR_GLOBAL, LATENCIES, LR_CHASH, LR_HRW, Load, MEDIAN, P90, R_CHASH, R_HRW, RANDOM,
    case, dynamic, reported, within,
};
use crate::Plot;
use crate::strategy::{PEERS, Strategy, known_as};
use crate::{Claim, Row, Table, data};

pub(super) fn table_3() -> Table {
    let paper = [RANDOM, R_CHASH, R_HRW, LR_CHASH, LR_HRW, CDR, FDR, FDR_GLOBAL];
    let mut table = latencies("3", Load::Normal, &paper, "Latency under normal load");
    table.also = (6..=9).map(|figure| format!("osdi02-fig{figure}")).collect();
    table.source = "OSDI'02 Table 3, Figures 6-9, Sec. 5.1.3".to_owned();
    for strategy in &paper[1..] {
        table.claims.push(Claim::Below {
            low: (key(*strategy, 9300), P90_COLUMN),
            high: (key(RANDOM, 9300), MEDIAN_COLUMN),
            text: format!(
                "{}: 90th percentile below the median of random, 9300 req/s",
                strategy.name
            ),
        });
    }
    table.claims.extend(global_is_better(&[9300, 18478, 25407, 32582]));
    table
}

pub(super) fn table_4() -> Table {
    let paper = [RANDOM, R_CHASH, R_HRW, LR_CHASH, LR_HRW, CDR, FDR, FDR_GLOBAL];
    let mut table = latencies("4", Load::Flash, &paper, "Latency under a flash crowd");
    table.also = (12..=15).map(|figure| format!("osdi02-fig{figure}")).collect();
    table.source = "OSDI'02 Table 4, Figures 12-15, Sec. 5.2.2".to_owned();
    table.claims.extend(global_is_better(&[11235, 19811, 31000, 37827]));
    table
}

pub(super) fn table_6() -> Table {
    latencies("6", Load::Normal, &near(), "Latency where distance counts, normal load")
}

pub(super) fn table_7() -> Table {
    latencies("7", Load::Flash, &near(), "Latency where distance counts, flash crowd")
}

fn near() -> [Strategy; 7] {
    let [npr, nplr] = ["npr-chash", "nplr-chash"].map(known_as);
    [RANDOM, npr, R_CHASH, nplr, LR_CHASH, dynamic("np-fdr"), FDR]
}

pub(super) fn table_9() -> Table {
    let [cdr_random, cdr_set, fdr_random, fdr_set] = LARGE;
    let paper = [LR_CHASH, LR_HRW, CDR, cdr_random, cdr_set, FDR, fdr_random, fdr_set];
    let mut table = latencies("9", Load::Normal, &paper, "Latency with large files treated apart");
    for strategy in LARGE {
        let base = &strategy.name[..3];
        table.claims.push(Claim::Below {
            low: (key(strategy, 25407), 0),
            high: (format!("{base}@25407"), 0),
            text: format!("{}: mean below that of {base}, 25407 req/s", strategy.name),
        });
    }
    table
}

const MEDIAN_COLUMN: usize = 1;
const P90_COLUMN: usize = 2;

fn key(strategy: Strategy, rate: u32) -> String {
    format!("{}@{rate}", strategy.key())
}

/// "FDR-Global is better than CDR and FDR in all cases" (Sec. 5.1.3), by its means.
fn global_is_better(rates: &[u32]) -> impl Iterator<Item = Claim> {
    let pairs = rates.iter().flat_map(|rate| [(CDR, *rate), (FDR, *rate)]);
    pairs.map(|(local, rate)| Claim::Below {
        low: (key(FDR_GLOBAL, rate), 0),
        high: (key(local, rate), 0),
        text: format!("fdr-global: mean below that of {}, {rate} req/s", local.name),
    })
}

/// The rows of the paper's table, and the peers at the same rates.
fn latencies(number: &'static str, load: Load, strategies: &[Strategy], title: &str) -> Table {
    let published: Vec<Vec<&str>> = data::rows(LATENCIES).filter(|row| row[0] == number).collect();
    let rates: BTreeSet<u32> = published.iter().filter_map(|row| row[2].parse().ok()).collect();
    let row = |strategy: Strategy, rate: u32, paper: Vec<Option<f64>>, beyond: bool| Row {
        key: key(strategy, rate),
        series: strategy.name.to_owned(),
        x: None,
        label: String::new(),
        at: Some(rate),
        beyond,
        case: case(strategy, load, "", &[]),
        paper,
    };
    let mut rows = Vec::new();
    for strategy in strategies {
        for line in published.iter().filter(|line| line[1] == strategy.name) {
            let Ok(rate) = line[2].parse() else { continue };
            let [mean, median, p90, sd] = [3, 4, 5, 6].map(|field| data::number(line[field]));
            rows.push(row(*strategy, rate, vec![mean, median, p90, sd], false));
        }
    }
    for peer in PEERS {
        rows.extend(rates.iter().map(|rate| row(*peer, *rate, Vec::new(), true)));
    }
    Table {
        id: format!("osdi02-table{number}"),
        also: Vec::new(),
        title: title.to_owned(),
        source: format!("OSDI'02 Table {number}"),
        note: "From the first packet of a request to the last byte of its response at the client, \
            around the offered rate in the run that raises it; a dash where the first server fails \
            before that rate. Means and deviations are those of a few very long transfers and are \
            only reported."
            .to_owned(),
        columns: vec![
            reported(Metric::LatencyMean),
            within(Metric::LatencyP50, MEDIAN),
            within(Metric::LatencyP90, P90),
            reported(Metric::LatencySd),
        ],
        rows,
        claims: Vec::new(),
        plots: vec![Plot::Latencies],
    }
}
