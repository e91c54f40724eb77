//! The state of a node, or of its cluster, as text on one screen.

use std::io::{self, Write};

use levada_store::{AlgorithmStatus, EvictionStatus};

use super::{CertificateStatus, ClusterNode, NodeStatus, Sample, ServerStatus, SwitchedServer};

/// Whether the node is ready, every node and server that it knows is up, and no certificate ends soon.
pub fn is_well(node: &NodeStatus) -> bool {
    let mut servers = node.switches.iter().flat_map(|site| &site.servers);
    let up = node.peers.iter().chain(&node.origins).all(|server| server.up);
    let lasts = node.certificates.iter().all(|certificate| !certificate.alarm);
    node.ready && up && lasts && servers.all(|server| server.state != "down")
}

/// All nodes, one per line.
///
/// # Errors
/// If it cannot be written.
pub fn cluster(out: &mut dyn Write, nodes: &[ClusterNode]) -> io::Result<()> {
    let width = nodes.iter().map(|node| node.name.len()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "{:width$}  REQUESTS/S  HITS  IN SERVICE  SENT/S     ORIGIN/S   P99      RTT       STATE",
        "NODE"
    )?;
    for node in nodes {
        let Some(status) = &node.status else {
            let error = node.error.as_deref().unwrap_or("it has not answered");
            writeln!(out, "{:width$}  {:70}{error}", node.name, "")?;
            continue;
        };
        let now = status.now.unwrap_or_default();
        writeln!(
            out,
            "{:width$}  {:>10.1}  {:>4}  {:>10}  {:>9}  {:>9}  {:>7}  {:>8}  {}",
            node.name,
            now.requests,
            percent(now.hit_ratio),
            format!("{}/{}", status.in_service, status.capacity),
            bytes(now.bytes),
            bytes(now.origin_bytes),
            time(now.p99),
            time(node.round_trip),
            state(status),
        )?;
    }
    Ok(())
}

/// How long a process runs, in its two largest units: `1m30s`, `3d4h`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// One node.
///
/// # Errors
/// If it cannot be written.
pub fn one(out: &mut dyn Write, node: &NodeStatus) -> io::Result<()> {
    let up = age(node.uptime_seconds as u64);
    let now = node.now.unwrap_or_default();
    writeln!(out, "node      {}, version {}, running for {up}", node.name, node.version)?;
    writeln!(out, "state     {}", state(node))?;
    let requests = format!("{:.1} a second, {} in flight", now.requests, node.in_flight);
    let places = format!("{} of {} in service", node.in_service, node.capacity);
    writeln!(out, "requests  {requests}, {places}, {} connections", node.connections)?;
    latency(out, &now)?;
    let hits = format!(
        "{} of the last second, {} since the start",
        percent(now.hit_ratio),
        percent(node.hit_ratio())
    );
    writeln!(out, "hits      {hits}")?;
    writeln!(
        out,
        "bytes     {}/s sent, {}/s from origins",
        bytes(now.bytes),
        bytes(now.origin_bytes)
    )?;
    let stored = format!("{} in {} objects", bytes(node.cache_bytes as f64), node.cache_objects);
    let memory = (bytes(node.memory_bytes as f64), bytes(node.memory_limit as f64));
    writeln!(out, "memory    {} of {}; the cache has {stored}", memory.0, memory.1)?;
    if let Some(eviction) = &node.eviction {
        writeln!(out, "eviction  {}", chosen(eviction))?;
    }
    if node.refused > 0 {
        writeln!(out, "refused   {} requests, because the node was full", node.refused)?;
    }
    if node.drain.draining {
        let drain = &node.drain;
        writeln!(out, "drain     {} downloads run, {} were moved", drain.downloads, drain.moved)?;
    }
    if let Some(route) = &node.route {
        writeln!(out, "route     {} ({})", route.level, route.reason)?;
    }
    if node.purges_pending > 0 {
        writeln!(out, "purges    {} not confirmed by all peers", node.purges_pending)?;
    }
    certificates(out, node)?;
    servers(out, node)?;
    if !node.hottest.is_empty() {
        writeln!(out, "\n{:>10}  NODES  HOTTEST OBJECTS", "REQUESTS/S")?;
    }
    for object in node.hottest.iter().take(5) {
        let nodes = if object.set.is_empty() { "-".to_owned() } else { object.set.join(",") };
        writeln!(out, "{:>10.1}  {nodes:5}  {}", object.rate, object.url)?;
    }
    Ok(())
}

