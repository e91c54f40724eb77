//! Faster CPUs, more disks, another eviction, and parameters that the paper leaves open, varied one
//! at a time, on eight nodes with the Rice-like trace.

use super::{
    ANY, BOUNDED, Claim, LARD, LARD_R, LB, LB_GC, RICE, Row, Strategy, THROUGHPUT, Table, WRR,
    WRR_GMS, case, columns, known_as, order, ratio, row,
};
use crate::Plot;

const NODES: usize = 8;

/// The strategies of the paper's figures on CPU and disks, and two of today's.
const COMPARED: &[Strategy] = &[WRR, LB, LARD, LARD_R, WRR_GMS, BOUNDED, known_as("p2c")];

type Set = &'static [(&'static str, &'static str)];

/// CPUs of up to four times the speed, with more memory as they come (Sec. 4.3).
pub(super) fn cpu_speeds() -> Table {
    let speeds: [(f64, &str, Set); 4] = [
        (1.0, "32 MiB", &[]),
        (2.0, "48 MiB", &[("servers.cpu", "2.0"), ("cache.memory", "48MiB")]),
        (3.0, "64 MiB", &[("servers.cpu", "3.0"), ("cache.memory", "64MiB")]),
        (4.0, "96 MiB", &[("servers.cpu", "4.0"), ("cache.memory", "96MiB")]),
    ];
    let claims = vec![
        Claim::RatioTrend {
            column: THROUGHPUT,
            of: "lard/r".to_owned(),
            to: "wrr".to_owned(),
            rises: true,
        },
        order("wrr/gms/4 < lard/4"),
    ];
    Table {
        also: vec!["lard-fig11".to_owned(), "lard-fig12".to_owned()],
        claims,
        ..over(
            "lard-cpu",
            "CPU speed",
            "ASPLOS'98 Sec. 4.3",
            "Memory grows with the CPU as in the paper's figures: 1, 1.5, 2 and 3 times.",
            &speeds,
        )
    }
}

/// Up to four disks a node (Sec. 4.3).
pub(super) fn disks() -> Table {
    let disks: [(f64, &str, Set); 4] = [
        (1.0, "1 disk", &[]),
        (2.0, "2 disks", &[("servers.disks", "2")]),
        (3.0, "3 disks", &[("servers.disks", "3")]),
        (4.0, "4 disks", &[("servers.disks", "4")]),
    ];
    let claims = vec![
        Claim::RatioTrend {
            column: THROUGHPUT,
            of: "lard/r".to_owned(),
            to: "wrr".to_owned(),
            rises: false,
        },
        ratio(THROUGHPUT, "lard/r/1", "wrr/1", 2.5, ANY),
    ];
    Table {
        also: vec!["lard-fig13".to_owned(), "lard-fig14".to_owned()],
        claims,
        ..over(
            "lard-disks",
            "disks",
            "ASPLOS'98 Sec. 4.3",
            "Each file is whole on one disk.",
            &disks,
        )
    }
}

fn over(id: &str, x: &str, source: &str, note: &str, steps: &[(f64, &str, Set)]) -> Table {
    let rows = COMPARED.iter().flat_map(|strategy| {
        steps.iter().map(move |(at, what, set)| {
            let what = if set.is_empty() { "" } else { *what };
            row(*strategy, *at, what.to_owned(), case(*strategy, &RICE, NODES, what, set))
        })
    });
    Table {
        id: id.to_owned(),
        also: Vec::new(),
        title: format!("Eight nodes by {x}, Rice-like trace"),
        source: source.to_owned(),
        note: note.to_owned(),
        columns: columns(),
        rows: rows.collect(),
        claims: Vec::new(),
        plots: vec![Plot::Lines { x: x.to_owned(), log: false }],
    }
}

