//! The capacity of each strategy: Figures 5 and 11, Tables 2, 5 and 8, Sec. 5.1.1 and 5.4.2.

use levada_sim::Metric;

use super::cases::{
    CAPACITY, CDR, FDR, FDR_GLOBAL, LOCAL, LR_CHASH, Load, R_CHASH, RANDOM, UTILISATIONS, case,
    dynamic, order, plain_row, published, ratio, reported, within,
};
use crate::Plot;
use crate::strategy::{PEERS, Strategy, known_as};
use crate::{Claim, Column, Row, Table, data};

/// The claims of all tables of this paper.
const OPEN: &str = "64 servers behind 8 routers, 1,000 clients behind 12 redirectors, NSFNET T3. \
    Capacity is the offered rate 30 s before the first server fails; because the queues still fill up \
    then, it is above the sustained rate. Left open by the paper and chosen here: a busy threshold \
    that all redirectors together reach before a server is full, many ring points, GreedyDual-Size \
    with the cost in packets, walks that shrink after 20 s.";

fn capacities() -> Vec<Column> {
    vec![
        within(Metric::Capacity, CAPACITY),
        reported(Metric::Sustained),
        reported(Metric::HitRatio),
    ]
}

/// A row that is compared with the paper's capacity.
fn row(strategy: Strategy, load: Load) -> Row {
    plain_row(strategy, load, vec![published(strategy, load, "0")], false)
}

fn peers(load: Load) -> impl Iterator<Item = Row> {
    PEERS.iter().map(move |peer| plain_row(*peer, load, Vec::new(), true))
}

fn strategies() -> Vec<Strategy> {
    LOCAL.iter().copied().chain([FDR_GLOBAL]).collect()
}

const ORDER: &str = "random < r-hrw <= r-chash < lr-chash ~ lr-hrw < cdr <= fdr ~ fdr-global";

pub(super) fn figure_5() -> Table {
    let load = Load::Normal;
    Table {
        id: "osdi02-fig5".to_owned(),
        also: Vec::new(),
        title: "Capacity under normal load".to_owned(),
        source: "OSDI'02 Figure 5, Sec. 5.1.2".to_owned(),
        note: OPEN.to_owned(),
        columns: capacities(),
        rows: strategies().into_iter().map(|s| row(s, load)).chain(peers(load)).collect(),
        claims: vec![
            order(ORDER),
            ratio("r-chash", "random", 2.19),
            ratio("r-hrw", "random", 1.99),
            ratio("lr-chash", "random", 2.73),
            ratio("cdr", "random", 3.50),
            ratio("fdr", "random", 3.57),
            ratio("fdr", "r-chash", 1.63),
            ratio("fdr", "lr-chash", 1.31),
            ratio("fdr", "cdr", 1.02),
        ],
        plots: vec![Plot::Bars],
    }
}

pub(super) fn figure_11() -> Table {
    let load = Load::Flash;
    Table {
        id: "osdi02-fig11".to_owned(),
        also: Vec::new(),
        title: "Capacity under a flash crowd".to_owned(),
        source: "OSDI'02 Figure 11, Sec. 5.2.1".to_owned(),
        note: "As under normal load, but 250 of the 1,000 clients ask for 10 documents of 6 KB on \
            average only."
            .to_owned(),
        columns: capacities(),
        rows: strategies().into_iter().map(|s| row(s, load)).chain(peers(load)).collect(),
        claims: vec![
            order("random < r-hrw <= r-chash < lr-chash ~ lr-hrw < cdr ~ fdr ~ fdr-global"),
            ratio("fdr", "r-chash", 1.91),
            ratio("fdr", "lr-chash", 1.22),
            ratio("fdr", "cdr", 1.00),
        ],
        plots: vec![Plot::Bars],
    }
}

/// The best number of replicas (Sec. 5.1.1).
pub(super) fn replicas() -> Table {
    let row = |replicas: u32| {
        let set = [("policy.replicas", replicas.to_string())];
        // Ten replicas are the default, and that run serves other tables, too.
        let case = match replicas {
            10 => case(R_CHASH, Load::Normal, "", &[]),
            _ => case(R_CHASH, Load::Normal, &format!("{replicas} replicas"), &set),
        };
        Row {
            key: format!("r-chash/{replicas}"),
            series: "r-chash".to_owned(),
            x: Some(f64::from(replicas)),
            label: format!("{replicas} replicas"),
            at: None,
            beyond: false,
            case,
            paper: Vec::new(),
        }
    };
    let random =
        Row { series: "random".to_owned(), ..plain_row(RANDOM, Load::Normal, Vec::new(), false) };
    Table {
        id: "osdi02-replicas".to_owned(),
        also: Vec::new(),
        title: "Capacity over the number of replicas".to_owned(),
        source: "OSDI'02 Sec. 5.1.1".to_owned(),
        note:
            "R-CHash on 64 servers: few replicas overload the servers of popular files, many give \
            each server more files than its memory holds."
                .to_owned(),
        columns: capacities(),
        rows: [2, 4, 8, 10, 16, 32, 64].into_iter().map(row).chain([random]).collect(),
        claims: vec![
            Claim::Peak { column: 0, series: "r-chash".to_owned(), x: 10.0 },
            order("r-chash/2 < random"),
        ],
        plots: vec![Plot::Lines { x: "replicas".to_owned(), log: false }],
    }
}

