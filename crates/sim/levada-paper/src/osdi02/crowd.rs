//! Crowds of growing size: Figures 17 and 18.

use levada_sim::Metric;

use super::cases::{LOCAL, Load, case, order, reported};
use crate::Plot;
use crate::strategy::PEERS;
use crate::{Claim, Row, Table};

pub(super) fn figure_17() -> Table {
    let mut table = crowds(1, "1000", "osdi02-fig17", "Capacity under a crowd for one document");
    table.source = "OSDI'02 Figure 17, Sec. 5.2.4".to_owned();
    table
}

pub(super) fn figure_18() -> Table {
    let mut table = crowds(10, "6000", "osdi02-fig18", "Capacity under a crowd for ten documents");
    table.source = "OSDI'02 Figure 18, Sec. 5.2.4".to_owned();
    table
}

const SHARES: [u32; 5] = [10, 20, 40, 60, 80];

fn crowds(urls: u32, size: &str, id: &str, title: &str) -> Table {
    let mut rows = Vec::new();
    let strategies = LOCAL.iter().map(|s| (s, false)).chain(PEERS.iter().map(|s| (s, true)));
    for (strategy, beyond) in strategies {
        for percent in SHARES {
            let mut set = vec![
                ("servers.count", "32".to_owned()),
                ("workload.rate", "500".to_owned()),
                ("measure.latency_at", "[]".to_owned()),
                ("workload.flash.clients", (f64::from(percent) / 100.0).to_string()),
                ("workload.flash.urls", urls.to_string()),
                ("workload.flash.mean_size", size.to_owned()),
            ];
            if ["r-chash", "r-hrw", "lr-chash", "lr-hrw"].contains(&strategy.name) {
                set.push(("policy.replicas", "5".to_owned()));
            }
            let what = format!("{percent} % for {urls}, 32 servers");
            rows.push(Row {
                key: format!("{}/{percent}", strategy.key()),
                series: strategy.name.to_owned(),
                x: Some(f64::from(percent)),
                label: format!("{percent} %"),
                at: None,
                beyond,
                case: case(*strategy, Load::Flash, &what, &set),
                paper: Vec::new(),
            });
        }
    }
    let trend = |series: &str, rises| Claim::Trend { column: 0, series: series.to_owned(), rises };
    let up = ["random", "cdr", "fdr"].map(|series| trend(series, true));
    let down = ["r-chash", "r-hrw", "lr-chash", "lr-hrw"].map(|series| trend(series, false));
    let above = SHARES.into_iter().flat_map(|percent| {
        ["cdr", "fdr"].map(|dynamic| order(&format!("random/{percent} < {dynamic}/{percent}")))
    });
    Table {
        id: id.to_owned(),
        also: Vec::new(),
        title: title.to_owned(),
        source: String::new(),
        note:
            "32 servers; the part of the 1,000 clients that ask for hot documents only grows from \
            10 to 80 %. Fixed sets of five servers (10 at 64) cannot carry it, sets that grow can."
                .to_owned(),
        columns: vec![
            reported(Metric::Capacity),
            reported(Metric::Sustained),
            reported(Metric::Imbalance),
        ],
        rows,
        claims: up.into_iter().chain(down).chain(above).collect(),
        plots: vec![Plot::Lines { x: "clients of the crowd, %".to_owned(), log: false }],
    }
}
