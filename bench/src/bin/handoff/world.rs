//! The hosts on which everything runs, and one load.

use std::{
    net::Ipv4Addr,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use levada_net::lab::{Child, LabCluster};

use crate::{
    Case, Cost, Result,
    fronts::{self, FRONTS},
    used::{handed, other_core, used},
};

pub(crate) const SERVICE: Ipv4Addr = LabCluster::SERVICE;
pub(crate) const BACK: Ipv4Addr = LabCluster::back(0);

/// Connections at once.
const AT_ONCE: f64 = 8.0;

/// Everything that runs.
pub(crate) struct World {
    /// The front-ends that the command line selects.
    fronts: Vec<Option<Child>>,
    _others: Vec<Child>,
    hosts: LabCluster,
}

impl World {
    pub(crate) fn new(directory: &Path, wanted: &[usize]) -> Result<Self> {
        let hosts = LabCluster::new(1)?;
        let others = fronts::servers(&hosts.backs[0], directory)?;
        let mut fronts = Vec::new();
        for (at, front) in FRONTS.iter().enumerate() {
            let wanted = wanted.contains(&at);
            fronts.push(wanted.then(|| (front.start)(&hosts.front, directory, front)).transpose()?);
        }
        let world = Self { fronts, _others: others, hosts };
        world.wait()?;
        Ok(world)
    }

    /// Until every front-end answers.
    fn wait(&self) -> Result<()> {
        let start = Instant::now();
        for (front, _) in FRONTS.iter().zip(&self.fronts).filter(|(_, child)| child.is_some()) {
            let url = format!("http://{SERVICE}:{}/1000", front.port);
            let get = || {
                let mut curl = Command::new("curl");
                curl.args(["-sf", "-o", "/dev/null", &url]).status()
            };
            while !self.hosts.client.namespace().run(get)??.success() {
                if start.elapsed() > Duration::from_secs(20) {
                    return Err(format!("nothing answers at {url}").into());
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        // The channel to the back-end is opened meanwhile.
        thread::sleep(Duration::from_millis(500));
        Ok(())
    }

    pub(crate) fn load(&self, front: usize, case: &Case, seconds: u64) -> Result<Cost> {
        let process = &self.fronts[front].as_ref().ok_or("it was not started")?.process;
        let mut wrk = Command::new("taskset");
        wrk.args(["-c", "1", "wrk", "-t1", &format!("-c{AT_ONCE}"), &format!("-d{seconds}s")]);
        if case.close {
            wrk.args(["-H", "Connection: close"]);
        }
        wrk.arg(format!("http://{SERVICE}:{}/{}", FRONTS[front].port, case.bytes));
        let already = handed(&self.hosts.front);
        let before = used(process.id())?;
        let core = other_core()?;
        let start = Instant::now();
        let output = self.hosts.client.namespace().run(|| wrk.output())??;
        let elapsed = start.elapsed().as_secs_f64();
        let after = used(process.id())?;
        let [busy, all] = other_core()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
            return Err(format!("{}: {}: {text}", case.name, FRONTS[front].name).into());
        }
        let requests =
            text.split(" requests in ").next().and_then(|text| text.split_whitespace().last());
        let requests: f64 = requests.unwrap_or_default().parse().map_err(|_| text.clone())?;
        let per = |nanoseconds: u64| nanoseconds as f64 / 1e3 / requests;
        Ok(Cost {
            process: per(after.process - before.process),
            steering: per(after.steering.saturating_sub(before.steering)),
            handed: (handed(&self.hosts.front) - already)
                / if case.close { requests } else { AT_ONCE },
            per_second: requests / elapsed,
            others: (busy - core[0]) as f64 / (all - core[1]) as f64,
            sleeps: (after.sleeps - before.sleeps) as f64 / requests,
        })
    }
}
