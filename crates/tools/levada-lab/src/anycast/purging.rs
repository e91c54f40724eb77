//! WWW'09 Sec. 4.2, Table 1: the share of connections that are given up although they were not dormant.
//!
//! The paper had 59 clients all over the Internet. Here a seed determines as many paths, most of them
//! good, the last one very poor. Each client downloads in turn from three servers that differ only in
//! their patience.

use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use levada_net::{
    lab::{Access, Host, Network},
    wire::Shape,
};
use levada_types::Rng;
use serde_json::json;
use tokio::net::TcpListener;

use super::{
    draw,
    sender::{self, Sender},
};
use crate::args::anycast::PurgingArgs;
use levada_client::command::CommandStatus;
use levada_report::chart::{Axes, Curve, Figure, lines};

/// One kind of server, with the counts of both sides.
struct Side {
    name: &'static str,
    port: u16,
    sender: Arc<Sender>,
    downloads: AtomicU64,
    /// Downloads that their client could not finish.
    dropped: AtomicU64,
    /// Durations of the finished downloads, in seconds.
    seconds: Mutex<Vec<f64>>,
}

/// Measures for the given duration.
///
/// # Errors
/// If the network cannot be created.
pub(super) fn run(args: &PurgingArgs) -> anyhow::Result<CommandStatus> {
    let sides = [("as the kernel", None), ("0 retries", Some(0)), ("1 retry", Some(1))];
    let sides: Vec<Side> = sides
        .into_iter()
        .zip(8000..)
        .map(|((name, dormant_retries), port)| Side {
            name,
            port,
            sender: Arc::new(Sender { dormant_retries, ..Sender::new(args.size.0) }),
            downloads: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            seconds: Mutex::default(),
        })
        .collect();
    let mut network = Network::new(args.every.seed);
    let server = network.host("server")?;
    let clients = (0..args.clients)
        .map(|n| network.host(&format!("client {n}")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rng = Rng::new(args.every.seed);
    let mut ends = vec![(&server, Access { prefix: 16, ..Access::at(SERVER) })];
    for (index, client) in clients.iter().enumerate() {
        let shape = path(&mut rng, index + 1 == clients.len());
        let [_, _, low, high] = (index as u32 + 256).to_be_bytes();
        let access = Access { prefix: 16, ..Access::at(Ipv4Addr::new(10, 0, low, high)) };
        ends.push((client, access.sending(shape).receiving(shape)));
    }
    let _wire = network.join(&ends)?;
    let listeners = sides
        .iter()
        .map(|side| sender::listen(&server, SERVER, side.port))
        .collect::<Result<Vec<_>, _>>()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let senders =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        for (side, listener) in sides.iter().zip(listeners) {
            let (sender, _guard) = (side.sender.clone(), senders.enter());
            senders.spawn(sender.serve(TcpListener::from_std(listener)?));
        }
        for (index, client) in clients.iter().enumerate() {
            let (sides, over) = (&sides, &over);
            let seed = args.every.seed ^ (index as u64) << 32;
            scope.spawn(move || downloads(client, sides, over, Rng::new(seed)));
        }
        let began = Instant::now();
        while began.elapsed() < args.duration {
            std::thread::sleep(END_INTERVAL);
        }
        over.store(true, Relaxed);
        senders.shutdown_background();
        Ok(())
    })?;
    report(args, &sides)
}

/// A path of the Internet: 10 to 250 ms, 2 to 15 Mbit/s, 0.1 to 6 % of losses each way. The last client's
/// path is as bad as the paper's worst.
fn path(rng: &mut Rng, is_worst: bool) -> Shape {
    let mut between = |low: f64, high: f64| low * (high / low).powf(rng.unit());
    let (rtt, rate, loss) = (between(0.01, 0.25), between(2e6, 1.5e7), between(1e-3, 0.06));
    let (rtt, loss) = if is_worst { (0.2, 0.12) } else { (rtt, loss) };
    Shape {
        rate: Some(rate as u64),
        delay: Duration::from_secs_f64(rtt / 2.0),
        loss,
        queue: 50,
        ..Shape::default()
    }
}

