//! The cost of a connection that is handed to a back-end for its front-end, compared with front-ends that
//! forward its bytes: ours by splice and by copying, HAProxy with splice, and nginx. `bench/README.md`
//! says how to run and read it.
//!
//! ```text
//!   wrk (core 1) ── router ──┬── front-ends (core 0), a port each, one with load at a time
//!                            └── back-end: nginx, handoff-backend (core 1)
//! ```

use std::{env, error::Error, fs, path::Path, process::ExitCode};

use levada_net::lab::possible;

use self::{
    fronts::{ALONE, FRONTS, HAPROXY},
    used::BpfStats,
    world::World,
};

mod fronts;
mod used;
mod world;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One kind of load.
struct Case {
    name: &'static str,
    bytes: usize,
    /// Whether each request has a connection of its own.
    close: bool,
    /// The highest cost of the front-end, as a part of that of the splicing proxy.
    front: Option<f64>,
    /// The same of the front-end, the back-end and the server.
    whole: Option<f64>,
    /// The highest cost of a back-end, in those of the server alone.
    back: Option<f64>,
}

const fn fresh(name: &'static str, bytes: usize) -> Case {
    Case { name, bytes, close: true, front: None, whole: Some(1.0), back: None }
}

const fn kept(name: &'static str, bytes: usize) -> Case {
    Case { close: false, whole: None, ..fresh(name, bytes) }
}

const CASES: [Case; 8] = [
    Case {
        front: Some(0.5),
        whole: None,
        back: Some(3.0),
        ..fresh("1 KB, a connection each", 1000)
    },
    fresh("64 KB, a connection each", 65_536),
    Case { front: Some(0.2), ..fresh("100 KB, a connection each", 100_000) },
    Case { front: Some(0.05), ..fresh("1 MB, a connection each", 1_000_000) },
    kept("64 KB, kept alive", 65_536),
    kept("256 KB, kept alive", 262_144),
    Case { front: Some(0.05), ..kept("1 MB, kept alive", 1_000_000) },
    kept("50 MB, kept alive", 50_000_000),
];

/// The highest total cost of a connection that is handed off, in microseconds.
const CONNECTION: f64 = 60.0;

const HELP: &str = "\
handoff [--rounds N] [--seconds S] [--only TEXT]... [--front TEXT]...

  --rounds N    rounds of each load, by turns (3)
  --seconds S   length of a round (2)
  --only TEXT   cases whose name contains this; may be repeated
  --front TEXT  front-ends whose name contains this; may be repeated

On Linux as root, with nginx, HAProxy, wrk, curl and iproute2. LEVADA names the binary that is
measured; without, it is the one beside this. LEVADA_BACK names another for back-ends.";