/// The limiting resource of each strategy.
pub(super) fn table_2() -> Table {
    let published = |strategy: Strategy| -> Vec<Option<f64>> {
        let row = data::rows(UTILISATIONS).find(|row| row[0] == strategy.name);
        let percent = |field: &&str| data::number(field).map(|percent| percent / 100.0);
        row.map_or_else(Vec::new, |row| row[1..5].iter().map(percent).collect())
    };
    let load = Load::Normal;
    let ours = strategies().into_iter().map(|s| plain_row(s, load, published(s), false));
    let peers = PEERS.iter().map(|peer| plain_row(*peer, load, Vec::new(), true));
    let at_least = |column: usize, row: &str, low: f64| Claim::Within {
        column,
        row: row.to_owned(),
        low,
        high: f64::INFINITY,
    };
    let disk_bound = ["random", "r-chash", "r-hrw", "lr-chash", "lr-hrw"];
    let cpu_bound = ["cdr", "fdr"];
    Table {
        id: "osdi02-table2".to_owned(),
        also: Vec::new(),
        title: "Utilisation of the servers at overload".to_owned(),
        source: "OSDI'02 Table 2, Sec. 5.1.2".to_owned(),
        note:
            "Mean and standard deviation over the servers, in the time before the first one fails. \
            Strategies with fixed sets wait for disks, those with dynamic ones work."
                .to_owned(),
        columns: vec![
            reported(Metric::CpuUtilisation),
            reported(Metric::CpuUtilisationSd),
            reported(Metric::DiskUtilisation),
            reported(Metric::DiskUtilisationSd),
        ],
        rows: ours.chain(peers).collect(),
        claims: disk_bound
            .map(|row| at_least(2, row, 0.95))
            .into_iter()
            .chain(cpu_bound.map(|row| at_least(0, row, 0.85)))
            .collect(),
        plots: vec![Plot::Bars],
    }
}

/// The cost of choosing by distance.
pub(super) fn table_5() -> Table {
    let pairs = [
        (known_as("npr-chash"), R_CHASH),
        (known_as("nplr-chash"), LR_CHASH),
        (dynamic("np-fdr"), FDR),
    ];
    let mut rows = Vec::new();
    let mut claims = Vec::new();
    for load in [Load::Normal, Load::Flash] {
        let ratios = match load {
            Load::Normal => [0.706, 0.951, 0.933],
            Load::Flash => [0.727, 0.971, 0.923],
        };
        let key = |strategy: Strategy| format!("{}/{}", strategy.name, load.as_str());
        for ((near, plain), paper) in pairs.into_iter().zip(ratios) {
            for strategy in [near, plain] {
                let label = load.as_str().to_owned();
                rows.push(Row { key: key(strategy), label, ..row(strategy, load) });
            }
            claims.push(ratio(&key(near), &key(plain), paper));
        }
        rows.extend(peers(load).map(|row| Row {
            key: format!("{}/{}", row.key, load.as_str()),
            label: load.as_str().to_owned(),
            ..row
        }));
    }
    Table {
        id: "osdi02-table5".to_owned(),
        also: Vec::new(),
        title: "Capacity where distance counts".to_owned(),
        source: "OSDI'02 Table 5, Sec. 5.3".to_owned(),
        note: "Distances are round-trip times in the simulated network over that to the nearest \
            server. NP-FDR holds its busy threshold against the effective load."
            .to_owned(),
        columns: capacities(),
        rows,
        claims,
        plots: vec![Plot::Bars],
    }
}

