//! CPU time of a process.

use std::{fs, process::Command};

use levada_net::lab::Host;

use crate::Result;

/// Nanoseconds of a process, and of the programs that it has in the kernel.
#[derive(Default)]
pub(crate) struct Used {
    pub(crate) process: u64,
    pub(crate) steering: u64,
    /// How often it had nothing to do.
    pub(crate) sleeps: u64,
}

/// Connections that the front-end has handed over so far; none without one.
pub(crate) fn handed(front: &Host) -> f64 {
    let metrics = front.namespace().run(|| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "http://127.0.0.1:9180/metrics"]).output().ok()
    });
    let metrics = metrics.ok().flatten().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&metrics);
    let line = text.lines().find_map(|line| line.strip_prefix(HANDED));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0)
}

const HANDED: &str = "levada_handoffs_total{result=\"ended\"}";

pub(crate) fn used(pid: u32) -> Result<Used> {
    let (mut process, mut sleeps) = (0, 0);
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        let stat = fs::read_to_string(task.join("schedstat"))?;
        process += stat.split(' ').next().unwrap_or_default().parse::<u64>()?;
        let status = fs::read_to_string(task.join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += line.unwrap_or("0").trim().parse::<u64>()?;
    }
    let mut steering = 0;
    for file in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // One that was closed meanwhile is no program.
        let text = fs::read_to_string(file?.path()).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').trim().parse::<u64>().ok()
        };
        steering += field("run_time_ns").unwrap_or(0);
    }
    Ok(Used { process, steering, sleeps })
}

/// Has the kernel account for what programs use, while this is there.
pub(crate) struct BpfStats(Option<String>);

const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl BpfStats {
    pub(crate) fn on() -> Self {
        let before = fs::read_to_string(BPF_STATS).ok();
        if fs::write(BPF_STATS, "1").is_err() {
            println!("the kernel does not tell what steering costs: it is left out");
        }
        Self(before)
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(BPF_STATS, before.trim());
        }
    }
}

/// Used time and total time of the other core, in the kernel's ticks.
pub(crate) fn other_core() -> Result<[u64; 2]> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu1 ")).ok_or("no second core")?;
    let ticks: Vec<u64> = line.split(' ').filter_map(|field| field.parse().ok()).take(8).collect();
    // The fourth and fifth are idleness and waiting for disks.
    let all: u64 = ticks.iter().sum();
    Ok([all - ticks.iter().skip(3).take(2).sum::<u64>(), all])
}
