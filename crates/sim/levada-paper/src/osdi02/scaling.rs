//! Capacity from 8 to 128 servers: Figures 10 and 16.

use levada_sim::Metric;

use super::cases::{LOCAL, LR_HRW, Load, case, order, reported};
use crate::Plot;
use crate::strategy::{PEERS, Strategy};
use crate::{Claim, Row, Table};

pub(super) fn figure_10() -> Table {
    let mut table = scaling(Load::Normal, "osdi02-fig10", "Capacity over servers, normal load");
    table.source = "OSDI'02 Figure 10, Sec. 5.1.4".to_owned();
    for strategy in LOCAL.iter().filter(|s| ["lr-chash", "lr-hrw", "cdr", "fdr"].contains(&s.name))
    {
        table.rows.push(row(*strategy, Load::Normal, 128, false, false));
    }
    let plain = |name: &str| format!("{name}/128/plain");
    let [cdr, fdr, lr] = ["cdr", "fdr", LR_HRW.name].map(plain);
    table.claims.push(order(&format!("{cdr} ~ {lr}")));
    table.claims.push(order(&format!("{fdr} ~ {lr}")));
    table
}

pub(super) fn figure_16() -> Table {
    let mut table = scaling(Load::Flash, "osdi02-fig16", "Capacity over servers, flash crowd");
    table.source = "OSDI'02 Figure 16, Sec. 5.2.3".to_owned();
    table
}

fn scaling(load: Load, id: &str, title: &str) -> Table {
    let mut rows = Vec::new();
    let strategies = LOCAL.iter().map(|s| (s, false)).chain(PEERS.iter().map(|s| (s, true)));
    for (strategy, beyond) in strategies {
        for servers in [8, 16, 32, 64, 128] {
            rows.push(row(*strategy, load, servers, beyond, true));
        }
    }
    let slope = |strategy: &Strategy| Claim::Slope {
        column: 0,
        series: strategy.name.to_owned(),
        low: 0.9,
        high: 1.1,
    };
    Table {
        id: id.to_owned(),
        also: Vec::new(),
        title: title.to_owned(),
        source: String::new(),
        note: "Near-linear is a slope of 0.9 to 1.1 on logarithmic axes. Replicas grow with the \
            servers, 10 at 64, and so does the rate that the ramp begins with; with 128 servers links \
            between routers carry twice as much, as in the paper, but for the rows marked plain."
            .to_owned(),
        columns: vec![
            reported(Metric::Capacity),
            reported(Metric::Sustained),
            reported(Metric::LinkPeak),
        ],
        rows,
        claims: LOCAL.iter().map(slope).collect(),
        plots: vec![Plot::Lines { x: "servers".to_owned(), log: true }],
    }
}

/// `doubled`: 128 servers have links of twice the bandwidth between routers (Sec. 5.1.4).
fn row(strategy: Strategy, load: Load, servers: u32, beyond: bool, doubled: bool) -> Row {
    let plain = servers == 128 && !doubled;
    let mut set = Vec::new();
    if servers != 64 {
        set.push(("servers.count", servers.to_string()));
        set.push(("measure.latency_at", "[]".to_owned()));
        set.push(("workload.rate", (servers * 1000 / 64).to_string()));
        if ["r-chash", "r-hrw", "lr-chash", "lr-hrw"].contains(&strategy.name) {
            set.push(("policy.replicas", (servers * 10).div_ceil(64).to_string()));
        }
    }
    if servers == 128 && doubled {
        set.push(("topology.bandwidth", "2.0".to_owned()));
    }
    let mut what = if servers == 64 { String::new() } else { format!("{servers} servers") };
    if plain {
        what += ", plain links";
    }
    Row {
        key: format!("{}/{servers}{}", strategy.key(), if plain { "/plain" } else { "" }),
        // A series of its own, so that the slope is that of the doubled links.
        series: if plain { format!("{} plain", strategy.name) } else { strategy.name.to_owned() },
        x: Some(f64::from(servers)),
        label: format!("{servers} servers"),
        at: None,
        beyond,
        case: case(strategy, load, &what, &set),
        paper: Vec::new(),
    }
}
