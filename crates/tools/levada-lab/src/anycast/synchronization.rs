//! WWW'09 Sec. 4.3, Figure 8: many clients moved at once onto one node, and the queue before it.

use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use levada_client::command::CommandStatus;
use levada_net::{
    lab::{Access, Network},
    wire::Shape,
};
use levada_report::chart::{Axes, Figure, lines};
use levada_testbed::cluster::on_host;
use serde_json::json;
use tokio::net::TcpListener;

use super::{
    draw,
    sender::{self, Sender},
};
use crate::args::anycast::SynchronizationArgs;

/// Moves the clients, and samples the queue for the given duration.
///
/// # Errors
/// If the network cannot be created.
pub(super) fn run(args: &SynchronizationArgs) -> anyhow::Result<CommandStatus> {
    let shape = Shape {
        rate: Some(args.rate * 8),
        delay: args.rtt / 2,
        queue: args.queue,
        ..Shape::default()
    };
    let mut network = Network::new(args.every.seed);
    let (server, clients) = (network.host("server")?, network.host("clients")?);
    let back = Shape { rate: None, ..shape }.checked()?;
    let wire = network.join(&[
        (&server, Access::at(SERVER).sending(shape.checked()?)),
        (&clients, Access::at(Ipv4Addr::new(10, 0, 0, 2)).sending(back)),
    ])?;
    let listener = sender::listen(&server, SERVER, 80)?;
    let (meter, received) = (wire.up(0).clone(), Arc::new(AtomicU64::new(0)));
    let (samples, bytes) = on_host(&clients, async || {
        let sender = Arc::new(Sender::new(args.size.0));
        tokio::spawn(sender.serve(TcpListener::from_std(listener)?));
        for number in 0..args.clients {
            let received = received.clone();
            // Each client continues at another offset of its file.
            let rest = args.size.0 * number as u64 / (2 * args.clients as u64);
            let seen = move |piece: &[u8]| {
                received.fetch_add(piece.len() as u64, Relaxed);
            };
            tokio::spawn(sender::download(SocketAddr::from((SERVER, 80)), rest, seen));
        }
        let began = Instant::now();
        while meter.bytes.load(Relaxed) == 0 && began.elapsed() < START_TIMEOUT {
            tokio::time::sleep(START_INTERVAL).await;
        }
        let before = (Instant::now(), meter.bytes.load(Relaxed));
        let mut samples = Vec::new();
        let mut ticks = tokio::time::interval(SAMPLE);
        while before.0.elapsed() < args.duration {
            ticks.tick().await;
            samples.push(meter.queued.load(Relaxed));
        }
        let seconds = before.0.elapsed().as_secs_f64();
        Ok((samples, (meter.bytes.load(Relaxed) - before.1) as f64 / seconds))
    })?;
    report(args, &samples, bytes * 8.0 / (args.rate * 8) as f64, received.load(Relaxed))
}

fn report(
    args: &SynchronizationArgs,
    samples: &[u64],
    utilisation: f64,
    received: u64,
) -> anyhow::Result<CommandStatus> {
    let spectrum = spectrum(since_full(samples, args.queue));
    let peak = dominance(&spectrum);
    draw(&args.every, "Many clients moved at once", figures(samples, &spectrum))?;
    let mean = samples.iter().sum::<u64>() as f64 / samples.len().max(1) as f64;
    let (least, most) = (samples.iter().min().unwrap_or(&0), samples.iter().max().unwrap_or(&0));
    let holds = utilisation >= 0.95 && peak < DOMINANT;
    let mut out = io::stdout().lock();
    if args.every.json {
        let report = json!({ "clients": args.clients, "utilisation": utilisation,
            "queue": samples, "spectrum_peak_to_median": peak, "bytes_received": received });
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        writeln!(
            out,
            "\n{} clients moved at once, {} samples of the queue",
            args.clients,
            samples.len()
        )?;
        writeln!(
            out,
            "queue        mean {mean:.0}, from {least} to {most} packets of {}",
            args.queue
        )?;
        for (second, group) in samples.chunks(samples.len().div_ceil(20).max(1)).enumerate() {
            let mean = group.iter().sum::<u64>() / group.len() as u64;
            let bar = "#".repeat((mean as usize * 50).div_ceil(args.queue.max(1)).min(50));
            let at = (second * samples.len().div_ceil(20).max(1)) as f64 * SAMPLE.as_secs_f64();
            writeln!(out, "{at:>8.1} s {mean:>6} {bar}")?;
        }
        writeln!(out, "utilisation  {:.1} % (at least 95 %)", utilisation * 100.0)?;
        writeln!(
            out,
            "spectrum     highest peak {peak:.1} times the median (an oscillation: {DOMINANT} or more)"
        )?;
        let verdict = if holds { "holds" } else { "does not hold" };
        writeln!(out, "paper: no synchronization: {verdict}")?;
    }
    Ok(CommandStatus::of(holds))
}

