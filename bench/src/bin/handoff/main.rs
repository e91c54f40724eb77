//! The cost of a connection that is handed to a back-end for its front-end, beside front-ends that
//! forward its bytes: ours by splice and by copying, HAProxy with splice, and nginx. `bench/README.md`
//! says how to run and read it.
//!
//! ```text
//!   wrk (core 1) ── router ──┬── front-ends (core 0), a port each, one with load at a time
//!                            └── back-end: nginx, handoff-backend (core 1)
//! ```

use std::{env, error::Error, fs, path::Path, process::ExitCode};

use levada_net::lab::possible;

use self::{fronts::FRONTS, used::BpfStats, world::World};

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
    /// The highest ratio of the cost to that of the splicing proxy.
    target: Option<f64>,
}

const CASES: [Case; 7] = [
    Case { name: "1 KB, a connection each", bytes: 1000, close: true, target: None },
    Case { name: "100 KB, a connection each", bytes: 100_000, close: true, target: None },
    Case { name: "1 MB, a connection each", bytes: 1_000_000, close: true, target: Some(0.05) },
    Case { name: "64 KB, kept alive", bytes: 65_536, close: false, target: None },
    Case { name: "256 KB, kept alive", bytes: 262_144, close: false, target: None },
    Case { name: "1 MB, kept alive", bytes: 1_000_000, close: false, target: Some(0.05) },
    Case { name: "50 MB, kept alive", bytes: 50_000_000, close: false, target: None },
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
measured; without, it is the one beside this.";

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
        missed |= report(case, &mut costs);
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
}

fn report(case: &Case, costs: &mut [Vec<Cost>; FRONTS.len()]) -> bool {
    println!("\n{}", case.name);
    println!(
        "{:20} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "req/s", "us/req", "steering", "us/MB", "sleeps", "others", "handed"
    );
    let mut medians = [None; FRONTS.len()];
    for (at, rounds) in costs.iter_mut().enumerate() {
        rounds.sort_by(|a, b| a.all().total_cmp(&b.all()));
        let Some(median) = rounds.get(rounds.len() / 2) else { continue };
        medians[at] = Some(median.all());
        println!(
            "{:20} {:>10.0} {:>10.1} {:>10.2} {:>10.1} {:>10.2} {:>9.1}% {:>9.1}%",
            FRONTS[at].name,
            median.per_second,
            median.all(),
            median.steering,
            median.all() / (case.bytes as f64 / 1e6),
            median.sleeps,
            median.others * 100.0,
            median.handed * 100.0
        );
    }
    let [handoff, spliced, others @ ..] = medians;
    for (name, ours) in [(FRONTS[0].name, handoff), (FRONTS[1].name, spliced)] {
        let Some(ours) = ours else { continue };
        let beside = FRONTS[2..].iter().zip(&others).filter_map(|(front, cost)| {
            cost.map(|cost| format!("{:.3} of {}", ours / cost, front.name))
        });
        println!("{name}: {}", beside.collect::<Vec<_>>().join(", "));
    }
    let verdict = |what: &str, is: f64, most: f64| {
        let met = is <= most;
        println!("{what}: {is:.3}, at most {most}: {}", if met { "met" } else { "MISSED" });
        !met
    };
    let mut missed = false;
    if let Some(handoff) = handoff.filter(|_| case.close) {
        missed |= verdict("us per connection that is handed off", handoff, CONNECTION);
    }
    if let (Some(most), Some(handoff), Some(splicing)) = (case.target, handoff, others[1]) {
        missed |= verdict("per MB, part of HAProxy's", handoff / splicing, most);
    }
    missed
}
