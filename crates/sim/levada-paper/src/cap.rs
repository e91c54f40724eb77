//! Casalicchio and Colajanni, "A Client-Aware Dispatching Algorithm for Web Clusters Providing Multiple
//! Services", WWW10.
//!
//! The symbols of the paper's tables are lost, and it does not say how many of its 2 to 32 servers and
//! 100 to 300 clients per second a figure has. All figures here have the largest of both, and no number
//! was chosen to meet one of the paper's: the last tables vary the assumptions.

mod figures;
mod open;

use levada_sim::{Metric, Scenario};

use super::{Case, Claim, Column, Paper, Row, Table, data};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "cap",
    title: "A Client-Aware Dispatching Algorithm for Web Clusters Providing Multiple Services (WWW10)",
    tables,
    quick,
};

fn tables() -> Vec<Table> {
    let mut tables = vec![
        figures::figure_3("3a", STATIC, Size::Full),
        figures::figure_3("3b", COMMERCE_C, Size::Full),
    ];
    tables.extend(figures::ALL.iter().map(|figure| figure.table(Size::Full)));
    tables.extend([open::readings(), open::transaction(), open::publishing(), open::commerce()]);
    tables
}

fn quick() -> Vec<Table> {
    figures::ALL.iter().map(|figure| figure.table(Size::Quick)).collect()
}

/// The duration of a simulation. All have the largest cluster of Table 1: with fewer servers the most popular
/// documents, which LARD keeps on one server each, are a smaller part of that server's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Five minutes, and the default before and after them.
    Full,
    /// Forty seconds each: for order and ratios only.
    Quick,
}

impl Size {
    const fn changes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Full => &[
                ("servers.count", "32"),
                ("cap.clients_per_second", "300.0"),
                ("cap.window.measure", "300s"),
            ],
            Self::Quick => &[
                ("servers.count", "32"),
                ("cap.clients_per_second", "300.0"),
                ("cap.window.warm_up", "40s"),
                ("cap.window.measure", "40s"),
                ("cap.window.drain", "40s"),
            ],
        }
    }
}

/// A kind of site (Sec. 4.2), with the kinds of its pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Site {
    name: &'static str,
    /// Static, lightly dynamic, disk bound, CPU bound, both.
    mix: [f64; 5],
}

const STATIC: Site = Site { name: "publishing, static", mix: [1.0, 0.0, 0.0, 0.0, 0.0] };
const LIGHT: Site = Site { name: "publishing, lightly dynamic", mix: [0.0, 1.0, 0.0, 0.0, 0.0] };
const TRANSACTION: Site = Site { name: "transaction", mix: [0.6, 0.0, 0.4, 0.0, 0.0] };
const COMMERCE_A: Site = Site { name: "commerce a", mix: [0.3, 0.3, 0.0, 0.4, 0.0] };
const COMMERCE_B: Site = Site { name: "commerce b", mix: [0.3, 0.3, 0.2, 0.2, 0.0] };
const COMMERCE_C: Site = Site { name: "commerce c", mix: [0.3, 0.3, 0.1, 0.2, 0.1] };

impl Site {
    fn changes(&self) -> Vec<(&'static str, String)> {
        let keys = [
            "cap.mix.static",
            "cap.mix.lightly_dynamic",
            "cap.mix.disk_bound",
            "cap.mix.cpu_bound",
            "cap.mix.disk_and_cpu_bound",
        ];
        keys.into_iter().zip(self.mix.map(number)).collect()
    }

    /// The ideal knowledge of StaticPartitioning (Sec. 4.3.1): the share of each class in the requests.
    fn shares(&self) -> Vec<(&'static str, String)> {
        let [files, light, disk, cpu, both] = self.mix;
        vec![
            ("policy.share_normal", number(files + light)),
            ("policy.share_disk", number(disk)),
            ("policy.share_cpu", number(cpu)),
            ("policy.share_disk_and_cpu", number(both)),
        ]
    }
}

/// A number in a scenario's notation, with its decimal point.
fn number(value: f64) -> String {
    format!("{value:?}")
}

/// A way to distribute: the policy and the settings of the switch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SwitchStrategy {
    key: &'static str,
    name: &'static str,
    policy: &'static str,
    set: &'static [(&'static str, &'static str)],
}