/// The samples since the queue was full for the first time: how it filled is a step, whose power is at every
/// long period, and no oscillation. A queue that does not fill is measured as it is.
fn since_full(samples: &[u64], limit: usize) -> &[u64] {
    let full = samples.iter().position(|&queued| queued * 10 >= limit as u64 * 9);
    &samples[full.unwrap_or(0)..]
}

/// Figure 8: the queue over time, and its spectrum, which would show an oscillation.
fn figures(samples: &[u64], spectrum: &[f64]) -> Vec<Figure> {
    let step = SAMPLE.as_secs_f64();
    let queue = samples.iter().enumerate().map(|(at, queue)| (at as f64 * step, *queue as f64));
    let period = |index: usize| SEGMENT as f64 * step / (index + 1) as f64;
    let powers = spectrum.iter().enumerate().map(|(index, power)| (period(index), *power));
    let axes = |x: &str, y: &str, markers| Axes {
        x: x.to_owned(),
        y: y.to_owned(),
        markers,
        ..Axes::default()
    };
    let queue = [("queue".to_owned(), queue.collect())];
    let powers = [("power".to_owned(), powers.collect())];
    let queue = lines("Packets before the link", &queue, &axes("seconds", "packets", false));
    let caption = "The queue's power by the period of its oscillation";
    let powers = lines(caption, &powers, &axes("period, s", "power", false));
    queue.into_iter().chain(powers).collect()
}

/// The spectrum of the samples, by Welch's method: without averaging over segments, the highest of 200
/// powers of pure noise would be seven times the median.
fn spectrum(samples: &[u64]) -> [f64; SEGMENT / 2] {
    let mut powers = [0.0; SEGMENT / 2];
    for segment in samples.windows(SEGMENT).step_by(SEGMENT / 2) {
        let mean = segment.iter().sum::<u64>() as f64 / SEGMENT as f64;
        for (index, power) in powers.iter_mut().enumerate() {
            let (mut real, mut imaginary) = (0.0, 0.0);
            for (at, sample) in segment.iter().enumerate() {
                let turn = std::f64::consts::TAU / SEGMENT as f64;
                let window = 0.5 - 0.5 * (turn * at as f64).cos();
                let (sine, cosine) = (turn * (index + 1) as f64 * at as f64).sin_cos();
                real += window * (*sample as f64 - mean) * cosine;
                imaginary += window * (*sample as f64 - mean) * sine;
            }
            *power += real * real + imaginary * imaginary;
        }
    }
    powers
}

/// The highest power divided by the median.
fn dominance(spectrum: &[f64]) -> f64 {
    let mut powers = spectrum.to_vec();
    powers.sort_by(f64::total_cmp);
    let (median, highest) = (powers[powers.len() / 2], powers[powers.len() - 1]);
    // A constant queue does not oscillate.
    if highest == 0.0 { 0.0 } else { highest / median.max(f64::MIN_POSITIVE) }
}

/// Without a byte for this long, the link is measured as it is.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of checks whether the first byte has passed.
const START_INTERVAL: Duration = Duration::from_millis(1);
/// The paper's value.
const SAMPLE: Duration = Duration::from_millis(200);
/// Samples per segment of the spectrum: periods from 0.4 to 6.4 s.
const SEGMENT: usize = 32;
/// A peak from this ratio on is more than chance.
const DOMINANT: f64 = 5.0;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

#[cfg(test)]
mod tests {
    use super::*;
    use levada_types::Rng;

    #[test]
    fn noise_has_no_dominant_peak_and_an_oscillation_has_one() {
        let mut rng = Rng::new(1);
        let noise: Vec<u64> = (0..400).map(|_| rng.below(600) as u64).collect();
        let dominance = |samples: &[u64]| dominance(&spectrum(samples));
        assert!(dominance(&noise) < DOMINANT, "{}", dominance(&noise));
        let saw: Vec<u64> = (0..400).map(|at| at % 10 * 60 + rng.below(60) as u64).collect();
        assert!(dominance(&saw) > DOMINANT, "{}", dominance(&saw));
        assert_eq!(dominance(&[7; 400]), 0.0);
    }

    #[test]
    fn a_queue_that_fills_once_does_not_oscillate() {
        let mut rng = Rng::new(1);
        let filled = (0..400).map(|_| 596 + rng.below(5) as u64);
        let samples: Vec<u64> = [7, 570].into_iter().chain(filled).collect();
        let peak = dominance(&spectrum(since_full(&samples, 600)));
        assert!(peak < DOMINANT, "{peak}");
        assert_eq!(since_full(&[3, 1, 2], 600), [3, 1, 2]);
    }
}