/// The algorithms in use, with the hit ratios of all by the sample.
fn chosen(eviction: &EvictionStatus) -> String {
    let of = |one: &AlgorithmStatus| {
        format!(
            "{} {} of bytes {}",
            one.name,
            percent(Some(one.hit_ratio)),
            percent(Some(one.byte_hit_ratio))
        )
    };
    let in_use = eviction.algorithms.iter().filter(|one| one.shards > 0);
    let in_use: Vec<_> = in_use.map(|one| format!("{} in {}", one.name, one.shards)).collect();
    let all: Vec<_> = eviction.algorithms.iter().map(of).collect();
    let switches = eviction.switches;
    format!("{}, {switches} switches; would have: {}", in_use.join(", "), all.join(", "))
}

/// Certificates in trouble, and no more than a screen has room for.
fn certificates(out: &mut dyn Write, node: &NodeStatus) -> io::Result<()> {
    let in_trouble = |one: &&CertificateStatus| one.alarm || one.problem.is_some();
    let mut all: Vec<_> = node.certificates.iter().filter(in_trouble).collect();
    all.sort_by(|one, other| one.days.total_cmp(&other.days));
    for one in all.iter().take(MOST_SERVERS) {
        let left = match one.ends {
            0 => "missing".to_owned(),
            _ if one.days < 0.0 => "has ended".to_owned(),
            _ => format!("ends in {:.1} days", one.days),
        };
        let name = one.names.first().unwrap_or(&one.file);
        let why = one.problem.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        writeln!(out, "certificate of {name} ({}) {left}{why}", one.file)?;
    }
    match all.len().checked_sub(MOST_SERVERS + 1) {
        Some(more) => writeln!(out, "and {} more certificates", more + 1),
        None => Ok(()),
    }
}

fn latency(out: &mut dyn Write, now: &Sample) -> io::Result<()> {
    match now.p50 {
        None => writeln!(out, "latency   no response to a client in the last second"),
        Some(_) => {
            let [p50, p90, p99] = [now.p50, now.p90, now.p99].map(time);
            writeln!(
                out,
                "latency   {p50} for half of the responses, {p90} for 90 %, {p99} for 99 %"
            )
        }
    }
}

/// Peers and servers: those that are down first, and no more than a screen has room for.
fn servers(out: &mut dyn Write, node: &NodeStatus) -> io::Result<()> {
    let known = |kind: &'static str, server: &ServerStatus| {
        let load = server.outstanding.map_or(server.connections, |n| n as usize);
        let state = if server.up { "up" } else { "down" };
        (state.to_owned(), kind, server.name.clone(), load, server.why.clone().unwrap_or_default())
    };
    let switched = |server: &SwitchedServer| {
        let (load, why) = (server.outstanding as usize, server.why.clone().unwrap_or_default());
        (server.state.to_string(), "server", server.name.clone(), load, why)
    };
    let mut all: Vec<_> = node.peers.iter().map(|peer| known("peer", peer)).collect();
    all.extend(node.origins.iter().map(|origin| known("origin", origin)));
    all.extend(node.switches.iter().flat_map(|site| &site.servers).map(switched));
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|(state, ..)| state != "down");
    writeln!(out, "\nSTATE       KIND    OUTSTANDING  NAME")?;
    for (state, kind, name, load, why) in all.iter().take(MOST_SERVERS) {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        writeln!(out, "{state:10}  {kind:6}  {load:>11}  {name}{why}")?;
    }
    if let Some(more) = all.len().checked_sub(MOST_SERVERS + 1) {
        writeln!(out, "and {} more", more + 1)?;
    }
    Ok(())
}

