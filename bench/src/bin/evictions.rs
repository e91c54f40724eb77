//! What each eviction algorithm makes of a trace: hit ratios of requests and of bytes, and how many
//! requests per second it follows.
//!
//! `cargo run --release -p levada-bench --bin evictions [FILE | rice | ibm] ...` prints a table for each
//! trace, with caches of 1, 5 and 20 % of its distinct bytes. Ratios are of the whole trace, the cold
//! start included; speed is that of the 5 % cache, on the processor's clock where the system tells it.

use std::{env, error::Error, hint::black_box, time::Instant};

use levada_cache::eviction::{DEFAULT_EVICTION, EVICTIONS, Entry, Keyed};
use levada_trace::{Limits, Trace, generate::MODELS, open};
use levada_types::{Key, hash64};

/// Parts of the distinct bytes.
const PARTS: [f64; 3] = [0.01, 0.05, 0.2];
const ROUNDS: usize = 3;
const LEAST_PER_ROUND: usize = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = env::args().skip(1).collect();
    if names.is_empty() {
        return Err("name traces: files, `rice` or `ibm`".into());
    }
    for name in names {
        let trace = match MODELS.iter().find(|model| model.name == name) {
            Some(model) => model.generate(1),
            None => {
                let (trace, skipped) = Trace::from_reader(open(&name)?, &Limits::default());
                eprintln!("{name}: {skipped}");
                trace
            }
        };
        compare(&name, &trace);
    }
    Ok(())
}

fn compare(name: &str, trace: &Trace) {
    let distinct: u64 = trace.objects().iter().map(|object| object.size).sum();
    let requests: Vec<(Key, u64)> = trace
        .requests()
        .iter()
        .map(|&id| (Key(hash64(&id.to_le_bytes())), trace.objects()[id as usize].size))
        .collect();
    let asked: u64 = requests.iter().map(|(_, bytes)| bytes).sum();
    println!(
        "\n{name}: {} requests for {} objects of {:.1} MB\n",
        requests.len(),
        trace.objects().len(),
        distinct as f64 / 1e6
    );
    let head: Vec<String> = PARTS.iter().map(|part| format!("{:.0} %", part * 100.0)).collect();
    println!("| hits % / bytes % | {} | M requests/s |", head.join(" | "));
    println!("|---|---|---|---|---|");
    for entry in EVICTIONS {
        let cells = PARTS.map(|part| {
            let (hits, bytes) = replay(entry, (distinct as f64 * part) as u64, &requests);
            let share = |part: u64, whole: u64| part as f64 / whole as f64 * 100.0;
            format!("{:.2} / {:.2}", share(hits, requests.len() as u64), share(bytes, asked))
        });
        let mark = if entry.name == DEFAULT_EVICTION.name { " (default)" } else { "" };
        let speed = speed(entry, (distinct as f64 * PARTS[1]) as u64, &requests);
        println!("| `{}`{mark} | {} | {speed:.1} |", entry.name, cells.join(" | "));
    }
}

/// Requests and bytes that are hits.
fn replay(entry: &Entry, capacity: u64, requests: &[(Key, u64)]) -> (u64, u64) {
    let mut cache = Keyed::new((entry.build)(capacity));
    let mut hits = (0, 0);
    for &(key, bytes) in requests {
        if cache.request(key, bytes) {
            hits = (hits.0 + 1, hits.1 + bytes);
        }
    }
    hits
}

/// Millions of requests per second, of the best round: neighbours only ever add time. A round is long
/// enough for a clock that moves in milliseconds.
fn speed(entry: &Entry, capacity: u64, requests: &[(Key, u64)]) -> f64 {
    let times = (LEAST_PER_ROUND / requests.len().max(1)).max(1);
    let round = |_| {
        let (wall, processor) = (Instant::now(), processor_nanos());
        for _ in 0..times {
            black_box(replay(entry, capacity, requests));
        }
        let nanos = match processor.zip(processor_nanos()) {
            Some((begun, now)) => (now - begun) as f64,
            None => wall.elapsed().as_nanos() as f64,
        };
        (times * requests.len()) as f64 * 1e3 / nanos
    };
    (0..ROUNDS).map(round).fold(0.0, f64::max)
}

fn processor_nanos() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok()
}