/// LRU without files above 500 KB, against GDS (Sec. 3.2) and later algorithms.
pub(super) fn eviction() -> Table {
    let choices: [(&str, Set); 6] = [
        ("gds-packets", &[]),
        ("gds", &[("cache.eviction", "gds")]),
        ("lru, nothing above 500 KB", &[("cache.eviction", "lru"), ("cache.max_object", "500kB")]),
        ("gdsf", &[("cache.eviction", "gdsf")]),
        ("s3fifo", &[("cache.eviction", "s3fifo")]),
        ("sieve", &[("cache.eviction", "sieve")]),
    ];
    let rows = [WRR, LB_GC, LARD, LARD_R, BOUNDED]
        .into_iter()
        .flat_map(|strategy| choices.iter().map(move |(what, set)| named(strategy, what, set)));
    // "up to 30 % lower with LRU than with GDS", and the strategies stay in their order.
    let lru = |strategy: &str| format!("{strategy}/lru,_nothing_above_500_KB");
    let claims = vec![
        ratio(THROUGHPUT, &lru("wrr"), "wrr/gds", 0.7, 1.0),
        ratio(THROUGHPUT, &lru("lard/r"), "lard/r/gds", 0.7, 1.0),
        ratio(THROUGHPUT, &lru("wrr"), "wrr/gds-packets", 0.7, 1.0),
        ratio(THROUGHPUT, &lru("lard/r"), "lard/r/gds-packets", 0.7, 1.0),
        ratio(THROUGHPUT, &lru("lard/r"), &lru("wrr"), 2.5, ANY),
    ];
    listed(
        "lard-eviction",
        "eviction",
        "ASPLOS'98 Sec. 3.2",
        "The paper does not say what its GDS takes for a file's cost: one, or the packets it takes.",
        rows.collect(),
        claims,
    )
}

/// Thresholds, periods, admission and memory.
pub(super) fn sensitivity() -> Table {
    let mut rows = vec![named(WRR, "", &[])];
    for strategy in [LARD, LARD_R] {
        let choices: [(&str, Set); 7] = [
            ("", &[]),
            ("T_high 40", &[("policy.t_high", "40")]),
            ("T_high 130", &[("policy.t_high", "130")]),
            ("T_low 10", &[("policy.t_low", "10")]),
            ("T_low 40", &[("policy.t_low", "40")]),
            ("240 outstanding", &[("workload.outstanding", "240")]),
            ("960 outstanding", &[("workload.outstanding", "960")]),
        ];
        rows.extend(choices.iter().map(|(what, set)| named(strategy, what, set)));
    }
    for (what, set) in [("K 5 s", &[("policy.k", "5s")] as Set), ("K 60 s", &[("policy.k", "60s")])]
    {
        rows.push(named(LARD_R, what, set));
    }
    for (what, set) in [
        ("16 MiB", &[("cache.memory", "16MiB")] as Set),
        ("64 MiB", &[("cache.memory", "64MiB")]),
        ("128 MiB", &[("cache.memory", "128MiB")]),
    ] {
        rows.extend([WRR, LARD_R].map(|strategy| named(strategy, what, set)));
    }
    listed(
        "lard-open",
        "what the paper leaves open",
        "after ASPLOS'98",
        "One choice at a time; the admission limit S follows T_low and T_high unless it is given.",
        rows,
        Vec::new(),
    )
}

fn named(strategy: Strategy, what: &str, set: Set) -> Row {
    let told = if what.is_empty() { "as in the other tables" } else { what };
    Row {
        key: format!("{}/{told}", strategy.name).replace(' ', "_"),
        x: None,
        ..row(
            strategy,
            0.0,
            told.to_owned(),
            case(strategy, &RICE, NODES, if set.is_empty() { "" } else { what }, set),
        )
    }
}

fn listed(
    id: &str,
    by: &str,
    source: &str,
    note: &str,
    rows: Vec<Row>,
    claims: Vec<Claim>,
) -> Table {
    Table {
        id: id.to_owned(),
        also: Vec::new(),
        title: format!("Eight nodes by {by}, Rice-like trace"),
        source: source.to_owned(),
        note: note.to_owned(),
        columns: columns(),
        rows,
        claims,
        plots: vec![Plot::Bars],
    }
}
