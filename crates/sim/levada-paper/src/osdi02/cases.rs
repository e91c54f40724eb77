//! The strategies and loads of the paper, and the cases, rows and claims that its tables share.

use levada_sim::{Metric, Scenario};

use crate::{
    Case, Claim, Column, Row, data,
    strategy::{Strategy, known_as},
};

/// The load of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// The trace (Sec. 5.1).
    Normal,
    /// A quarter of the clients asks for 10 documents of 6 KB on average (Sec. 5.2).
    Flash,
}

impl Load {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Flash => "flash",
        }
    }
}

pub(super) const RANDOM: Strategy = known_as("random");
pub(super) const R_CHASH: Strategy = known_as("r-chash");
pub(super) const R_HRW: Strategy = known_as("r-hrw");
pub(super) const LR_CHASH: Strategy = known_as("lr-chash");
pub(super) const LR_HRW: Strategy = known_as("lr-hrw");
pub(super) const CDR: Strategy = dynamic("cdr");
pub(super) const FDR: Strategy = dynamic("fdr");
pub(super) const FDR_GLOBAL: Strategy = dynamic("fdr-global");

/// A strategy with a busy threshold that is a number of requests, as the paper's are.
pub(super) const fn dynamic(name: &'static str) -> Strategy {
    Strategy { name, policy: name, set: &[("policy.busy", "capacity")] }
}

/// The strategies of Sec. 5.1 and 5.2 with local knowledge.
pub(super) const LOCAL: &[Strategy] = &[RANDOM, R_CHASH, R_HRW, LR_CHASH, LR_HRW, CDR, FDR];

/// The offered rates at which Tables 3, 4, 6, 7 and 9 have latencies. Every run collects all of them, so
/// that it serves every table.
pub(super) const RATES: [(Load, &str); 2] = [
    (Load::Normal, "[9300, 14409, 18478, 24173, 25407, 31000, 32582]"),
    (Load::Flash, "[11235, 14409, 19811, 30090, 31000, 34933, 37827]"),
];

/// A case of `strategy` under `load`, changed by `set`, which `what` describes.
pub(super) fn case(strategy: Strategy, load: Load, what: &str, set: &[(&str, String)]) -> Case {
    let rates = RATES.iter().find(|(of, _)| *of == load).map_or("[]", |(_, rates)| rates);
    let mut changes = vec![("policy.name", strategy.policy.to_owned())];
    changes.push(("measure.latency_at", rates.to_owned()));
    if load == Load::Flash {
        changes.push(("workload.flash.clients", "0.25".to_owned()));
    }
    changes.extend(strategy.set.iter().map(|(key, value)| (*key, (*value).to_owned())));
    changes.extend(set.iter().cloned());
    let id = ["osdi02", load.as_str(), strategy.name, what];
    let id: Vec<_> = id.into_iter().filter(|part| !part.is_empty()).collect();
    Case {
        id: id.join(" "),
        // This file has the keys, and a test prepares every case.
        scenario: Scenario::default().with(changes).expect("keys and values that exist"),
    }
}

/// A row of `strategy` on 64 servers under `load`.
pub(super) fn plain_row(
    strategy: Strategy,
    load: Load,
    paper: Vec<Option<f64>>,
    beyond: bool,
) -> Row {
    Row {
        key: strategy.key(),
        series: strategy.name.to_owned(),
        x: None,
        label: String::new(),
        at: None,
        beyond,
        case: case(strategy, load, "", &[]),
        paper,
    }
}

/// The paper's capacity, if it has one.
pub(super) fn published(strategy: Strategy, load: Load, slow_percent: &str) -> Option<f64> {
    let is = |row: &Vec<&str>| row[..3] == [strategy.name, load.as_str(), slow_percent];
    data::rows(CAPACITIES).find(is).and_then(|row| data::number(row[3]))
}

pub(super) const CAPACITIES: &str = include_str!("../../data/osdi02_capacity.csv");
pub(super) const LATENCIES: &str = include_str!("../../data/osdi02_latency.csv");
pub(super) const UTILISATIONS: &str = include_str!("../../data/osdi02_utilisation.csv");

/// Tolerances of a capacity, a ratio of capacities, a median and a 90th percentile, relative to the
/// paper's.
pub(super) const CAPACITY: f64 = 0.30;
pub(super) const RATIO: f64 = 0.20;
pub(super) const MEDIAN: f64 = 0.25;
pub(super) const P90: f64 = 0.35;

pub(super) fn within(metric: Metric, tolerance: f64) -> Column {
    Column { metric, tolerance: Some(tolerance) }
}

pub(super) fn reported(metric: Metric) -> Column {
    Column { metric, tolerance: None }
}

pub(super) fn order(chain: &str) -> Claim {
    Claim::Order { column: 0, chain: chain.to_owned() }
}

pub(super) fn ratio(of: &str, to: &str, paper: f64) -> Claim {
    Claim::Ratio { column: 0, of: of.to_owned(), to: to.to_owned(), paper, tolerance: RATIO }
}
