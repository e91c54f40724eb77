//! Figures 3 to 6.

use levada_sim::Metric;

use super::{
    CAP, COMMERCE_A, COMMERCE_B, COMMERCE_C, Case, Claim, LARD, LARD_COUNTING, LIGHT, PARTITION,
    PEERS, RANDOM, ROUND_ROBIN, Row, STATIC, Site, Size, SwitchStrategy, TRANSACTION, Table, WRR,
    case, published, reported,
};
use crate::Plot;

/// Figures 4 to 6: cumulative frequencies of page latency, one site each.
pub(super) const ALL: &[Figure] = &[
    Figure {
        number: "4a",
        site: STATIC,
        claims: &[Says::Order(WITHIN_1S, "wrr < cap < lard")],
        note: "With one class of requests, CAP is round robin by request, and StaticPartitioning round \
            robin by page.",
    },
    Figure {
        number: "4b",
        site: LIGHT,
        claims: &[Says::Order(WITHIN_1S, "cap ~ lard"), Says::Order(WITHIN_1S, "cap <= lard")],
        note: "The document of each page is a simple search; embedded objects are files.",
    },
    Figure {
        number: "5",
        site: TRANSACTION,
        claims: &[
            Says::Order(P90, "cap < wrr < lard < static_partition"),
            Says::AtMost(P90, "cap", "wrr", 0.5),
            Says::AtMost(P90, "cap", "lard", 0.3),
        ],
        note: "",
    },
    Figure {
        number: "6a",
        site: COMMERCE_A,
        claims: &[
            Says::Order(P90, "cap < wrr"),
            Says::Order(P90, "cap < lard"),
            Says::Order(P90, "cap < static_partition"),
        ],
        note: "The paper finds all strategies bad here. RSA works on 1,024 bits a session; with the 256 of \
            Table 2, which `cap-open-commerce` has, the CPUs are far from busy.",
    },
    Figure {
        number: "6b",
        site: COMMERCE_B,
        claims: &[
            Says::Order(WITHIN_2S5, "lard < wrr ~ static_partition"),
            Says::Order(WITHIN_2S5, "lard < wrr < cap"),
            Says::AtMost(P90, "cap", "wrr", 0.5),
            Says::AtMost(P90, "cap", "lard", 0.3),
        ],
        note: "",
    },
    Figure {
        number: "6c",
        site: COMMERCE_C,
        claims: &[
            Says::Order(P90, "cap < wrr < lard"),
            Says::AtMost(P90, "cap", "wrr", 0.5),
            Says::AtMost(P90, "cap", "lard", 0.3),
        ],
        note: "The paper's own numbers for LARD hardly agree with each other: 72 % of the pages within 5 s, \
            and a 90th percentile above 35 s.",
    },
];

/// One figure.
#[derive(Debug)]
pub(super) struct Figure {
    number: &'static str,
    site: Site,
    claims: &'static [Says],
    note: &'static str,
}