/// The servers on one screen.
const MOST_SERVERS: usize = 8;

/// Whether a node is ready, and what it misses or is to be looked at.
pub fn state(node: &NodeStatus) -> String {
    match (node.missing.is_empty(), &node.claimed) {
        (true, None) => "ready".to_owned(),
        (true, Some(claim)) => format!("ready: {claim}"),
        (false, _) => format!("not ready: {}", node.missing.join("; ")),
    }
}

/// A part, or a dash if there is none.
pub fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.0} %", 100.0 * part))
}

/// A time with a unit that suits it, or a dash if there is none.
pub fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

/// A number of bytes with a unit that suits it.
pub fn bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let power = if count < 1.0 { 0 } else { ((count.log10() / 3.0) as usize).min(4) };
    let scaled = count / 1_000f64.powi(power as i32);
    let digits = usize::from(power > 0 && scaled < 100.0);
    format!("{scaled:.digits$} {}", units[power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::HotObject;

    fn node() -> NodeStatus {
        let server = |name: &str, up, why: Option<&str>| ServerStatus {
            name: name.to_owned(),
            up,
            why: why.map(str::to_owned),
            outstanding: Some(2),
            ..ServerStatus::default()
        };
        NodeStatus {
            name: "a".to_owned(),
            version: "0.1.0".to_owned(),
            uptime_seconds: 90.4,
            ready: true,
            in_service: 3,
            capacity: 100,
            hits: 3,
            misses: 1,
            memory_bytes: 52_000_000,
            memory_limit: 1_500_000_000,
            now: Some(Sample {
                requests: 41.5,
                bytes: 1_234_567.0,
                hit_ratio: Some(0.9),
                p50: Some(0.0004),
                p90: Some(0.012),
                p99: Some(1.25),
                ..Sample::default()
            }),
            peers: vec![
                server("b", true, None),
                server("c", false, Some("2 probes in a row failed")),
            ],
            hottest: vec![HotObject {
                url: "http://x.test/hot".to_owned(),
                rate: 12.0,
                set: vec!["b".to_owned(), "a".to_owned()],
                ..HotObject::default()
            }],
            ..NodeStatus::default()
        }
    }

    #[test]
    fn age_is_written_in_its_two_largest_units() {
        let ages = [7, 90, 3600, 90_000, 700_000].map(age);
        assert_eq!(ages, ["7s", "1m30s", "1h0m", "1d1h", "8d2h"]);
    }

    #[test]
    fn state_of_a_node_fits_one_screen() {
        let mut text = Vec::new();
        one(&mut text, &node()).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "\
node      a, version 0.1.0, running for 1m30s
state     ready
requests  41.5 a second, 0 in flight, 3 of 100 in service, 0 connections
latency   400 us for half of the responses, 12.0 ms for 90 %, 1.2 s for 99 %
hits      90 % of the last second, 75 % since the start
bytes     1.2 MB/s sent, 0 B/s from origins
memory    52.0 MB of 1.5 GB; the cache has 0 B in 0 objects

STATE       KIND    OUTSTANDING  NAME
down        peer              2  c: 2 probes in a row failed
up          peer              2  b

REQUESTS/S  NODES  HOTTEST OBJECTS
      12.0  b,a    http://x.test/hot
"
        );
    }

    #[test]
    fn server_that_is_down_is_not_well() {
        let mut node = node();
        assert!(!is_well(&node));
        node.peers.pop();
        assert!(is_well(&node));
        node.ready = false;
        assert!(!is_well(&node));
    }

    #[test]
    fn node_that_does_not_answer_has_its_line() {
        let silent = ClusterNode {
            name: "b".to_owned(),
            error: Some("it does not answer in time".to_owned()),
            ..ClusterNode::default()
        };
        let answers =
            ClusterNode { name: "a".to_owned(), status: Some(node()), ..ClusterNode::default() };
        let mut text = Vec::new();
        cluster(&mut text, &[answers, silent]).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with("a           41.5  90 %       3/100     1.2 MB"), "{text}");
        assert!(lines[2].ends_with("it does not answer in time"), "{text}");
    }
}
