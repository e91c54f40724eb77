//! Parameters that the paper leaves open, varied one at a time around the values of the figures.

use levada_sim::Metric;

use super::{
    CAP, COMMERCE_A, COMMERCE_B, COMMERCE_C, Claim, LARD, LARD_COUNTING, LIGHT, PARTITION, Row,
    STATIC, Site, Size, SwitchStrategy, TRANSACTION, Table, WRR, case, reported,
};
use crate::Plot;

/// A set of keys, and its description.
type Choice = (&'static str, &'static [(&'static str, &'static str)]);

/// The column of the 90th percentile.
const P90: usize = 0;

/// The tables' own values.
const AS_IS: Choice = ("", &[]);

/// LARD's measure of utilisation, its reporting interval, and the unit of distribution of each
/// strategy.
pub(super) fn readings() -> Table {
    let mut rows = Vec::new();
    for site in [STATIC, TRANSACTION, COMMERCE_C] {
        let mut add = |strategy: SwitchStrategy, choices: &[Choice]| {
            rows.extend(choices.iter().map(|choice| row(strategy, site, *choice)));
        };
        add(
            LARD,
            &[
                AS_IS,
                ("utilisation every 0.1 s", &[("cap.switch.gather", "100ms")]),
                ("utilisation every 10 s", &[("cap.switch.gather", "10s")]),
                ("utilisation of the busiest part", &[("cap.switch.load", "busiest_part")]),
                (
                    "utilisation of the busiest part every 20 ms",
                    &[("cap.switch.load", "busiest_part"), ("cap.switch.gather", "20ms")],
                ),
                // Above T_high "to a lowly loaded node, if it exists, or to the least loaded node"
                // (Sec. 3.1): then T_low does not matter.
                ("always moved to the least loaded", &[("policy.t_low", "101")]),
                ("by page", &[("cap.switch.dispatch", "page")]),
            ],
        );
        add(LARD_COUNTING, &[AS_IS]);
        add(CAP, &[AS_IS, ("by page", &[("cap.switch.dispatch", "page")])]);
        add(WRR, &[AS_IS, ("by request", &[("cap.switch.dispatch", "object")])]);
        add(PARTITION, &[AS_IS, ("by request", &[("cap.switch.dispatch", "object")])]);
    }
    table(
        "cap-open-readings",
        "How the strategies are read",
        "The measure of a server's utilisation, its age when LARD uses it, and the unit of distribution: \
            a page or a request.",
        rows,
    )
}

/// The assumptions of the transaction site.
pub(super) fn transaction() -> Table {
    varied(
        "cap-open-transaction",
        TRANSACTION,
        &[
            AS_IS,
            ("200 clients/s", &[("cap.clients_per_second", "200.0")]),
            ("250 clients/s", &[("cap.clients_per_second", "250.0")]),
            (
                "16 servers, 150 clients/s",
                &[("servers.count", "16"), ("cap.clients_per_second", "150.0")],
            ),
            ("complex searches of 3 reads", &[("cap.hardware.heavy_query_reads", "3")]),
            ("complex searches of 4 reads", &[("cap.hardware.heavy_query_reads", "4")]),
            ("databases shared by all", &[("cap.hardware.database", "shared")]),
            (
                "searches on the server's own disk, 150 clients/s",
                &[("cap.hardware.database", "own_disk"), ("cap.clients_per_second", "150.0")],
            ),
            ("popularity to the power of -0.8", &[("cap.documents.zipf", "0.8")]),
            ("at most 100 objects per page", &[("cap.sessions.most_objects", "100")]),
        ],
    )
}

/// The assumptions of the publishing site.
pub(super) fn publishing() -> Table {
    let mut table = varied(
        "cap-open-publishing",
        STATIC,
        &[
            AS_IS,
            ("200 clients/s", &[("cap.clients_per_second", "200.0")]),
            ("250 clients/s", &[("cap.clients_per_second", "250.0")]),
            ("1,000 documents", &[("cap.documents.count", "1000")]),
            (
                "100,000 documents, 250 clients/s",
                &[("cap.documents.count", "100000"), ("cap.clients_per_second", "250.0")],
            ),
            ("popularity to the power of -1.2", &[("cap.documents.zipf", "1.2")]),
            ("no Pareto tail of sizes", &[("cap.documents.tail_share", "0.0")]),
            ("evicting by gdsf", &[("cache.eviction", "gdsf")]),
            ("evicting by sieve", &[("cache.eviction", "sieve")]),
            ("CPU time x 2", DOUBLE_CPU),
        ],
    );
    let simple = ("simple searches of 2 reads", SIMPLE_2);
    table.rows.extend([CAP, WRR, LARD].map(|strategy| row(strategy, LIGHT, simple)));
    let embedded = ("embedded objects lightly dynamic", EMBEDDED);
    table.rows.extend([CAP, WRR, LARD].map(|strategy| row(strategy, LIGHT, embedded)));
    table
}