/// Some servers behind links of 10 Mbit/s.
pub(super) fn table_8() -> Table {
    let mut rows = Vec::new();
    let mut claims = Vec::new();
    for load in [Load::Normal, Load::Flash] {
        let paper = [RANDOM, R_CHASH, LR_CHASH, FDR].map(|strategy| (strategy, false));
        let peers = PEERS.iter().map(|peer| (*peer, true));
        for (strategy, beyond) in paper.into_iter().chain(peers) {
            let key = |percent: u32| format!("{}/{}/{percent}", strategy.key(), load.as_str());
            for percent in [0, 10, 30] {
                let share = f64::from(percent) / 100.0;
                let set = [("servers.slow", share.to_string())];
                let (set, what) = match percent {
                    0 => (&set[..0], String::new()),
                    _ => (&set[..], format!("{percent} % slow")),
                };
                rows.push(Row {
                    key: key(percent),
                    series: strategy.name.to_owned(),
                    x: None,
                    label: format!("{}, {percent} % slow", load.as_str()),
                    at: None,
                    beyond,
                    case: case(strategy, load, &what, set),
                    paper: vec![published(strategy, load, &percent.to_string())],
                });
            }
            let published = |percent: u32| published(strategy, load, &percent.to_string());
            for percent in [10, 30] {
                let paper = published(percent).zip(published(0));
                let claim = paper.map(|(slow, fast)| ratio(&key(percent), &key(0), slow / fast));
                claims.extend(claim);
            }
        }
    }
    Table {
        id: "osdi02-table8".to_owned(),
        also: Vec::new(),
        title: "Capacity with servers behind slow links".to_owned(),
        source: "OSDI'02 Table 8, Sec. 5.4.1".to_owned(),
        note: "10 and 30 % of the servers have links of 10 instead of 100 Mbit/s.".to_owned(),
        columns: capacities(),
        rows,
        claims,
        plots: vec![Plot::Bars],
    }
}

/// The strategies that treat large files separately.
pub(super) const LARGE: [Strategy; 4] =
    [dynamic("cdr-t-r"), dynamic("cdr-t-s"), dynamic("fdr-t-r"), dynamic("fdr-t-s")];

/// Their capacities, about which the paper says "slightly better" (Sec. 5.4.2).
pub(super) fn large_files() -> Table {
    let mut rows = Vec::new();
    let mut claims = Vec::new();
    for load in [Load::Normal, Load::Flash] {
        for strategy in [CDR, FDR].into_iter().chain(LARGE) {
            let key = format!("{}/{}", strategy.name, load.as_str());
            rows.push(Row { key, label: load.as_str().to_owned(), ..row(strategy, load) });
        }
        for strategy in LARGE {
            let base = &strategy.name[..3];
            let load = load.as_str();
            claims.push(order(&format!("{base}/{load} <= {}/{load}", strategy.name)));
        }
    }
    Table {
        id: "osdi02-large".to_owned(),
        also: Vec::new(),
        title: "Capacity with large files treated apart".to_owned(),
        source: "OSDI'02 Sec. 5.4.2".to_owned(),
        note:
            "Files above 530 KB go to a random server (T-R), or to the least loaded of ten (T-S)."
                .to_owned(),
        columns: capacities(),
        rows,
        claims,
        plots: vec![Plot::Bars],
    }
}

pub(super) fn quick_normal() -> Table {
    let ratios = vec![
        order("random < r-hrw <= r-chash < lr-chash ~ lr-hrw < cdr <= fdr"),
        ratio("r-chash", "random", 2.19),
        ratio("lr-chash", "random", 2.73),
        ratio("cdr", "random", 3.50),
        ratio("fdr", "random", 3.57),
        ratio("fdr", "r-chash", 1.63),
        ratio("fdr", "lr-chash", 1.31),
    ];
    quick(Load::Normal, "osdi02-quick-normal", "Capacity under normal load, 16 servers", ratios)
}

pub(super) fn quick_flash() -> Table {
    let ratios = vec![
        order("random < r-hrw <= r-chash < lr-chash ~ lr-hrw < cdr ~ fdr"),
        ratio("fdr", "r-chash", 1.91),
        ratio("fdr", "lr-chash", 1.22),
        ratio("fdr", "cdr", 1.00),
    ];
    quick(Load::Flash, "osdi02-quick-flash", "Capacity under a flash crowd, 16 servers", ratios)
}

/// A quarter of the servers, of the replicas and of the first rate, and a steeper ramp.
fn quick(load: Load, id: &str, title: &str, claims: Vec<Claim>) -> Table {
    let row = |strategy: &Strategy| {
        let mut set = vec![
            ("servers.count", "16".to_owned()),
            ("workload.rate", "250".to_owned()),
            ("workload.growth", "0.02".to_owned()),
            ("measure.latency_at", "[]".to_owned()),
        ];
        if strategy.name.ends_with("r-chash") || strategy.name.ends_with("r-hrw") {
            set.push(("policy.replicas", "3".to_owned()));
        }
        Row {
            case: case(*strategy, load, "16 servers, quick", &set),
            ..plain_row(*strategy, load, Vec::new(), false)
        }
    };
    Table {
        id: id.to_owned(),
        also: Vec::new(),
        title: title.to_owned(),
        source: "after OSDI'02 Figures 5 and 11".to_owned(),
        note:
            "A quarter of the servers and of the replicas; the load grows by 2 % instead of 1 %, \
            which adds to what queues hide. Only the order and the ratios are the paper's."
                .to_owned(),
        columns: capacities(),
        rows: LOCAL.iter().map(row).collect(),
        claims,
        plots: vec![Plot::Bars],
    }
}
