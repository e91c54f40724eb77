//! How long transfers take packet by packet, here and in ns-3, on one small network.
//!
//! `cargo run --release -p levada-bench --bin transfers`: a server, a slow link in the middle, and
//! clients on fast links. Three cases: alone on the idle path; many that share the link; many into
//! a queue that overflows. Times are from the end of the handshake to the last byte at the client.
//! ns-3 is its Python package (`ns3`); without it that side is left out.

use std::process::ExitCode;

use levada_sim::{Fidelity, NetworkModel, Transfer, Transferred, transfer};
use levada_topology::{Link, Role, Topology};
use levada_types::{Rng, Timestamp};
use serde_json::{Value, json};

#[path = "../processor.rs"]
mod processor;
#[path = "../python.rs"]
mod python;

struct Case {
    name: &'static str,
    /// Places in the queue of the slow link.
    queue: u32,
    transfers: Vec<Transfer>,
}

/// 8 Mbit/s and 10 ms in the middle; 1 Gbit/s and 1 ms at the ends.
const MIDDLE: (u64, u64) = (10_000_000, 8_000_000);
const EDGE: (u64, u64) = (1_000_000, 1_000_000_000);
const CLIENTS: u32 = 20;

fn main() -> ExitCode {
    let peer = python::has("ns");
    println!(
        "{:32} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12}",
        "case",
        "ours (s)",
        "bulk (s)",
        "ns-3 (s)",
        "ours/ns-3",
        "bulk/ours",
        "our events/s",
        "ns-3 ev./s"
    );
    for case in cases() {
        if let Err(error) = compare(&case, peer) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn cases() -> Vec<Case> {
    let alone = |name, bytes| Case {
        name,
        queue: 512,
        transfers: vec![Transfer { at: Timestamp::from_secs(1), client: 0, server: 0, bytes }],
    };
    vec![
        alone("536 bytes, alone", 536),
        alone("10 kB, alone", 10_000),
        alone("100 kB, alone", 100_000),
        alone("1 MB, alone", 1_000_000),
        Case { name: "500 at 60 % of the link", queue: 512, transfers: by_chance(0.6) },
        Case { name: "500 at 90 % of the link", queue: 512, transfers: by_chance(0.9) },
        Case { name: "500 at 80 %, queue of 20", queue: 20, transfers: by_chance(0.8) },
    ]
}

/// Transfers of 17.6 kB on average, as the papers' traces have them, that come by chance and ask for
/// `load` of the link.
fn by_chance(load: f64) -> Vec<Transfer> {
    const MEAN: f64 = 17_600.0;
    let mut rng = Rng::new(1);
    let gap = MEAN * (576.0 / 536.0) * 8.0 / (load * MIDDLE.1 as f64);
    let mut now = 1.0;
    let next = |_| {
        now += rng.exponential() * gap;
        let bytes = (rng.exponential() * MEAN) as u64 + 1;
        let client = rng.below(CLIENTS as usize) as u32;
        Transfer { at: Timestamp((now * 1e9) as u64), client, server: 0, bytes }
    };
    (0..500).map(next).collect()
}

fn compare(case: &Case, peer: bool) -> Result<(), String> {
    let topology = topology(case.queue);
    let play = |fidelity| {
        let model = NetworkModel { fidelity, ..NetworkModel::default() };
        transfer(&topology, &model, &case.transfers).map_err(|error| error.to_string())
    };
    let took = |done: &[Transferred]| {
        let times = done.iter().map(|t| t.last.as_secs_f64() - t.asked.as_secs_f64());
        times.collect::<Vec<f64>>()
    };
    let bulk = took(&play(Fidelity::Flow)?);
    let begun = processor::seconds();
    let done = play(Fidelity::Packet)?;
    let seconds = processor::seconds() - begun;
    let ours = took(&done);
    // A packet is an event at each of three links, and half the packets are acknowledgements.
    let segments: u64 = case.transfers.iter().map(|t| t.bytes.div_ceil(536)).sum();
    let speed = (segments * 2 * 3) as f64 / seconds;
    let mut line = format!("{:32} {:>10.4} {:>10.4}", case.name, mean(&ours), mean(&bulk));
    if peer {
        let plan = plan(case).to_string();
        let answer = python::lines("transfers.py", &[], &plan)?;
        let answer = answer.first().ok_or("ns-3 said nothing")?;
        let times: Vec<f64> =
            answer["times"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        if times.len() != ours.len() {
            return Err(format!("{}: ns-3 ended {} of {}", case.name, times.len(), ours.len()));
        }
        let events = answer["events"].as_f64().unwrap_or(f64::NAN);
        line += &format!(
            " {:>10.4} {:>10.3} {:>10.3} {:>12.0} {:>12.0}",
            mean(&times),
            mean(&ours) / mean(&times),
            mean(&bulk) / mean(&ours),
            speed,
            events / answer["seconds"].as_f64().unwrap_or(f64::NAN),
        );
        println!("{line}");
        if times.len() > 1 {
            let quantiles = [0.5, 0.9].map(|q| quantile(&ours, q) / quantile(&times, q));
            println!("{:32} ours/ns-3: median {:.3}, 90 % {:.3}", "", quantiles[0], quantiles[1]);
        }
    } else {
        println!(
            "{line} {:>10} {:>10} {:>10.3} {speed:>12.0}",
            "-",
            "-",
            mean(&bulk) / mean(&ours)
        );
    }
    Ok(())
}

fn topology(queue: u32) -> Topology {
    let mut topology = Topology::default();
    let left = topology.place("left", Role::Redirector);
    let right = topology.place("right", Role::Router);
    let join = |topology: &mut Topology, a, b, (latency_ns, bits_per_second), queue_packets| {
        topology.links.push(Link { a, b, latency_ns, bits_per_second, queue_packets });
    };
    join(&mut topology, left, right, MIDDLE, queue);
    let server = topology.place("server", Role::Server);
    join(&mut topology, server, right, EDGE, 512);
    for n in 0..CLIENTS {
        let client = topology.place(format!("client-{n}"), Role::Client);
        join(&mut topology, client, left, EDGE, 512);
    }
    topology
}

/// The case as bench/python/transfers.py reads it.
fn plan(case: &Case) -> Value {
    let link = |(ns, bps): (u64, u64), packets: u32| json!({ "ms": ns as f64 / 1e6, "bps": bps, "packets": packets });
    let model = NetworkModel::default();
    let transfers: Vec<Value> = case
        .transfers
        .iter()
        .map(|t| json!({ "at": t.at.as_secs_f64(), "client": t.client, "bytes": t.bytes }))
        .collect();
    json!({
        "middle": link(MIDDLE, case.queue),
        "edge": link(EDGE, 512),
        "segment": model.segment,
        "window": model.window,
        "initial_window": model.initial_window,
        "until": 10_000,
        "transfers": transfers,
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * part) as usize]
}
