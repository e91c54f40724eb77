//! All faults, in the order of the table. docs/lab/faults.md describes them.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use levada_net::lab::file_system::{self, HeldBack};
use levada_testbed::cluster::problems::Problem;

use super::{
    clocks,
    cluster::{Cluster, MEMORY, ROOMY, SMALL},
    disks, hostile, lies, links, logs, many, processes, slow_disk,
    stage::Stage,
    tally::Tally,
};

/// A fault, and what clients may notice of it.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// Whether its nodes are on emulated hosts.
    pub(super) hosts: bool,
    /// Whether its caches are on file systems that are smaller than they.
    pub(super) small_disk: bool,
    /// Whether reads of its caches can be held back.
    pub(super) slow_disk: bool,
    /// Whether its access logs are never read.
    pub(super) unread_log: bool,
    /// Whether the clocks of its nodes can be set.
    pub(super) own_clocks: bool,
    /// Whether a short row has few places at the origin.
    pub(super) few_places: bool,
    /// The metric of a node that counts what it noticed.
    pub(super) noticed: Option<&'static str>,
    /// Its length if no option sets it.
    pub(super) length: Duration,
    /// The 99th percentile of the waiting times.
    pub(super) p99: Option<Duration>,
    /// The same of small hits.
    pub(super) hit_p99: Option<Duration>,
    /// The highest resident memory of a node.
    pub(super) memory: u64,
    /// Disturbs the cluster until the row is over.
    pub(super) strike: Strike,
}

type Strike =
    for<'a> fn(&'a mut Cluster<'_>, &'a Stage<'_>) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// A strike as a function that can be listed.
macro_rules! strike {
    ($strike:path) => {
        |cluster, stage| Box::pin($strike(cluster, stage))
    };
}

impl Fault {
    const fn new(name: &'static str, strike: Strike) -> Self {
        Self {
            name,
            hosts: false,
            small_disk: false,
            slow_disk: false,
            unread_log: false,
            own_clocks: false,
            few_places: false,
            noticed: None,
            length: Duration::from_secs(60),
            p99: None,
            hit_p99: None,
            memory: MEMORY,
            strike,
        }
    }

    const fn noticed_in(self, metric: &'static str) -> Self {
        Self { noticed: Some(metric), ..self }
    }

    const fn within(self, p99: Duration) -> Self {
        Self { p99: Some(p99), ..self }
    }

    const fn hits_within(self, p99: Duration) -> Self {
        Self { hit_p99: Some(p99), ..self }
    }

    /// Why this machine cannot make it.
    pub(super) fn possible(&self) -> anyhow::Result<()> {
        if self.hosts {
            levada_net::lab::possible()?;
        }
        if self.small_disk {
            file_system::try_out(|directory| file_system::small(directory, SMALL))?;
        }
        if self.slow_disk {
            let group = HeldBack::new()?;
            file_system::try_out(|directory| group.program(directory, ROOMY))?;
        }
        if self.own_clocks {
            clocks::possible()?;
        }
        Ok(())
    }

    /// The limits that a row exceeds, as sentences.
    pub(super) fn exceeded(&self, tally: &Tally, memory: u64) -> Vec<String> {
        let mut exceeded = Vec::new();
        for problem in [Problem::Wrong, Problem::Stale, Problem::Failed, Problem::Cut] {
            match tally.problems.of(problem) {
                0 => {}
                count => exceeded.push(format!("{count} {}", problem.as_str())),
            }
        }
        for (time, limit, of) in
            [(Some(tally.p99()), self.p99, "p99"), (tally.hit_p99(), self.hit_p99, "hit p99")]
        {
            if let (Some(time), Some(limit)) = (time, limit)
                && time >= limit
            {
                exceeded.push(format!("{of} above {limit:?}"));
            }
        }
        if memory > self.memory {
            exceeded.push(format!("memory above `limits.memory`, {} MiB", self.memory >> 20));
        }
        exceeded
    }
}

/// All faults.
pub(super) const FAULTS: &[Fault] = &[
    Fault::new("none", |_, _| Box::pin(std::future::ready(Ok(())))).hits_within(HIT),
    Fault { length: LONG, ..Fault::new("kill", strike!(processes::kill)).within(WAIT) },
    Fault { length: LONG, ..Fault::new("suspend", strike!(processes::suspend)).within(WAIT) },
    Fault::new("restart", strike!(processes::restart)).within(WAIT),
    Fault { hosts: true, ..Fault::new("slow-link", strike!(links::slow)) },
    Fault { hosts: true, ..Fault::new("one-way", strike!(links::one_way)).within(WAIT) },
    Fault {
        small_disk: true,
        ..Fault::new("disk-full", strike!(disks::fill))
            .within(WAIT)
            .noticed_in("levada_cache_disk_evictions_total")
    },
    Fault::new("disk-flip", strike!(disks::flip))
        .within(WAIT)
        .noticed_in("levada_cache_disk_damaged_total"),
    Fault {
        slow_disk: true,
        ..Fault::new("slow-disk", strike!(slow_disk::hold_back))
            .within(Duration::from_millis(500))
            .noticed_in("levada_cache_disk_passed_by_total")
    },
    Fault { own_clocks: true, ..Fault::new("clock", strike!(clocks::set)).within(WAIT) },
    Fault::new("readers", strike!(hostile::readers)).hits_within(HIT),
    Fault::new("streams", strike!(hostile::streams)).hits_within(HIT),
    Fault::new("abandoned", strike!(hostile::abandoned)).within(WAIT).hits_within(HIT),
    Fault::new("uploads", strike!(hostile::uploads)).within(WAIT).hits_within(HIT),
    Fault::new("handshakes", strike!(hostile::handshakes)).within(WAIT).hits_within(HIT),
    Fault {
        few_places: true,
        ..Fault::new("many-addresses", strike!(many::addresses)).within(WAIT).hits_within(HIT)
    },
    Fault::new("admin", strike!(many::admin)).within(WAIT).hits_within(HIT),
    Fault::new("secret", strike!(many::secret)).within(WAIT).hits_within(HIT),
    Fault {
        unread_log: true,
        ..Fault::new("log", strike!(logs::fill))
            .hits_within(HIT)
            .noticed_in("levada_log_lines_dropped_total")
    },
    Fault::new("origin", strike!(lies::request_all)).hits_within(HIT),
];

const LONG: Duration = Duration::from_secs(180);
const WAIT: Duration = Duration::from_secs(3);
const HIT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use levada_testbed::cluster::chosen;

    #[test]
    fn every_fault_has_its_row_in_the_documentation() {
        let page = include_str!("../../../../../docs/lab/faults.md");
        for fault in FAULTS {
            assert!(page.contains(&format!("\n| `{}` | ", fault.name)), "{}", fault.name);
        }
    }

    #[test]
    fn exceeded_limits_are_named() {
        let kill = chosen(&["kill".to_owned()], ("fault", FAULTS), |fault| fault.name).unwrap()[0];
        let mut tally = Tally::default();
        tally.count(Ok(()), Duration::from_millis(100), true);
        assert!(kill.exceeded(&tally, MEMORY).is_empty());
        tally.count(Err((Problem::Cut, "a".to_owned())), Duration::from_secs(9), false);
        let exceeded = kill.exceeded(&tally, MEMORY + 1);
        assert_eq!(exceeded, ["1 cut", "p99 above 3s", "memory above `limits.memory`, 160 MiB"]);
        assert!(chosen(&["fire".to_owned()], ("fault", FAULTS), |fault| fault.name).is_err());
    }
}
