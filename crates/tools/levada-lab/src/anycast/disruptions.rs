//! WWW'09 Sec. 4.1, Figure 5: the cost of interrupted connections for a download.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use levada_client::command::CommandStatus;
use levada_client::{Client, ClientSettings, DownloadProgress, GetRequest};
use levada_net::{
    lab::{Access, Network},
    wire::Shape,
};
use levada_report::chart::{Axes, Figure, lines};
use levada_testbed::{cluster::on_host, emulation::run::mean};
use serde_json::json;

use super::{
    draw, is_whole,
    sender::{self, Sender},
};
use crate::args::anycast::DisruptionsArgs;

/// One point of the figure: microseconds, millionths, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    loss: u64,
    rtt: Duration,
    /// Longest first; "never" is the longest.
    reset: Reverse<Duration>,
}

const NEVER: Duration = Duration::MAX;

/// Measures every point and compares with the paper.
///
/// # Errors
/// If the network cannot be created, or a download fails.
pub(super) fn run(args: &DisruptionsArgs) -> anyhow::Result<CommandStatus> {
    let points = points(args);
    let work: Vec<(Point, u64)> =
        (0..args.trials).flat_map(|trial| points.iter().map(move |p| (*p, trial))).collect();
    let directory = tempfile::tempdir().context("no room for the downloads")?;
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::<Point, Vec<f64>>::new());
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.min(work.len()) {
            scope.spawn(|| {
                while let Some((point, trial)) = work.get(next.fetch_add(1, Relaxed)) {
                    match download(args, *point, *trial, directory.path()) {
                        Ok(rate) => lock(&results).entry(*point).or_default().push(rate),
                        Err(error) => {
                            lock(&failure).get_or_insert(error);
                            next.store(work.len(), Relaxed);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let means = results
        .into_iter()
        .map(|(p, rates)| (p, mean(rates.iter().copied())))
        .collect::<BTreeMap<_, _>>();
    report(args, &means)
}

fn points(args: &DisruptionsArgs) -> Vec<Point> {
    let mut resets = args.reset.clone();
    resets.push(NEVER);
    let mut points = Vec::new();
    for loss in &args.loss {
        for rtt in &args.rtt {
            points.extend(resets.iter().map(|reset| Point {
                loss: (loss * 1e6).round() as u64,
                rtt: *rtt,
                reset: Reverse(*reset),
            }));
        }
    }
    points
}

/// Runs one download on a network of its own; returns its throughput in Mbit/s.
fn download(
    args: &DisruptionsArgs,
    point: Point,
    trial: u64,
    directory: &Path,
) -> anyhow::Result<f64> {
    let shape = Shape {
        rate: Some(args.rate * 8),
        delay: point.rtt / 2,
        loss: point.loss as f64 / 1e6,
        queue: args.queue,
        ..Shape::default()
    };
    // Every interval has the same losses, so that trials differ only in the interval.
    let mut network = Network::new(args.every.seed.wrapping_add(trial));
    let (server, client) = (network.host("server")?, network.host("client")?);
    let back = Shape { loss: 0.0, ..shape }.checked()?;
    let _wire = network.join(&[
        (&server, Access::at(SERVER).sending(shape.checked()?)),
        (&client, Access::at(Ipv4Addr::new(10, 0, 0, 2)).sending(back)),
    ])?;
    let listener = sender::listen(&server, SERVER, 80)?;
    let reset_after = (point.reset.0 != NEVER).then_some(point.reset.0);
    let sender = Arc::new(Sender { reset_after, ..Sender::new(args.size.0) });
    let name = format!("{}-{}-{:?}-{trial}", point.loss, point.rtt.as_micros(), point.reset.0);
    let path = directory.join(name);
    let request = GetRequest {
        max_time: Some(args.limit),
        hopeless: u32::MAX,
        // The paper's client has one connection at a time.
        spreads: false,
        retries: u32::MAX,
        ..GetRequest::new(format!("http://{SERVER}/file").parse()?, path.clone())
    };
    let (report, result) = on_host(&client, async || {
        tokio::spawn(sender.serve(tokio::net::TcpListener::from_std(listener)?));
        let client = Client::new(ClientSettings::default())?;
        Ok(client.get(&request, &DownloadProgress::default()).await)
    })?;
    if let Err(error) = result
        && report.seconds < args.limit.as_secs_f64()
    {
        bail!("a download failed: {error}");
    }
    if report.complete {
        ensure!(is_whole(&path, args.size.0)?, "a wrong file was taken for the right one");
        fs::remove_file(&path)?;
    }
    Ok(report.held as f64 * 8.0 / 1e6 / report.seconds)
}

/// The paper's statement about an interval: the throughput is at most this much below the baseline,
/// up to this loss.
struct Statement {
    interval: Duration,
    loss: f64,
    least: f64,
    source: &'static str,
}

const STATEMENTS: &[Statement] = &[
    Statement {
        interval: Duration::from_secs(30),
        loss: 1.0,
        least: 0.94,
        source: "30 s: within 6 % of the baseline at worst",
    },
    Statement {
        interval: Duration::from_secs(10),
        loss: 0.01,
        least: 0.90,
        source: "10 s: within 10 % at 0.01 % and 1 % loss",
    },
    Statement {
        interval: Duration::from_secs(10),
        loss: 1.0,
        least: 0.81,
        source: "10 s: within 19 % at 10 % loss",
    },
];

fn report(args: &DisruptionsArgs, means: &BTreeMap<Point, f64>) -> anyhow::Result<CommandStatus> {
    let baseline = |point: &Point| means.get(&Point { reset: Reverse(NEVER), ..*point });
    let ratio =
        |point: &Point| means.get(point).zip(baseline(point)).map(|(rate, base)| rate / base);
    let judged: Vec<_> = STATEMENTS
        .iter()
        .filter_map(|said| {
            let mine = means
                .keys()
                .filter(|p| p.reset.0 == said.interval && p.loss as f64 / 1e6 <= said.loss);
            let worst = mine.filter_map(ratio).reduce(f64::min)?;
            Some((said, worst))
        })
        .collect();
    let mut out = io::stdout().lock();
    if args.every.json {
        let rows: Vec<_> = means
            .iter()
            .map(|(point, rate)| {
                let reset = (point.reset.0 != NEVER).then_some(point.reset.0.as_secs_f64());
                json!({ "loss": point.loss as f64 / 1e6, "rtt_seconds": point.rtt.as_secs_f64(),
                    "reset_seconds": reset, "mbit_per_second": rate, "of_baseline": ratio(point) })
            })
            .collect();
        let said: Vec<_> = judged
            .iter()
            .map(|(said, worst)| json!({ "paper": said.source, "least": said.least, "worst": worst }))
            .collect();
        writeln!(
            out,
            "{}",
            serde_json::to_string_pretty(&json!({ "points": rows, "paper": said }))?
        )?;
    } else {
        table(&mut out, means, &ratio)?;
        for (said, worst) in &judged {
            let verdict = if *worst >= said.least { "holds" } else { "does not hold" };
            writeln!(
                out,
                "paper: {}; here at worst {:.1} % below: {verdict}",
                said.source,
                (1.0 - worst) * 100.0
            )?;
        }
    }
    draw(&args.every, "Downloads over connections that are reset", figures(means))?;
    let holds = judged.iter().all(|(said, worst)| *worst >= said.least);
    Ok(CommandStatus::of(holds))
}

/// Figure 5: throughput over the round trip, a line for each interval, a figure for each loss.
fn figures(means: &BTreeMap<Point, f64>) -> Vec<Figure> {
    let losses: BTreeSet<u64> = means.keys().map(|point| point.loss).collect();
    let figure = |loss: u64| {
        let mut curves = BTreeMap::<_, Vec<(f64, f64)>>::new();
        for (point, rate) in means.iter().filter(|(point, _)| point.loss == loss) {
            let place = (point.rtt.as_secs_f64() * 1e3, *rate);
            curves.entry(point.reset).or_default().push(place);
        }
        let named = |(reset, points): (Reverse<Duration>, _)| (name(reset.0), points);
        let curves: Vec<_> = curves.into_iter().map(named).collect();
        let [x, y] = ["round trip, ms", "Mbit/s"].map(str::to_owned);
        let axes = Axes { x, y, markers: true, ..Axes::default() };
        lines(&format!("loss {} %", loss as f64 / 1e4), &curves, &axes)
    };
    losses.into_iter().flat_map(figure).collect()
}

fn name(reset: Duration) -> String {
    match reset {
        NEVER => "never".to_owned(),
        other => format!("{} s", other.as_secs_f64()),
    }
}

/// A block per loss, a line per round trip, a column per interval: Mbit/s, and percent of the baseline.
fn table(
    out: &mut impl io::Write,
    means: &BTreeMap<Point, f64>,
    ratio: &impl Fn(&Point) -> Option<f64>,
) -> io::Result<()> {
    let mut before = None;
    for (point, rate) in means {
        if before.is_none_or(|(loss, _)| loss != point.loss) {
            let columns = means.keys().filter(|p| (p.loss, p.rtt) == (point.loss, point.rtt));
            let heads: String = columns.map(|p| format!("{:>15}", name(p.reset.0))).collect();
            write!(
                out,
                "\n\nloss {} %, Mbit/s (of baseline)\n    RTT{heads}",
                point.loss as f64 / 1e4
            )?;
        }
        if before != Some((point.loss, point.rtt)) {
            write!(out, "\n{:>4} ms", point.rtt.as_millis())?;
        }
        write!(out, "{rate:>7.2} ({:>3.0} %)", ratio(point).unwrap_or(f64::NAN) * 100.0)?;
        before = Some((point.loss, point.rtt));
    }
    writeln!(out, "\n")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
