//! Parameters that the paper leaves open, varied one at a time around the values of the other
//! tables.

use levada_sim::Metric;

use super::cases::{CDR, FDR, LR_CHASH, Load, R_CHASH, RANDOM, case, dynamic, reported};
use crate::Plot;
use crate::strategy::Strategy;
use crate::{Row, Table};

pub(super) fn sensitivity() -> Table {
    let mut rows = Vec::new();
    let mut vary = |strategy: Strategy, what: &str, set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        rows.push(Row {
            key: format!("{}/{what}", strategy.key()).replace(' ', "_"),
            series: strategy.name.to_owned(),
            x: None,
            label: if what.is_empty() {
                "as in the other tables".to_owned()
            } else {
                what.to_owned()
            },
            at: None,
            beyond: false,
            case: case(strategy, Load::Normal, what, &set),
            paper: Vec::new(),
        });
    };
    vary(FDR, "", &[]);
    for period in ["5s", "60s", "300s"] {
        vary(FDR, &format!("shrinks after {period}"), &[("policy.shrink_after", period)]);
    }
    for (redirectors, busy) in
        [("10", "300"), ("12", "300"), ("12", "200"), ("12", "100"), ("12", "50")]
    {
        for strategy in [FDR, CDR] {
            let what = format!("{redirectors} redirectors, busy at {busy}");
            let set = [("topology.redirectors", redirectors), ("policy.busy", busy)];
            vary(strategy, &what, &set);
        }
    }
    for eviction in ["gds", "lru", "gdsf", "s3fifo", "sieve"] {
        for strategy in [RANDOM, LR_CHASH, FDR] {
            vary(strategy, &format!("{eviction} in memory"), &[("cache.eviction", eviction)]);
        }
    }
    vary(R_CHASH, "", &[]);
    vary(LR_CHASH, "", &[]);
    for points in ["1", "10", "50"] {
        for strategy in [R_CHASH, LR_CHASH] {
            let plural = if points == "1" { "" } else { "s" };
            vary(strategy, &format!("{points} ring point{plural}"), &[("policy.points", points)]);
        }
    }
    let np_fdr = dynamic("np-fdr");
    for view in ["effective", "raw"] {
        vary(np_fdr, &format!("busy by {view} load"), &[("policy.busy_view", view)]);
    }
    Table {
        id: "osdi02-sensitivity".to_owned(),
        also: Vec::new(),
        title: "Parameters that the paper leaves open".to_owned(),
        source: "after OSDI'02, normal load".to_owned(),
        note: "One choice at a time, otherwise as in the other tables. A threshold that all redirectors \
            together reach only after a server has failed lengthens no walk: 12 x 300 is beyond the \
            3,072 requests that a server holds. A lower one costs little capacity and saves much \
            latency: popular servers queue up to it before a walk goes on."
            .to_owned(),
        columns: vec![
            reported(Metric::Capacity),
            reported(Metric::Sustained),
            reported(Metric::LatencyP50),
            reported(Metric::LatencyP90),
            reported(Metric::HitRatio),
            reported(Metric::Replicas),
        ],
        rows,
        claims: Vec::new(),
        plots: vec![Plot::Bars],
    }
}