/// The unit of distribution of a switch of layer 4, which RAN, RR and WRR are for (Sec. 2, 3).
const BY_PAGE: (&str, &str) = ("cap.switch.dispatch", "page");

const RANDOM: SwitchStrategy =
    SwitchStrategy { key: "ran", name: "RAN", policy: "random", set: &[BY_PAGE] };
const ROUND_ROBIN: SwitchStrategy =
    SwitchStrategy { key: "rr", name: "RR", policy: "round_robin", set: &[BY_PAGE] };
const CAP: SwitchStrategy = SwitchStrategy { key: "cap", name: "CAP", policy: "cap", set: &[] };

/// WRR_num with the period that the paper found best among short ones: "simply WRR" (Sec. 4.3.1).
const WRR: SwitchStrategy = SwitchStrategy {
    key: "wrr",
    name: "WRR",
    policy: "weighted_round_robin",
    set: &[BY_PAGE, ("policy.weights", "active_connections"), ("policy.refresh", "1s")],
};

/// LARD with T_low = 0.3 and T_high = 0.7 of a server's utilisation (Sec. 4.3.1), measured as the mean
/// over its parts.
const LARD: SwitchStrategy = SwitchStrategy {
    key: "lard",
    name: "LARD",
    policy: "lard",
    set: &[("policy.t_low", "30"), ("policy.t_high", "70"), ("cap.switch.load", "mean_of_parts")],
};

/// LARD as in ASPLOS'98: outstanding requests, 25 and 65.
const LARD_COUNTING: SwitchStrategy = SwitchStrategy {
    key: "lard_counting",
    name: "LARD, outstanding requests",
    policy: "lard",
    set: &[("policy.t_low", "25"), ("policy.t_high", "65")],
};

/// Dedicated servers for each service: the unit is a page with its embedded objects.
const PARTITION: SwitchStrategy = SwitchStrategy {
    key: "static_partition",
    name: "StaticPartitioning",
    policy: "static_partition",
    set: &[BY_PAGE],
};

/// The policies of today's proxies, by request.
const PEERS: &[SwitchStrategy] = &[
    SwitchStrategy {
        key: "bounded_hash_1.25",
        name: "bounded_hash 1.25",
        policy: "bounded_hash",
        set: &[("policy.hash_balance_factor", "125")],
    },
    SwitchStrategy {
        key: "bounded_hash_1.5",
        name: "bounded_hash 1.5",
        policy: "bounded_hash",
        set: &[("policy.hash_balance_factor", "150")],
    },
    known_as("p2c"),
    known_as("least_conn"),
    known_as("maglev"),
    known_as("peak_ewma"),
];

const fn known_as(name: &'static str) -> SwitchStrategy {
    SwitchStrategy { key: name, name, policy: name, set: &[] }
}

/// A case of `strategy` on `site`, changed by `set`, which `what` describes.
fn case(
    strategy: SwitchStrategy,
    site: Site,
    size: Size,
    what: &str,
    set: &[(&str, &str)],
) -> Case {
    let mut changes = vec![("policy.name", strategy.policy.to_owned())];
    changes.push(("cache.eviction", "lru".to_owned()));
    changes.extend(site.changes());
    if strategy.policy == PARTITION.policy {
        changes.extend(site.shares());
    }
    let own = size.changes().iter().chain(strategy.set).chain(set);
    changes.extend(own.map(|(key, value)| (*key, (*value).to_owned())));
    let quick = if size == Size::Quick { "quick" } else { "" };
    let id = ["cap", quick, site.name, strategy.name, what];
    let id: Vec<_> = id.into_iter().filter(|part| !part.is_empty()).collect();
    Case {
        id: id.join(" "),
        // This file has the keys, and a test prepares every case.
        scenario: Scenario::default().with(changes).expect("keys and values that exist"),
    }
}

/// The paper's number in a figure.
fn published(figure: &str, policy: &str, metric: Metric) -> Option<f64> {
    let is = |row: &Vec<&str>| row[..3] == [figure, policy, metric.as_str()];
    data::rows(RESULTS).find(is).and_then(|row| data::number(row[4]))
}

const RESULTS: &str = include_str!("../data/cap_results.csv");

fn reported(metric: Metric) -> Column {
    Column { metric, tolerance: None }
}
