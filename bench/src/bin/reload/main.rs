//! The longest waits of clients while a node with many sites reloads, compared with the same without a reload.
//!
//! ```text
//! cargo build --release -p levada -p levada-bench --bin levada --bin reload
//! target/release/reload [--sites N] [--rounds N] [--threads N] [--shared] [--plain] [--only KIND]
//! ```
//!
//! Two or more connections for each serving thread ask for a cached object of 1 KB all the time. Rounds without and
//! with a disturbance take turns at one process. For each long wait, the kernel's account says how much of it the
//! client and its serving thread spent in a queue for a processor: that part is the machine's.

mod clients;
mod node;
mod threads;

use std::{
    env,
    error::Error,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clients::{Clients, Wait};
use node::{Change, Disturbance, Node, Shape};
use threads::Threads;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Waits above this are noted.
const LONG: Duration = Duration::from_millis(10);
/// The longest wait that a disturbance may cause.
const TARGET: Duration = Duration::from_millis(20);
/// The length of a round.
const ROUND: Duration = Duration::from_secs(5);
/// Caches, pools and the first health checks settle within this time.
const SETTLING: Duration = Duration::from_secs(5);

const DISTURBANCES: [Disturbance; 8] = [
    Disturbance::Reload(Change::Nothing),
    Disturbance::Reload(Change::OneSite),
    Disturbance::Reload(Change::AllSites),
    Disturbance::Reload(Change::AllOrigins),
    Disturbance::Page("/metrics"),
    Disturbance::Page("/status"),
    Disturbance::Page("/servers"),
    Disturbance::Page("/readyz"),
];

struct Options {
    shape: Shape,
    rounds: usize,
    pause: Duration,
    only: Option<String>,
}

fn main() -> Result<ExitCode> {
    let options = options()?;
    let (sites, serving) = (options.shape.sites, options.shape.threads);
    let is_shared = options.shape.is_shared;
    let mut node = Node::start(options.shape)?;
    let mut threads = Threads::watch(node.pid());
    let clients = Clients::connect(node.port(), node.serving(), is_shared, options.pause)?;
    println!(
        "{sites} sites, {serving} serving threads, {} connections, {} rounds of {ROUND:?} each without and with",
        clients.count(),
        options.rounds
    );
    thread::sleep(SETTLING);
    println!(
        "{:24} {:>9} {:>7} {:>7} {:>9} {:>9} {:>11} {:>9}",
        "", "requests", ">10 ms", ">20 ms", "longest", "own part", "lasts", "CPU"
    );
    let mut has_missed = false;
    for disturbance in DISTURBANCES {
        let name = disturbance.to_string();
        if options.only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let (mut without, mut with) = (Sum::default(), Sum::default());
        for _ in 0..options.rounds {
            without.add(round(&clients, &mut threads, None, &mut node)?);
            with.add(round(&clients, &mut threads, Some(disturbance), &mut node)?);
        }
        without.print("undisturbed");
        with.print(&name);
        has_missed |= with.own > TARGET;
    }
    println!("{}", if has_missed { "MISSED" } else { "no own part above 20 ms" });
    Ok(ExitCode::SUCCESS)
}

fn options() -> Result<Options> {
    let mut options = Options {
        shape: Shape { sites: 10_000, threads: 2, is_shared: false, is_plain: false },
        rounds: 3,
        pause: Duration::ZERO,
        only: None,
    };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--sites" => options.shape.sites = value()?.parse()?,
            "--threads" => options.shape.threads = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--pause" => options.pause = Duration::from_micros(value()?.parse()?),
            "--only" => options.only = Some(value()?),
            "--shared" => options.shape.is_shared = true,
            "--plain" => options.shape.is_plain = true,
            _ => return Err(format!("no option {word}").into()),
        }
    }
    Ok(options)
}

/// One round: its requests, its long waits, and the time that the disturbance took.
struct Round {
    requests: u64,
    waits: Vec<(Wait, Duration)>,
    lasted: Duration,
    cpu: Duration,
}

fn round(
    clients: &Clients,
    threads: &mut Threads,
    disturbance: Option<Disturbance>,
    node: &mut Node,
) -> Result<Round> {
    let begun = Instant::now();
    let before = clients.requests();
    if let Some(disturbance) = disturbance {
        node.disturb(disturbance)?;
    }
    let lasted = begun.elapsed();
    thread::sleep(ROUND.saturating_sub(lasted));
    let ended = Instant::now();
    let requests = clients.requests() - before;
    let waits = clients.take_waits();
    let waits = waits.into_iter().map(|wait| (wait, threads.own_part(&wait))).collect();
    let cpu = threads.others(begun, ended, &node.serving());
    Ok(Round { requests, waits, lasted, cpu })
}

/// The rounds of one kind together.
#[derive(Default)]
struct Sum {
    rounds: u32,
    requests: u64,
    long: usize,
    too_long: usize,
    longest: Duration,
    /// The longest part of a wait that no queue for a processor explains.
    own: Duration,
    lasted: Duration,
    cpu: Duration,
}

impl Sum {
    fn add(&mut self, round: Round) {
        self.rounds += 1;
        self.requests += round.requests;
        self.lasted += round.lasted;
        self.cpu += round.cpu;
        for (wait, own) in round.waits {
            let took = wait.to - wait.from;
            self.long += usize::from(took > LONG);
            self.too_long += usize::from(took > TARGET);
            self.longest = self.longest.max(took);
            self.own = self.own.max(own);
        }
    }

    fn print(&self, name: &str) {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        println!(
            "{name:24} {:>9} {:>7} {:>7} {:>9} {:>9} {:>11} {:>9}",
            self.requests,
            self.long,
            self.too_long,
            ms(self.longest),
            ms(self.own),
            ms(self.lasted / self.rounds),
            ms(self.cpu / self.rounds),
        );
    }
}