/// The assumptions of the commerce sites: the CPU, and the load. The statements on Figure 6 are compared with the
/// rows of 256 bits as well, which Table 2 says literally.
pub(super) fn commerce() -> Table {
    let rsa = ("RSA over 256 bits", RSA_256);
    let mut table = varied(
        "cap-open-commerce",
        COMMERCE_A,
        &[
            AS_IS,
            ("RSA over 2,048 bits", &[("cap.ssl.rsa_bits", "2048")]),
            ("RSA over the certificate", &[("cap.ssl.rsa_bits", "16384")]),
            ("CPU time x 2", DOUBLE_CPU),
            ("CPU time x 2, RSA over 256 bits", DOUBLE_CPU_AND_RSA),
        ],
    );
    for load in LOADS {
        table.rows.extend([CAP, WRR, LARD].map(|strategy| row(strategy, COMMERCE_C, load)));
    }
    for site in [COMMERCE_A, COMMERCE_B, COMMERCE_C] {
        let rows = [CAP, WRR, LARD, PARTITION].map(|strategy| row(strategy, site, rsa));
        let [cap, wrr, lard, partition] = rows.each_ref().map(|row| row.key.clone());
        let order = |chain: String| Claim::Order { column: P90, chain };
        let at_most = |to: &str, high| Claim::RatioWithin {
            column: P90,
            of: cap.clone(),
            to: to.to_owned(),
            low: f64::NEG_INFINITY,
            high,
        };
        table.claims.push(order(format!("{cap} < {wrr} < {lard}")));
        table.claims.push(order(format!("{cap} < {partition}")));
        if site != COMMERCE_A {
            table.claims.extend([at_most(&wrr, 0.5), at_most(&lard, 0.3)]);
        }
        table.rows.extend(rows);
    }
    table
}

/// With 350 clients a second, beyond the largest load of Table 1, CAP has the 5 s of Figure 6c.
const LOADS: [Choice; 2] = [
    ("250 clients/s", &[("cap.clients_per_second", "250.0")]),
    ("350 clients/s", &[("cap.clients_per_second", "350.0")]),
];

const RSA_256: &[(&str, &str)] = &[("cap.ssl.rsa_bits", "256")];

const DOUBLE_CPU: &[(&str, &str)] =
    &[("cap.hardware.cpu_per_request", "580us"), ("cap.hardware.cpu_per_512_bytes", "80us")];

const DOUBLE_CPU_AND_RSA: &[(&str, &str)] = &[DOUBLE_CPU[0], DOUBLE_CPU[1], RSA_256[0]];

const SIMPLE_2: &[(&str, &str)] = &[("cap.hardware.light_query_reads", "2")];

const EMBEDDED: &[(&str, &str)] = &[("cap.sessions.embedded_dynamic", "true")];

fn varied(id: &str, site: Site, choices: &[Choice]) -> Table {
    let strategies = [CAP, WRR, LARD];
    let rows = choices.iter().flat_map(|choice| strategies.map(|s| row(s, site, *choice)));
    table(
        id,
        &format!("Parameters that the paper leaves open, {}", site.name),
        "One choice at a time, otherwise as in the figures.",
        rows.collect(),
    )
}

fn row(strategy: SwitchStrategy, site: Site, (what, set): Choice) -> Row {
    let told = if what.is_empty() { "as in the figures" } else { what };
    Row {
        key: format!("{}/{}/{told}", strategy.key, site.name).replace(' ', "_"),
        series: strategy.name.to_owned(),
        x: None,
        label: format!("{}: {told}", site.name),
        at: None,
        beyond: false,
        case: case(strategy, site, Size::Full, what, set),
        paper: Vec::new(),
    }
}

fn table(id: &str, title: &str, note: &str, rows: Vec<Row>) -> Table {
    let columns = [
        Metric::LatencyP90,
        Metric::Within1s,
        Metric::Within5s,
        Metric::LatencyMean,
        Metric::HitRatio,
        Metric::CpuUtilisation,
        Metric::DiskUtilisation,
        Metric::DatabaseUtilisation,
        Metric::Unfinished,
    ];
    Table {
        id: id.to_owned(),
        also: Vec::new(),
        title: title.to_owned(),
        source: "after WWW10 Sec. 4".to_owned(),
        note: note.to_owned(),
        columns: columns.map(reported).into(),
        rows,
        claims: Vec::<Claim>::new(),
        plots: vec![Plot::Bars],
    }
}
