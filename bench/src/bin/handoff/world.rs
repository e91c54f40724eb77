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
    fronts::{self, Back, FRONTS, Front, Start},
    used::{Used, handed, other_core, used},
};

pub(crate) const SERVICE: Ipv4Addr = LabCluster::SERVICE;
pub(crate) const BACK: Ipv4Addr = LabCluster::back(0);

/// Connections at once.
const AT_ONCE: f64 = 8.0;

/// Everything that runs.
pub(crate) struct World {
    /// The front-ends that the command line selects.
    fronts: Vec<Option<Child>>,
    backs: Vec<Back>,
    hosts: LabCluster,
}

impl World {
    pub(crate) fn new(directory: &Path, wanted: &[usize]) -> Result<Self> {
        let hosts = LabCluster::new(3)?;
        let backs = fronts::backs(&hosts.backs, directory)?;
        let mut fronts = Vec::new();
        for front in &FRONTS {
            let is_wanted = wanted.iter().any(|at| FRONTS[*at].at == front.at);
            let start = |start: Start| start(&hosts.front, directory, front.at.port());
            fronts.push(front.start.filter(|_| is_wanted).map(start).transpose()?);
        }
        let world = Self { fronts, backs, hosts };
        wanted.iter().try_for_each(|at| world.wait(&FRONTS[*at]))?;
        // The channels to back-ends are opened meanwhile.
        thread::sleep(Duration::from_millis(500));
        Ok(world)
    }

    /// Until it answers.
    fn wait(&self, front: &Front) -> Result<()> {
        let start = Instant::now();
        let url = format!("http://{}/1000", front.at);
        let get = || {
            let mut curl = Command::new("curl");
            let host = format!("Host: {}", front.host);
            curl.args(["-sf", "-o", "/dev/null", "-H", &host, &url]).status()
        };
        while !self.hosts.client.namespace().run(get)??.success() {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(format!("nothing answers {} at {url}", front.host).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The time that the processes of a way have used so far: the front-end, the back-end and the server.
    fn used(&self, front: usize) -> Result<[Used; 3]> {
        let at = |other: &Front| other.at == FRONTS[front].at && other.start.is_some();
        let process = FRONTS.iter().position(at).and_then(|at| self.fronts[at].as_ref());
        let back = &self.backs[FRONTS[front].back];
        let of = |child: Option<&Child>| {
            child.map_or(Ok(Used::default()), |child| used(child.process.id()))
        };
        Ok([of(process)?, of(Some(&back.taker))?, of(Some(&back.server))?])
    }

    pub(crate) fn load(&self, front: usize, case: &Case, seconds: u64) -> Result<Cost> {
        let mut wrk = Command::new("taskset");
        wrk.args(["-c", "1", "wrk", "-t1", "--timeout", "30s"]);
        wrk.args([format!("-c{AT_ONCE}"), format!("-d{seconds}s")]);
        if case.close {
            wrk.args(["-H", "Connection: close"]);
        }
        wrk.args(["-H", &format!("Host: {}", FRONTS[front].host)]);
        wrk.arg(format!("http://{}/{}", FRONTS[front].at, case.bytes));
        let already = handed(&self.hosts.front);
        let before = self.used(front)?;
        let core = other_core()?;
        let start = Instant::now();
        let output = self.hosts.client.namespace().run(|| wrk.output())??;
        let elapsed = start.elapsed().as_secs_f64();
        let after = self.used(front)?;
        let [busy, all] = other_core()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
            return Err(format!("{}: {}: {text}", case.name, FRONTS[front].name).into());
        }
        let requests =
            text.split(" requests in ").next().and_then(|text| text.split_whitespace().last());
        let requests: f64 = requests.unwrap_or_default().parse().map_err(|_| text.clone())?;
        let per = |of: fn(&Used) -> u64, at: usize| {
            of(&after[at]).saturating_sub(of(&before[at])) as f64 / 1e3 / requests
        };
        Ok(Cost {
            process: per(|used| used.process, 0),
            steering: per(|used| used.steering, 0),
            back: per(|used| used.process + used.steering, 1),
            server: per(|used| used.process, 2),
            handed: (handed(&self.hosts.front) - already)
                / if case.close { requests } else { AT_ONCE },
            per_second: requests / elapsed,
            others: (busy - core[0]) as f64 / (all - core[1]) as f64,
            sleeps: (after[0].sleeps - before[0].sleeps) as f64 / requests,
        })
    }
}
