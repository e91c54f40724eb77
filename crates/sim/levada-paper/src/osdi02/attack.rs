//! Attacks by a wide range of URLs, which the paper describes without figures (Sec. 5.2.4).

use levada_sim::Metric;

use super::cases::{FDR, LR_HRW, Load, RANDOM, case, order, reported};
use crate::Plot;
use crate::strategy::Strategy;
use crate::{Claim, Row, Table};

/// An attack by the crowd.
#[derive(Clone, Copy)]
struct Attack {
    key: &'static str,
    label: &'static str,
    set: &'static [(&'static str, &'static str)],
}

const ATTACKS: [Attack; 4] = [
    Attack { key: "none", label: "no attack", set: &[("workload.flash.clients", "0.0")] },
    Attack {
        key: "valid",
        label: "5,000 valid URLs",
        set: &[("workload.flash.urls", "5000"), ("workload.flash.mean_size", "38000")],
    },
    Attack { key: "invalid", label: "5,000 invalid URLs", set: INVALID },
    Attack {
        key: "throttled",
        label: "5,000 invalid URLs, 8 misses at a time per server",
        set: &[INVALID[0], INVALID[1], INVALID[2], ("origin.misses_per_server", "8")],
    },
];

const INVALID: &[(&str, &str)] = &[
    ("workload.flash.urls", "5000"),
    ("workload.flash.mean_size", "512"),
    ("workload.flash.exist", "false"),
];

/// An origin that is far from enough for all requests.
const ORIGIN: [(&str, &str); 2] =
    [("origin.latency", "40ms"), ("origin.requests_per_second", "2000.0")];

pub(super) fn attacks() -> Table {
    let strategies = [RANDOM, LR_HRW, FDR];
    let rows =
        strategies.into_iter().flat_map(|strategy| ATTACKS.map(|attack| row(strategy, attack)));
    let hits = |chain: &str| Claim::Order { column: HIT_RATIO, chain: chain.to_owned() };
    let of_each = ["lr-hrw", "fdr"].into_iter().flat_map(|strategy| {
        [
            order(&format!("{strategy}/invalid < {strategy}/none")),
            order(&format!("{strategy}/invalid < {strategy}/throttled")),
        ]
    });
    Table {
        id: "osdi02-attack".to_owned(),
        also: Vec::new(),
        title: "Attacks by a wide range of URLs".to_owned(),
        source: "after OSDI'02 Sec. 5.2.4".to_owned(),
        note: "32 servers that fetch from an origin of 2,000 requests a second; a quarter of the clients attacks. \
            The paper has no figures. It says that with valid URLs dynamic strategies have one server for each \
            URL, which increases hit rates, and that invalid URLs overload the origin unless servers limit the \
            misses that they forward. A server that refuses a miss also refuses valid ones."
            .to_owned(),
        columns: [
            Metric::Capacity,
            Metric::HitRatio,
            Metric::Replicas,
            Metric::OriginRate,
            Metric::OriginWait,
            Metric::Lost,
            Metric::Requests,
        ]
        .map(reported)
        .into(),
        rows: rows.collect(),
        claims: [hits("random/valid < lr-hrw/valid < fdr/valid")].into_iter().chain(of_each).collect(),
        plots: vec![Plot::Bars],
    }
}

const HIT_RATIO: usize = 1;

fn row(strategy: Strategy, Attack { key, label, set }: Attack) -> Row {
    let mut all = vec![
        ("servers.count", "32"),
        ("workload.rate", "500"),
        ("workload.growth", "0.02"),
        ("measure.latency_at", "[]"),
    ];
    if strategy.name == LR_HRW.name {
        all.push(("policy.replicas", "5"));
    }
    let all = all.into_iter().chain(ORIGIN).chain(set.iter().copied());
    let all: Vec<_> = all.map(|(name, value)| (name, value.to_owned())).collect();
    Row {
        key: format!("{}/{key}", strategy.key()),
        series: strategy.name.to_owned(),
        x: None,
        label: label.to_owned(),
        at: None,
        beyond: false,
        case: case(strategy, Load::Flash, &format!("{label}, 32 servers"), &all),
        paper: Vec::new(),
    }
}
