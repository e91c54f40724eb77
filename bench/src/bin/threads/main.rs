//! The price that a thread pays for what it shares with others: the decider of a policy, and the memory store,
//! next to stores of other libraries.
//!
//! `cargo run --release -p levada-bench --bin threads -- deciders [policy ...]`, or `stores`, `ratios`,
//! `objects` in place of `deciders`. Rows take turns in each of seven rounds, since neighbours on the
//! machine only ever add time.

mod deciders;
mod stores;

use std::{sync::Barrier, time::Instant};

use levada_types::{Key, Rng, hash64};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const THREADS: [usize; 4] = [1, 2, 4, 8];
const ROUNDS: usize = 7;
/// Keys of a thread in a round: enough for a clock that moves in milliseconds.
const KEYS: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("deciders") => deciders::run(&arguments[1..]),
        Some("stores") => stores::run(),
        Some("ratios") => stores::ratios(),
        Some("objects") => stores::objects(),
        _ => eprintln!("usage: threads deciders [policy ...] | stores | ratios | objects"),
    }
}

/// One thing that is measured: does its work for each key of a thread's stream.
struct Row<'a> {
    name: String,
    streams: &'a [Vec<Key>],
    work: Work<'a>,
}

type Work<'a> = Box<dyn Fn(&[Key]) + Sync + 'a>;

/// The time that all threads of a round took together.
#[derive(Clone, Copy)]
struct Cost {
    /// Nanoseconds on a processor, per key.
    nanos: f64,
    /// Keys per second, in millions.
    rate: f64,
    /// How often a thread went to sleep, per thousand keys.
    waits: f64,
}

/// Prints the cost of each row with each number of threads.
fn compare(rows: &[Row], threads: &[usize]) {
    println!("{:24} threads  ns best   median      M/s waits/1000", "");
    for &threads in threads {
        let mut costs = vec![Vec::new(); rows.len()];
        for _ in 0..ROUNDS {
            for (row, costs) in rows.iter().zip(&mut costs) {
                costs.push(round(row, threads));
            }
        }
        for (row, mut costs) in rows.iter().zip(costs) {
            costs.sort_by(|a, b| a.nanos.total_cmp(&b.nanos));
            let (best, median) = (costs[0], costs[ROUNDS / 2]);
            let rate = costs.iter().map(|cost| cost.rate).fold(0.0, f64::max);
            println!(
                "{:24} {threads:7} {:8.1} {:8.1} {rate:8.2} {:10.2}",
                row.name, best.nanos, median.nanos, median.waits
            );
        }
    }
}

fn round(row: &Row, threads: usize) -> Cost {
    let together = Barrier::new(threads + 1);
    let thread = |keys: &[Key]| {
        together.wait();
        let before = consumed();
        (row.work)(keys);
        let after = consumed();
        together.wait();
        (after.0 - before.0, after.1 - before.1)
    };
    let (wall, consumed) = std::thread::scope(|scope| {
        let running: Vec<_> =
            row.streams[..threads].iter().map(|keys| scope.spawn(|| thread(keys))).collect();
        together.wait();
        let begin = Instant::now();
        together.wait();
        let wall = begin.elapsed();
        let consumed = running.into_iter().map(|thread| thread.join().expect("no panic"));
        (wall, consumed.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    });
    let keys = (threads * KEYS) as f64;
    Cost {
        nanos: consumed.0 as f64 / keys,
        rate: keys / wall.as_secs_f64() / 1e6,
        waits: consumed.1 as f64 / keys * 1e3,
    }
}

/// Nanoseconds of this thread on a processor, and how often it went to sleep.
fn consumed() -> (u64, u64) {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap_or_default()
    };
    let (schedstat, status) = (read("schedstat"), read("status"));
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (number(schedstat.split(' ').next()), number(waits))
}

fn key(n: usize) -> Key {
    Key(hash64(&n.to_le_bytes()))
}

/// A stream for each thread: ranks with density 1/rank.
fn zipf(objects: usize) -> Vec<Vec<Key>> {
    let stream = |seed| {
        let mut rng = Rng::new(seed);
        (0..KEYS).map(|_| key((objects as f64).powf(rng.unit()) as usize % objects)).collect()
    };
    (0..THREADS[THREADS.len() - 1] as u64).map(stream).collect()
}
