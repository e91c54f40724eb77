//! Pai, Aron, Banga, Svendsen, Druschel, Zwaenepoel and Nahum, "Locality-Aware Request Distribution in
//! Cluster-based Network Servers", ASPLOS'98.
//!
//! A closed loop: the front-end keeps S requests outstanding, so that the rate is the cluster's
//! capacity (Sec. 3.3). Network and front-end take no time (Sec. 3.1). The whole trace counts, from
//! empty memories on.
//!
//! The paper's curves are not available as numbers: the claims here are the statements of its text, and
//! limits that were derived from them before the first run.

mod open;

use levada_sim::{Metric, Scenario};

use super::{
    Case, Claim, Column, Paper, Plot, Row, Table,
    strategy::{BOUNDED, PEERS, Strategy, known_as},
};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "lard",
    title: "Locality-Aware Request Distribution in Cluster-based Network Servers (ASPLOS'98)",
    tables,
    quick,
};

fn tables() -> Vec<Table> {
    vec![
        cluster_sizes(&RICE),
        cluster_sizes(&IBM),
        open::cpu_speeds(),
        open::disks(),
        open::eviction(),
        open::sensitivity(),
    ]
}

fn quick() -> Vec<Table> {
    vec![cluster_sizes(&QUICK)]
}

/// A workload and the cluster sizes that it is run with.
struct TraceLoad {
    name: &'static str,
    title: &'static str,
    also: &'static [&'static str],
    trace: &'static str,
    /// Number of requests; all of the trace when empty.
    requests: &'static str,
    nodes: &'static [usize],
    claims: fn() -> Vec<Claim>,
}

const RICE: TraceLoad = TraceLoad {
    name: "rice",
    title: "Rice-like trace",
    also: &["lard-fig7", "lard-fig8", "lard-fig9"],
    trace: "rice",
    requests: "",
    nodes: &[1, 2, 4, 8, 12, 16],
    claims: rice_claims,
};

const IBM: TraceLoad = TraceLoad {
    name: "ibm",
    title: "IBM-like trace",
    also: &["lard-fig10"],
    trace: "ibm",
    // A fifth of the trace: three times as many requests per file as the Rice trace.
    requests: "3000000",
    nodes: &[1, 2, 4, 8, 12, 16],
    claims: ibm_claims,
};

const QUICK: TraceLoad = TraceLoad {
    name: "quick",
    title: "beginning of the Rice-like trace",
    also: &[],
    trace: "rice",
    requests: "300000",
    nodes: &[2, 8],
    claims: quick_claims,
};

const WRR: Strategy = known_as("wrr");
const LB: Strategy = known_as("lb");
const LB_GC: Strategy =
    Strategy { name: "lb/gc", policy: "lb/gc", set: &[("policy.cache_bytes", "33554432")] };
const LARD: Strategy = Strategy { name: "lard", policy: "lard", set: THRESHOLDS };
const LARD_R: Strategy = Strategy { name: "lard/r", policy: "lard/r", set: THRESHOLDS };
const WRR_GMS: Strategy = known_as("wrr/gms");

/// T_low and T_high (Sec. 2.3).
const THRESHOLDS: &[(&str, &str)] = &[("policy.t_low", "25"), ("policy.t_high", "65")];

/// The strategies of Sec. 2 and 4.
const PAPERS: &[Strategy] = &[WRR, LB, LB_GC, LARD, LARD_R, WRR_GMS];

/// The world of Sec. 3: the front-end and the networks cost nothing, so that only the back-ends
/// matter.
const WORLD: &[(&str, &str)] = &[
    ("topology.name", "lan_cluster"),
    ("topology.server_latency", "1us"),
    ("topology.client_latency", "1us"),
    ("topology.server_mbps", "1000000"),
    ("topology.client_mbps", "1000000"),
    ("network.segment", "1460"),
    ("network.initial_window", "1000000"),
    ("network.window", "1000000"),
    ("workload.arrivals", "closed"),
    ("cache.memory", "32MiB"),
];