/// One client: one download after the other, from servers in a random order.
fn downloads(client: &Host, sides: &[Side], over: &AtomicBool, mut rng: Rng) -> io::Result<()> {
    client.namespace().run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Servers take turns, so that each has its share of each path.
        for side in sides.iter().cycle().skip(rng.below(sides.len())) {
            if over.load(Relaxed) {
                break;
            }
            let began = Instant::now();
            let server = SocketAddr::from((SERVER, side.port));
            let download = sender::download(server, 0, |_| ());
            let done = runtime.block_on(async {
                let ended = async {
                    while !over.load(Relaxed) {
                        tokio::time::sleep(END_INTERVAL).await;
                    }
                };
                tokio::select! {
                    done = download => Some(done),
                    () = ended => None,
                }
            });
            if let Some(Ok(())) = &done {
                let mut seconds = side.seconds.lock().unwrap_or_else(PoisonError::into_inner);
                seconds.push(began.elapsed().as_secs_f64());
            }
            if let Some(done) = done {
                side.downloads.fetch_add(1, Relaxed);
                side.dropped.fetch_add(u64::from(done.is_err()), Relaxed);
            }
        }
        Ok(())
    })?
}

/// The part of the downloads that are finished by a time.
fn figures(sides: &[Side]) -> Option<Figure> {
    let curve = |side: &Side| {
        let mut seconds = side.seconds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        seconds.sort_by(f64::total_cmp);
        let count = seconds.len() as f64;
        let part = |(place, seconds)| (seconds, (place + 1) as f64 / count);
        (side.name.to_owned(), seconds.into_iter().enumerate().map(part).collect())
    };
    let curves: Vec<Curve> = sides.iter().map(curve).collect();
    let [x, y] = ["seconds", "part of the downloads"].map(str::to_owned);
    let axes = Axes { x, y, log_x: true, ..Axes::default() };
    lines("Downloads that came to their end", &curves, &axes)
}

/// Table 1: percent of connections dropped by a server with 0 and with 1 retry, from its log and from the
/// clients'.
const TABLE: [[f64; 2]; 2] = [[2.57, 3.66], [0.167, 0.171]];
/// The same for a server with the kernel's default, in either experiment.
const REGULAR: [[f64; 2]; 2] = [[0.145, 1.18], [0.006, 0.02]];

fn report(args: &PurgingArgs, sides: &[Side]) -> anyhow::Result<CommandStatus> {
    let percent =
        |count: u64, side: &Side| count as f64 * 100.0 / side.downloads.load(Relaxed).max(1) as f64;
    let server = |side: &Side| percent(side.sender.dormant.load(Relaxed), side);
    let client = |side: &Side| percent(side.dropped.load(Relaxed), side);
    let mut out = io::stdout().lock();
    if args.every.json {
        let rows: Vec<_> = sides
            .iter()
            .map(|side| {
                json!({ "side": side.name, "downloads": side.downloads.load(Relaxed),
                "server_log_percent": server(side), "client_log_percent": client(side) })
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        writeln!(
            out,
            "\ndropped connections       downloads   server log (paper)   client log (paper)"
        )?;
        for (index, side) in sides.iter().enumerate() {
            let paper = match index {
                0 => [
                    format!("{}-{}", REGULAR[1][0], REGULAR[0][0]),
                    format!("{}-{}", REGULAR[1][1], REGULAR[0][1]),
                ],
                retries => TABLE[retries - 1].map(|percent| percent.to_string()),
            };
            let [at_server, at_client] = [server(side), client(side)];
            writeln!(
                out,
                "{:<22} {:>12} {at_server:>9.3} % {:>9} {at_client:>9.3} % {:>9}",
                side.name,
                side.downloads.load(Relaxed),
                format!("({})", paper[0]),
                format!("({})", paper[1]),
            )?;
        }
    }
    draw(&args.every, "How long downloads take", figures(sides))?;
    let [zero, one] = [client(&sides[1]), client(&sides[2])];
    let holds = one < 0.5 && one < zero / 5.0;
    if !args.every.json {
        let verdict = match holds {
            true => "holds",
            false if zero == 0.0 => "cannot be said, as none was given up with 0 retries either",
            false => "does not hold",
        };
        writeln!(out, "one retry: below 0.5 %, and below a fifth of what none drops: {verdict}")?;
    }
    Ok(CommandStatus::of(holds))
}

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The interval at which threads look whether the experiment is over.
const END_INTERVAL: Duration = Duration::from_millis(100);
