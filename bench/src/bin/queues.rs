//! Queues with a closed form on the simulator's kernel: whether they agree, and jobs per second.
//!
//! `cargo run --release -p levada-bench --bin queues`: M/M/1, M/D/1 and processor sharing; simpy's
//! M/M/1 for comparison, where its Python package is installed.

use std::process::ExitCode;

use levada_sim::queueing::Queue;

#[path = "../processor.rs"]
mod processor;
#[path = "../python.rs"]
mod python;

const JOBS: u64 = 10_000_000;
/// A hundredth of that: simpy is that much slower.
const PEER_JOBS: u64 = 100_000;
const LOADS: [f64; 3] = [0.3, 0.5, 0.7];

fn main() -> ExitCode {
    println!(
        "{:10} {:>5} {:>10} {:>12} {:>9} {:>14}",
        "queue", "load", "time", "closed form", "off by", "jobs/s of CPU"
    );
    let mut good = true;
    for queue in Queue::ALL {
        for load in LOADS {
            let begun = processor::seconds();
            let simulated = queue.simulate(load, JOBS, 1);
            let speed = JOBS as f64 / (processor::seconds() - begun);
            let known = queue.mean_sojourn(load);
            let off = simulated / known - 1.0;
            good &= off.abs() < 0.01;
            println!(
                "{:10} {load:>5} {simulated:>10.4} {known:>12.4} {:>8.2}% {speed:>14.0}",
                queue.as_str(),
                off * 100.0
            );
        }
    }
    if python::has("simpy") {
        let arguments = ["0.5".to_owned(), PEER_JOBS.to_string()];
        match python::lines("queues.py", &arguments, "") {
            Ok(lines) => {
                for line in lines {
                    let [time, seconds] =
                        ["sojourn", "seconds"].map(|key| line[key].as_f64().unwrap_or(f64::NAN));
                    println!(
                        "{:10} {:>5} {time:>10.4} {:>12.4} {:>8.2}% {:>14.0}",
                        "simpy",
                        0.5,
                        2.0,
                        (time / 2.0 - 1.0) * 100.0,
                        PEER_JOBS as f64 / seconds
                    );
                }
            }
            Err(error) => eprintln!("{error}"),
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
