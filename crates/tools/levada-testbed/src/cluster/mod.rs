//! The parts that labs of clusters share, and `levada demo` with them.
//!
//! ```text
//! nodes            starts nodes with their configurations, logs and ports
//! load - client    sends requests, one after another or when they are due, and receives their responses
//! server           accepts and answers, with bodies that a client can verify
//! objects, origin  the objects of a load that changes, and the origin that has them
//! problems         the problems of its requests
//! ```

pub mod client;
pub mod load;
pub mod nodes;
#[cfg(target_os = "linux")]
pub mod objects;
#[cfg(target_os = "linux")]
pub mod origin;
#[cfg(target_os = "linux")]
pub mod problems;
pub mod server;

use std::time::Duration;

#[cfg(target_os = "linux")]
use {
    anyhow::{Context as _, ensure},
    levada_client::command::{block_on, node::Node},
    levada_net::lab::Host,
    rustix::process::{Pid, Signal, kill_process},
    tokio::{
        runtime::Handle,
        signal::unix::{SignalKind, signal},
        task::LocalSet,
        time::{Instant, sleep},
    },
};

/// The timeout for a node to start: it takes less than a second, on a busy machine some.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which it is asked whether it has started: short against a start.
pub const READY_INTERVAL: Duration = Duration::from_millis(20);

/// The time without a byte after which a client gives up: longer than any fault that a node is to hide.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `work` on this thread, or on one whose network is that of `host`; `None` when it was interrupted.
///
/// # Errors
/// As the work.
#[cfg(target_os = "linux")]
pub fn until_interrupted<T: Send, F: Future<Output = anyhow::Result<T>>>(
    host: Option<&Host>,
    work: impl FnOnce() -> F + Send,
) -> anyhow::Result<Option<T>> {
    let run = async move || {
        let (mut interrupt, tasks) = (signal(SignalKind::interrupt())?, LocalSet::new());
        tokio::select! {
            outcome = tasks.run_until(async { work().await }) => outcome.map(Some),
            _ = interrupt.recv() => Ok(None),
        }
    };
    match host {
        Some(host) => on_host(host, run),
        None => block_on(run())?,
    }
}

/// Runs `work` on a thread whose network is that of a host.
///
/// # Errors
/// As the work.
#[cfg(target_os = "linux")]
pub fn on_host<T: Send, F: Future<Output = anyhow::Result<T>>>(
    host: &Host,
    work: impl FnOnce() -> F + Send,
) -> anyhow::Result<T> {
    host.namespace().run(|| block_on(work()))??
}

/// Starts a process on a host, or where this thread is.
///
/// # Errors
/// If it cannot be started.
#[cfg(target_os = "linux")]
pub fn spawn_on<T: Send>(
    host: Option<&Host>,
    spawn: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let Some(host) = host else { return spawn() };
    let runtime = Handle::current();
    host.namespace().run(|| {
        let _entered = runtime.enter();
        spawn()
    })?
}

/// The entries of a register with these names, or all.
///
/// # Errors
/// If there is no such entry.
#[cfg(target_os = "linux")]
pub fn chosen<T>(
    only: &[String],
    (what, register): (&str, &'static [T]),
    name: fn(&T) -> &'static str,
) -> anyhow::Result<Vec<&'static T>> {
    if only.is_empty() {
        return Ok(register.iter().collect());
    }
    let named = |wanted: &String| {
        register.iter().find(|entry| name(entry) == wanted).with_context(|| {
            let known: Vec<_> = register.iter().map(name).collect();
            format!("--only {wanted}: no such {what}; there is {}", known.join(", "))
        })
    };
    only.iter().map(named).collect()
}

/// The time within which this part of the requests was answered.
#[cfg(target_os = "linux")]
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

/// A time in a report, in tenths of a millisecond.
#[cfg(target_os = "linux")]
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

/// Resident memory of a process in bytes, now (`VmRSS:`) or at its highest (`VmHWM:`); `None` when it is gone.
#[cfg(target_os = "linux")]
pub fn resident(process: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Sends a signal to a node.
///
/// # Errors
/// If it has ended by itself.
#[cfg(target_os = "linux")]
pub fn tell(node: &Node, signal: Signal) -> anyhow::Result<()> {
    let pid = node.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.with_context(|| format!("{} has ended by itself", node.name))?;
    Ok(kill_process(pid, signal)?)
}

/// Requests one object after another until a front-end has handed off connections to two back-ends and more: it tries
/// each once a second. `ask` sends a request and returns the count; `without` says how to do without.
///
/// # Errors
/// If no connection is handed off, or the front-end does not answer.
#[cfg(target_os = "linux")]
pub async fn until_handed_off(
    backs: usize,
    without: &str,
    mut ask: impl AsyncFnMut(usize) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    for number in 0.. {
        if ask(number).await? >= 2 * backs as u64 {
            break;
        }
        ensure!(begun.elapsed() < START_TIMEOUT, "no connection is handed off here: {without}");
        sleep(READY_INTERVAL).await;
    }
    Ok(())
}
