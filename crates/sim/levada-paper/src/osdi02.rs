//! Wang, Pai and Peterson, "The Effectiveness of Request Redirection on CDN Robustness", OSDI'02.
//!
//! A run raises the load by 1 % every six simulated seconds until the first server fails (Sec. 4.3).
//! One run per strategy gives its capacity, its utilisation at overload and its latencies at every rate
//! of the paper's tables.
//!
//! Parameters that the paper leaves open are the same in all runs and named in the notes; the last
//! table varies them.

mod attack;
mod capacity;
mod cases;
mod crowd;
mod latency;
mod open;
mod scaling;
mod variants;

use super::{Paper, Table};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "osdi02",
    title: "The Effectiveness of Request Redirection on CDN Robustness (OSDI'02)",
    tables,
    quick,
};

fn tables() -> Vec<Table> {
    vec![
        capacity::figure_5(),
        capacity::replicas(),
        capacity::table_2(),
        latency::table_3(),
        scaling::figure_10(),
        capacity::figure_11(),
        latency::table_4(),
        scaling::figure_16(),
        crowd::figure_17(),
        crowd::figure_18(),
        capacity::table_5(),
        latency::table_6(),
        latency::table_7(),
        capacity::table_8(),
        latency::table_9(),
        capacity::large_files(),
        attack::attacks(),
        variants::ring(),
        variants::shared_loads(),
        open::sensitivity(),
    ]
}

fn quick() -> Vec<Table> {
    vec![capacity::quick_normal(), capacity::quick_flash()]
}
