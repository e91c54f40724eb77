//! Eviction algorithms on a trace: hit ratios of requests and of bytes, and requests per second of the
//! algorithm itself.
//!
//! `cargo run --release -p levada-bench --bin evictions [FILE | rice | ibm] ...` prints a table for each
//! trace, with caches of 1, 5 and 20 % of its distinct bytes. Ratios are of the whole trace, the cold
//! start included; speed is that of the 5 % cache, on the processor's clock where the system tells it.
//! Where the Python package libcachesim is installed, a second table compares its algorithms with ours of
//! the same name, on the same trace and in the same run, with the 5 % cache.

use std::{env, error::Error, fs, hint::black_box};

use levada_cache::eviction::{DEFAULT_EVICTION, EVICTIONS, EvictionEntry, Keyed, find_eviction};
use levada_trace::{Trace, TraceLimits, generate::GENERATORS, open};
use levada_types::{Key, hash64};

#[path = "../processor.rs"]
mod processor;
#[path = "../python.rs"]
mod python;

/// Parts of the distinct bytes.
const PARTS: [f64; 3] = [0.01, 0.05, 0.2];
const ROUNDS: usize = 3;
const LEAST_PER_ROUND: usize = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = env::args().skip(1).collect();
    if names.is_empty() {
        return Err("name traces: files, `rice`, `ibm` or `specweb99`".into());
    }
    for name in names {
        let trace = match GENERATORS.iter().find(|generator| generator.name == name) {
            Some(generator) => (generator.generate)(1),
            None => {
                let (trace, skipped) = Trace::from_reader(open(&name)?, &TraceLimits::default());
                eprintln!("{name}: {skipped}");
                trace
            }
        };
        compare(&name, &trace);
        if python::has("libcachesim") {
            beside(&trace)?;
        }
    }
    Ok(())
}

/// The same requests through libcachesim's own code and ours: hit ratios, requests per second. Once
/// with the sizes of the trace, and once with all objects of one size, where the algorithms must
/// agree whatever they make of a size.
fn beside(trace: &Trace) -> Result<(), Box<dyn Error>> {
    let file = env::temp_dir().join(format!("levada-evictions-{}.trace", std::process::id()));
    println!("\n| beside libcachesim | hits % | theirs | M requests/s | theirs | ratio |");
    println!("|---|---|---|---|---|---|");
    for (label, size) in [("sizes of the trace", None), ("one size", Some(4096))] {
        let bytes = |id: u32| size.unwrap_or(trace.objects()[id as usize].size);
        let distinct: u64 = (0..trace.objects().len() as u32).map(bytes).sum();
        let capacity = (distinct as f64 * PARTS[1]) as u64;
        let requests: Vec<(Key, u64)> = (trace.requests().iter())
            .map(|id| (Key(hash64(&id.to_le_bytes())), bytes(*id)))
            .collect();
        let record = |(at, id): (u32, &u32)| {
            let size = u32::try_from(bytes(*id)).unwrap_or(u32::MAX);
            let mut record = [0; 24];
            record[..4].copy_from_slice(&at.to_le_bytes());
            record[4..12].copy_from_slice(&u64::from(*id).to_le_bytes());
            record[12..16].copy_from_slice(&size.to_le_bytes());
            record[16..].copy_from_slice(&(-1_i64).to_le_bytes());
            record
        };
        let records: Vec<u8> = (0..).zip(trace.requests()).flat_map(record).collect();
        fs::write(&file, records)?;
        let arguments = [file.display().to_string(), capacity.to_string()];
        for line in python::lines("evictions.py", &arguments, "")? {
            let Some(entry) = line["name"].as_str().and_then(find_eviction) else { continue };
            let (hits, _) = replay(entry, capacity, &requests);
            let ours = speed(entry, capacity, &requests);
            let seconds = line["seconds"].as_f64().unwrap_or(f64::NAN);
            let theirs = requests.len() as f64 / seconds / 1e6;
            println!(
                "| `{}`, {label} | {:.3} | {:.3} | {ours:.1} | {theirs:.1} | {:.2} |",
                entry.name,
                hits as f64 / requests.len() as f64 * 100.0,
                line["hits"].as_f64().unwrap_or(f64::NAN) * 100.0,
                ours / theirs,
            );
        }
    }
    fs::remove_file(&file)?;
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
fn replay(entry: &EvictionEntry, capacity: u64, requests: &[(Key, u64)]) -> (u64, u64) {
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
fn speed(entry: &EvictionEntry, capacity: u64, requests: &[(Key, u64)]) -> f64 {
    let times = (LEAST_PER_ROUND / requests.len().max(1)).max(1);
    let round = |_| {
        let begun = processor::seconds();
        for _ in 0..times {
            black_box(replay(entry, capacity, requests));
        }
        (times * requests.len()) as f64 / 1e6 / (processor::seconds() - begun)
    };
    (0..ROUNDS).map(round).fold(0.0, f64::max)
}
