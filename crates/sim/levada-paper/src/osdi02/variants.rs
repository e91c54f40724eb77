//! Variants of the dynamic strategies that Sec. 3.4.2 names and the paper has no figures of: hash orders on the
//! circle, and redirectors that share their loads.

use levada_sim::Metric;

use super::cases::{CDR, FDR, FDR_GLOBAL, LR_CHASH, Load, case, order, reported};
use crate::Plot;
use crate::strategy::Strategy;
use crate::{Claim, Column, Row, Table};

/// CDR and FDR on the circle of consistent hashing.
pub(super) fn ring() -> Table {
    let mut rows = vec![row(LR_CHASH, "", "sets of ten", &[])];
    for strategy in [CDR, FDR] {
        rows.push(row(strategy, "", "highest random weight", &[]));
        for points in ["1", "50"] {
            let label = format!("circle, {points} points per server");
            let set = [("policy.order", "ring"), ("policy.points", points)];
            rows.push(row(strategy, &format!("ring/{points}"), &label, &set));
        }
    }
    let claims = ["cdr", "fdr"].into_iter().flat_map(|strategy| {
        [
            order(&format!("{strategy}/ring/1 < {strategy}")),
            order(&format!("{strategy}/ring/50 <= {strategy}")),
        ]
    });
    let worse = ["cdr", "fdr"].map(|strategy| order(&format!("{strategy}/ring/1 < lr-chash")));
    table(
        "osdi02-ring",
        "Dynamic strategies on the circle of consistent hashing",
        "The paper has no figures: both \"suffer from the ripple effect and sometimes yield even worse \
            performance than load-aware static replication schemes\", because the order of servers is the \
            same for each URL. That is so with one point per server: a busy server's load moves to one \
            neighbour. With many points a server has many neighbours.",
        rows,
        claims.chain(worse).collect(),
    )
}

/// Redirectors that share their loads at intervals.
pub(super) fn shared_loads() -> Table {
    let mut rows = vec![row(FDR, "", "own requests only", &[])];
    for every in ["10s", "1s", "100ms"] {
        let label = format!("loads shared every {every}");
        rows.push(row(FDR_GLOBAL, every, &label, &[("servers.loads_shared_every", every)]));
    }
    rows.push(row(FDR_GLOBAL, "", "all loads known at once", &[]));
    table(
        "osdi02-shared-loads",
        "FDR where redirectors share their loads",
        "The paper proposes \"opportunistic communication with other redirectors\", and finds the difference \
            between local and perfect knowledge minimal. Between two exchanges a redirector knows its own \
            requests, and those of the others as they were.",
        rows,
        vec![order("fdr ~ fdr-global"), order("fdr-global/1s ~ fdr-global")],
    )
}

fn row(strategy: Strategy, variant: &str, label: &str, set: &[(&str, &str)]) -> Row {
    let set: Vec<_> = set.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let parts = [strategy.name, variant];
    let key: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Row {
        key: key.join("/"),
        series: strategy.name.to_owned(),
        x: None,
        label: label.to_owned(),
        at: None,
        beyond: false,
        case: case(strategy, Load::Normal, if set.is_empty() { "" } else { label }, &set),
        paper: Vec::new(),
    }
}

fn table(id: &str, title: &str, note: &str, rows: Vec<Row>, claims: Vec<Claim>) -> Table {
    Table {
        id: id.to_owned(),
        also: Vec::new(),
        title: title.to_owned(),
        source: "after OSDI'02 Sec. 3.4.2, normal load".to_owned(),
        note: note.to_owned(),
        columns: columns(),
        rows,
        claims,
        plots: vec![Plot::Bars],
    }
}

fn columns() -> Vec<Column> {
    vec![
        reported(Metric::Capacity),
        reported(Metric::Sustained),
        reported(Metric::HitRatio),
        reported(Metric::Imbalance),
        reported(Metric::Replicas),
    ]
}