/// A case of `strategy` on `nodes` under `load`, changed by `set`, which `what` describes.
fn case(
    strategy: Strategy,
    load: &TraceLoad,
    nodes: usize,
    what: &str,
    set: &[(&str, &str)],
) -> Case {
    let nodes = nodes.to_string();
    let mut changes = vec![("policy.name", strategy.policy), ("servers.count", &nodes)];
    changes.extend(WORLD);
    changes.push(("workload.trace", load.trace));
    if !load.requests.is_empty() {
        changes.push(("measure.requests", load.requests));
    }
    changes.extend(strategy.set);
    changes.extend(set);
    let id = ["lard", load.name, strategy.name, &format!("{nodes} nodes"), what].join(" ");
    Case {
        id: id.trim_end().to_owned(),
        // This file has the keys, and a test prepares every case.
        scenario: Scenario::default().with(changes).expect("keys and values that exist"),
    }
}

/// A row of a series over `x`.
fn row(strategy: Strategy, x: f64, label: String, case: Case) -> Row {
    let beyond = PEERS.iter().any(|peer| peer.name == strategy.name);
    Row {
        key: format!("{}/{x}", strategy.name.replace(' ', "_")),
        series: strategy.name.to_owned(),
        x: Some(x),
        label,
        at: None,
        beyond,
        case,
        paper: Vec::new(),
    }
}

/// Throughput, misses, idle time and delay over the size of the cluster (Sec. 4.1).
fn cluster_sizes(load: &TraceLoad) -> Table {
    let strategies = PAPERS.iter().chain(PEERS);
    let over_nodes = |strategy: &Strategy| {
        let strategy = *strategy;
        load.nodes.iter().map(move |nodes| {
            let case = case(strategy, load, *nodes, "", &[]);
            row(strategy, *nodes as f64, format!("{nodes} nodes"), case)
        })
    };
    Table {
        id: format!("lard-{}", load.name),
        also: load.also.iter().map(ToString::to_string).collect(),
        title: format!("Cluster sizes, {}", load.title),
        source: "ASPLOS'98 Sec. 4.1".to_owned(),
        note: "LB/GC foretells its caches in the order of use, as an edge could; the caches themselves \
            evict by GDS. The text does not give the cost of a fetch from another memory for WRR/GMS: \
            here it is the cost of sending the file to a client."
            .to_owned(),
        columns: columns(),
        rows: strategies.flat_map(over_nodes).collect(),
        claims: (load.claims)(),
        plots: vec![Plot::Lines { x: "nodes".to_owned(), log: false }],
    }
}

/// The columns of every table.
fn columns() -> Vec<Column> {
    let metrics = [
        Metric::Throughput,
        Metric::MissRatio,
        Metric::Idle,
        Metric::LatencyMean,
        Metric::CpuUtilisation,
        Metric::DiskUtilisation,
        Metric::Imbalance,
    ];
    metrics.map(|metric| Column { metric, tolerance: None }).into()
}

const THROUGHPUT: usize = 0;
const MISSES: usize = 1;
const IDLE: usize = 2;
const DELAY: usize = 3;

fn ratio(column: usize, of: &str, to: &str, low: f64, high: f64) -> Claim {
    Claim::RatioWithin { column, of: of.to_owned(), to: to.to_owned(), low, high }
}

fn within(column: usize, row: &str, low: f64, high: f64) -> Claim {
    Claim::Within { column, row: row.to_owned(), low, high }
}

fn order(chain: &str) -> Claim {
    Claim::Order { column: THROUGHPUT, chain: chain.to_owned() }
}

const ANY: f64 = f64::INFINITY;