struct Options {
    rounds: usize,
    seconds: u64,
    only: Vec<String>,
    fronts: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let Some(options) = options()? else {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    possible()?;
    let directory = env::temp_dir().join(format!("levada-handoff-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let outcome = run(&options, &directory);
    fs::remove_dir_all(&directory)?;
    Ok(if outcome? { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures what is wanted, and says whether a target was missed.
fn run(options: &Options, directory: &Path) -> Result<bool> {
    let _stats = BpfStats::on();
    let mut missed = false;
    let has = |wanted: &[String], name: &str| {
        wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
    };
    let fronts: Vec<usize> =
        (0..FRONTS.len()).filter(|at| has(&options.fronts, FRONTS[*at].name)).collect();
    let world = World::new(directory, &fronts)?;
    for case in CASES.iter().filter(|case| has(&options.only, case.name)) {
        let mut costs: [Vec<Cost>; FRONTS.len()] = Default::default();
        for round in 0..options.rounds {
            for turn in 0..fronts.len() {
                let front = fronts[(round + turn) % fronts.len()];
                costs[front].push(world.load(front, case, options.seconds)?);
            }
        }
        missed |= report(case, &costs);
    }
    Ok(missed)
}

/// Reads the command line; `None` when it asks for help.
fn options() -> Result<Option<Options>> {
    let mut options = Options { rounds: 3, seconds: 2, only: Vec::new(), fronts: Vec::new() };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--rounds" => options.rounds = number(&word, &value()?)?,
            "--seconds" => options.seconds = number(&word, &value()?)?,
            "--only" => options.only.push(value()?),
            "--front" => options.fronts.push(value()?),
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("no option {word}; --help lists them").into()),
        }
    }
    known("case", &options.only, &CASES.each_ref().map(|case| case.name))?;
    known("front-end", &options.fronts, &FRONTS.each_ref().map(|front| front.name))?;
    Ok(Some(options))
}

fn number<N: std::str::FromStr + Default + PartialEq>(option: &str, value: &str) -> Result<N> {
    let number = value.parse().ok().filter(|number| *number != N::default());
    Ok(number.ok_or_else(|| format!("{option} {value}: not a whole number above 0"))?)
}

/// Whether each of the parts is of some name.
fn known(what: &str, parts: &[String], names: &[&str]) -> Result<()> {
    match parts.iter().find(|part| !names.iter().any(|name| name.contains(part.as_str()))) {
        Some(part) => Err(format!("no {what} {part:?}; there are: {}", names.join("; ")).into()),
        None => Ok(()),
    }
}

/// Of one round: microseconds of the front-end per request.
#[derive(Clone, Copy)]
struct Cost {
    /// The process's, in user space and in its system calls.
    process: f64,
    /// The steering program's, which runs wherever a packet comes in.
    steering: f64,
    /// The back-end's that takes connections over, and the server's.
    back: f64,
    server: f64,
    /// How many of the connections went to the back-end.
    handed: f64,
    per_second: f64,
    /// How often the process fell asleep, per request.
    sleeps: f64,
    /// The part of the other core that clients and back-ends used.
    others: f64,
}

impl Cost {
    fn all(&self) -> f64 {
        self.process + self.steering
    }

    /// Of all machines.
    fn whole(&self) -> f64 {
        self.all() + self.back + self.server
    }
}

fn report(case: &Case, costs: &[Vec<Cost>; FRONTS.len()]) -> bool {
    println!("\n{}", case.name);
    println!(
        "{:20} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "",
        "req/s",
        "us/req",
        "steering",
        "us/MB",
        "back",
        "server",
        "whole",
        "sleeps",
        "others",
        "handed"
    );
    for (front, rounds) in FRONTS.iter().zip(costs).filter(|(_, rounds)| !rounds.is_empty()) {
        let [us, back, server, whole] =
            [Cost::all, |cost: &Cost| cost.back, |cost: &Cost| cost.server, Cost::whole]
                .map(|part: fn(&Cost) -> f64| median(rounds.iter().map(part).collect())[1]);
        let [per_second, steering, sleeps, others, handed] = [
            |cost: &Cost| cost.per_second,
            |cost: &Cost| cost.steering,
            |cost: &Cost| cost.sleeps,
            |cost: &Cost| cost.others,
            |cost: &Cost| cost.handed,
        ]
        .map(|part: fn(&Cost) -> f64| median(rounds.iter().map(part).collect())[1]);
        println!(
            "{:20} {per_second:>8.0} {us:>8.1} {steering:>9.2} {:>9.1} {back:>8.1} {server:>8.1} {whole:>8.1} \
             {sleeps:>8.2} {:>7.1}% {:>7.1}%",
            front.name,
            us / (case.bytes as f64 / 1e6),
            others * 100.0,
            handed * 100.0
        );
    }
    let mut missed = false;
    let mut verdict = |what: &str, [least, is, greatest]: [f64; 3], most: Option<f64>| {
        let target = most.map_or(String::new(), |most| {
            missed |= is > most;
            format!(", at most {most}: {}", if is <= most { "met" } else { "MISSED" })
        });
        println!("{what}: {is:.3} ({least:.3} to {greatest:.3}){target}");
    };
    if case.close && !costs[0].is_empty() {
        let all = median(costs[0].iter().map(Cost::all).collect());
        verdict("us of the front-end per connection that is handed off", all, Some(CONNECTION));
    }
    // Both sides of a comparison ran in the same round.
    let ratios = |ours: usize, other: usize, part: fn(&Cost) -> f64, of: fn(&Cost) -> f64| {
        let pairs = costs[ours].iter().zip(&costs[other]);
        let ratios: Vec<f64> = pairs.map(|(ours, other)| part(ours) / of(other)).collect();
        (!ratios.is_empty()).then(|| median(ratios))
    };
    for (at, front) in FRONTS.iter().enumerate().take(ALONE).filter(|(at, _)| *at != HAPROXY) {
        let is_handoff = at == 0 || front.start.is_none();
        if let Some(ratio) = ratios(at, HAPROXY, Cost::all, Cost::all) {
            let most = case.front.filter(|_| is_handoff);
            verdict(&format!("{}: the front-end, part of HAProxy's", front.name), ratio, most);
        }
        if let Some(ratio) = ratios(at, HAPROXY, Cost::whole, Cost::whole) {
            let most = case.whole.filter(|_| is_handoff);
            verdict(&format!("{}: the whole, part of HAProxy's", front.name), ratio, most);
        }
        if let Some(ratio) =
            ratios(at, ALONE, |cost| cost.back, |cost| cost.server).filter(|_| is_handoff)
        {
            verdict(
                &format!("{}: the back-end, times the server alone", front.name),
                ratio,
                case.back,
            );
        }
    }
    missed
}

/// The least, the median and the greatest.
fn median(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}