/// The paper's statements about a column.
#[derive(Clone, Copy, Debug)]
enum Says {
    Order(usize, &'static str),
    AtMost(usize, &'static str, &'static str, f64),
}

impl Figure {
    /// The figure's table at one size.
    pub(super) fn table(&self, size: Size) -> Table {
        let strategies = [CAP, WRR, LARD, LARD_COUNTING, PARTITION, RANDOM, ROUND_ROBIN];
        let in_paper = strategies.iter().map(|strategy| (strategy, false));
        let beside = PEERS.iter().map(|strategy| (strategy, true));
        let rows = in_paper.chain(beside).map(|(strategy, beyond)| Row {
            key: strategy.key.to_owned(),
            series: strategy.name.to_owned(),
            x: None,
            label: String::new(),
            at: None,
            beyond,
            case: case(*strategy, self.site, size, "", &[]),
            paper: COLUMNS
                .iter()
                .map(|metric| published(self.number, strategy.key, *metric))
                .collect(),
        });
        let quick = if size == Size::Quick { "-quick" } else { "" };
        Table {
            id: format!("cap-fig{}{quick}", self.number),
            also: vec![format!("cap-{}{quick}", self.number)],
            title: format!("Page latency, {}", self.site.name),
            source: format!("WWW10 Figure {}", self.number),
            note: [self.note, NOTE].join(" ").trim().to_owned(),
            columns: COLUMNS.iter().map(|metric| reported(*metric)).collect(),
            rows: rows.collect(),
            claims: self.claims.iter().map(|says| says.claim()).collect(),
            plots: vec![Plot::Latencies],
        }
    }
}

impl Says {
    fn claim(self) -> Claim {
        match self {
            Self::Order(column, chain) => Claim::Order { column, chain: chain.to_owned() },
            Self::AtMost(column, of, to, high) => Claim::RatioWithin {
                column,
                of: of.to_owned(),
                to: to.to_owned(),
                low: f64::NEG_INFINITY,
                high,
            },
        }
    }
}

/// The note of all figures.
const NOTE: &str = "The paper puts its numbers as \"about\", \"less than\" or \"higher than\", and does not \
    say at which load; here 32 servers have 300 clients per second, the largest of Table 1.";

/// The columns of every figure.
pub(super) const COLUMNS: &[Metric] = &[
    Metric::LatencyP90,
    Metric::Within1s,
    Metric::Within2s5,
    Metric::Within5s,
    Metric::LatencyMean,
    Metric::HitRatio,
    Metric::CpuUtilisation,
    Metric::DiskUtilisation,
    Metric::DatabaseUtilisation,
    Metric::Imbalance,
];

const P90: usize = 0;
const WITHIN_1S: usize = 1;
const WITHIN_2S5: usize = 2;

/// Figure 3: WRR by its measure of load and its reporting interval, next to strategies without a
/// measure.
pub(super) fn figure_3(number: &str, site: Site, size: Size) -> Table {
    let row = |key: String, series: &str, x: Option<f64>, case: Case| Row {
        key,
        series: series.to_owned(),
        x,
        label: x.map_or_else(String::new, |seconds| format!("every {seconds} s")),
        at: None,
        beyond: false,
        case,
        paper: Vec::new(),
    };
    let mut rows = Vec::new();
    for strategy in [RANDOM, ROUND_ROBIN] {
        let case = case(strategy, site, size, "", &[]);
        rows.push(row(strategy.key.to_owned(), strategy.name, None, case));
    }
    for (key, name, weights) in
        [("wrr_num", "WRR_num", "active_connections"), ("wrr_time", "WRR_time", "service_time")]
    {
        for seconds in [1, 10, 30] {
            let (strategy, refresh) = (SwitchStrategy { name, ..WRR }, format!("{seconds}s"));
            let set = [("policy.weights", weights), ("policy.refresh", &refresh)];
            let case = case(strategy, site, size, &refresh, &set);
            rows.push(row(format!("{key}/{seconds}"), name, Some(f64::from(seconds)), case));
        }
    }
    let order = |chain: &str| Claim::Order { column: P90, chain: chain.to_owned() };
    Table {
        id: format!("cap-fig{number}"),
        also: vec![format!("cap-{number}")],
        title: format!("WRR by load measure and period, {}", site.name),
        source: format!("WWW10 Figure {number}"),
        note: "The figure is lost; the text says that short periods are better, that active connections \
            are the better measure, and that a badly tuned WRR is worse than RAN and RR."
            .to_owned(),
        columns: [Metric::LatencyP90, Metric::LatencyMean, Metric::Within1s].map(reported).into(),
        rows,
        claims: vec![
            order("wrr_num/1 < wrr_num/10 <= wrr_num/30"),
            order("wrr_time/1 <= wrr_time/10 <= wrr_time/30"),
            order("wrr_num/1 < wrr_time/1"),
            order("ran < wrr_num/30"),
            order("rr < wrr_num/30"),
        ],
        plots: vec![Plot::Lines { x: "period (s)".to_owned(), log: true }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Report, Verdict};
    use levada_sim::{Library, Outcome};
    use std::ops::ControlFlow;

    /// The paper's strategies for forty seconds.
    fn quick(number: &str) -> Report {
        let figure = ALL.iter().find(|figure| figure.number == number).unwrap();
        let mut table = figure.table(Size::Quick);
        table.rows.retain(|row| ["cap", "wrr", "lard", "static_partition"].contains(&&*row.key));
        let outcomes: Vec<(String, Outcome)> = table.rows.iter().map(run).collect();
        let outcome = |case: &Case| Some(&outcomes.iter().find(|(id, _)| *id == case.id)?.1);
        Report::new(&table, &outcome)
    }

    fn run(row: &Row) -> (String, Outcome) {
        let prepared = row.case.scenario.prepare(&mut Library::without_files()).unwrap();
        (row.case.id.clone(), levada_sim::run(&prepared, &mut |_| ControlFlow::Continue(())))
    }

    fn all_hold(number: &str) {
        for claim in quick(number).claims {
            assert_eq!(claim.verdict, Verdict::Pass, "{number} {}: {:?}", claim.claim, claim.ours);
        }
    }

    #[test]
    fn locality_is_best_for_static_pages() {
        all_hold("4a");
    }

    #[test]
    fn sharing_every_class_is_best_for_transactions() {
        all_hold("5");
    }

    #[test]
    fn sharing_every_class_is_best_for_commerce() {
        all_hold("6a");
        all_hold("6c");
    }
}