fn rice_claims() -> Vec<Claim> {
    let slope = |series: &str, low, high| Claim::Slope {
        column: THROUGHPUT,
        series: series.to_owned(),
        low,
        high,
    };
    let mut claims = vec![
        ratio(THROUGHPUT, "lard/r/8", "wrr/8", 2.5, ANY),
        ratio(THROUGHPUT, "lard/r/16", "wrr/16", 3.5, ANY),
        // Four times the nodes, more than four times the throughput.
        ratio(THROUGHPUT, "lard/8", "lard/2", 4.0, ANY),
        ratio(THROUGHPUT, "lard/r/8", "lard/r/2", 4.0, ANY),
        slope("wrr", 0.95, 1.05),
        ratio(MISSES, "wrr/16", "wrr/1", 0.95, 1.05),
        within(IDLE, "lb/16", 0.4, ANY),
        within(IDLE, "lard/16", -ANY, 0.03),
        within(IDLE, "lard/r/16", -ANY, 0.03),
        ratio(DELAY, "lard/r/8", "wrr/8", -ANY, 0.4),
        ratio(DELAY, "lard/r/16", "wrr/16", -ANY, 0.3),
        ratio(MISSES, "lard/r/8", "wrr/8", -ANY, 0.4),
    ];
    claims.extend([2, 4, 8, 12, 16].map(|n| order(&format!("wrr/gms/{n} < lard/{n}"))));
    claims
}

fn ibm_claims() -> Vec<Claim> {
    let mut claims = vec![
        ratio(THROUGHPUT, "lard/r/8", "wrr/8", 1.8, ANY),
        ratio(MISSES, "wrr/16", "wrr/1", 0.95, 1.05),
    ];
    claims.extend([2, 4, 8, 12, 16].map(|n| order(&format!("wrr/gms/{n} < lard/{n}"))));
    claims
}

fn quick_claims() -> Vec<Claim> {
    vec![
        order("wrr/8 < wrr/gms/8 < lard/8"),
        order("wrr/8 < lb/8"),
        ratio(THROUGHPUT, "lard/r/8", "wrr/8", 2.0, ANY),
        ratio(MISSES, "lard/r/8", "wrr/8", -ANY, 0.5),
        ratio(MISSES, "wrr/8", "wrr/2", 0.95, 1.05),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Report, Verdict};
    use levada_sim::{Library, Outcome};
    use std::ops::ControlFlow;

    /// The test uses a twentieth of the files and of the memories.
    fn small(strategies: &[&str], nodes: usize) -> Report {
        let mut library = Library::without_files();
        library.keep("rice", levada_trace::RICE.scaled(1_900, 60_000).generate(1));
        let load = TraceLoad { nodes: &[], requests: "60000", ..QUICK };
        let rows = PAPERS.iter().filter(|strategy| strategies.contains(&strategy.name));
        let rows = rows.map(|strategy| {
            let mut set = vec![("cache.memory", "1677721")];
            if strategy.name == "lb/gc" {
                set.push(("policy.cache_bytes", "1677721"));
            }
            let case = case(*strategy, &load, nodes, "small", &set);
            row(*strategy, nodes as f64, String::new(), case)
        });
        let table = Table { rows: rows.collect(), claims: Vec::new(), ..cluster_sizes(&load) };
        let outcomes: Vec<(String, Outcome)> = table
            .rows
            .iter()
            .map(|row| {
                let prepared = row.case.scenario.prepare(&mut library).unwrap();
                let outcome = levada_sim::run(&prepared, &mut |_| ControlFlow::Continue(()));
                (row.case.id.clone(), outcome)
            })
            .collect();
        let claims = vec![
            order("wrr/8 < wrr/gms/8 < lard/8 ~ lard/r/8"),
            ratio(THROUGHPUT, "lard/r/8", "wrr/8", 2.0, ANY),
            ratio(MISSES, "lard/r/8", "wrr/8", -ANY, 0.6),
            ratio(DELAY, "lard/r/8", "wrr/8", -ANY, 0.6),
        ];
        let table = Table { claims, ..table };
        Report::new(&table, &|case| Some(&outcomes.iter().find(|(id, _)| *id == case.id)?.1))
    }

    #[test]
    fn locality_spares_disks_and_so_multiplies_throughput() {
        for claim in small(&["wrr", "wrr/gms", "lard", "lard/r"], 8).claims {
            assert_eq!(claim.verdict, Verdict::Pass, "{}: {:?}", claim.claim, claim.ours);
        }
    }
}
