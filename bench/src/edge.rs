//! Levada compared with Debian's nginx, HAProxy, h2o, Varnish and Traffic Server: what a request costs each, in the
//! same run, on the same core, before the same origin. `bench/README.md` says how to run and read it.
//!
//! ```text
//!   wrk or own clients (core 1) ──> one of the servers (core 0) ──> origin (core 1)
//! ```

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use case::{CASES, Case};
use origin::Origin;
use pattern::Pattern;
use peer::{PEERS, Site};
use server::Server;

mod case;
mod client;
mod counts;
mod origin;
mod pattern;
mod peer;
mod report;
mod server;
mod work;
mod wrk;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A run.
struct Bench {
    options: Options,
    /// Everything that is written goes here, and away at the end.
    dir: PathBuf,
    origin: Origin,
    pattern: Pattern,
    /// The servers' programs, in the order of [`PEERS`].
    programs: Vec<Option<PathBuf>>,
    certificate: PathBuf,
    key: PathBuf,
    stood: u32,
    failures: u32,
}

struct Options {
    rounds: u32,
    seconds: u64,
    connections: u32,
    /// Parts of the names of cases that are wanted; all cases without any.
    only: Vec<String>,
    /// Without the others.
    alone: bool,
    json: bool,
}

fn main() -> Result<()> {
    let options = options()?;
    server::leave_their_core()?;
    let dir = std::env::temp_dir().join(format!("levada-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let outcome = run(options, &dir);
    fs::remove_dir_all(&dir)?;
    match outcome? {
        0 => Ok(()),
        failures => Err(format!("{failures} measurements failed, see above").into()),
    }
}

fn options() -> Result<Options> {
    let mut options = Options {
        rounds: 5,
        seconds: 2,
        connections: 32,
        only: Vec::new(),
        alone: false,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--rounds" => options.rounds = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--connections" => options.connections = value()?.parse()?,
            "--only" => options.only.push(value()?),
            "--alone" => options.alone = true,
            "--json" => options.json = true,
            _ => return Err(format!("no option {word}; see bench/README.md").into()),
        }
    }
    let known = |wanted: &&String| !CASES.iter().any(|case| case.name.contains(wanted.as_str()));
    if let Some(unknown) = options.only.iter().find(known) {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("no case {unknown:?}; there are:\n{}", names.join("\n")).into());
    }
    Ok(options)
}

/// Measures the wanted cases one after another, and returns how many measurements failed.
fn run(options: Options, dir: &Path) -> Result<u32> {
    let wanted: Vec<&Case> = CASES.iter().filter(|case| options.want(case)).collect();
    let mut bench = Bench::new(options, dir)?;
    let json = bench.options.json;
    if !json {
        println!(
            "{} interleaved rounds of {} s, {} connections",
            bench.options.rounds, bench.options.seconds, bench.options.connections
        );
        report::print_columns();
    }
    let mut reports = Vec::new();
    for case in wanted {
        let report = bench.measure(case);
        if json {
            reports.push(report.json());
        } else {
            report.print();
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    }
    Ok(bench.failures)
}

impl Options {
    fn want(&self, case: &Case) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| case.name.contains(part))
    }
}

impl Bench {
    fn new(options: Options, dir: &Path) -> Result<Self> {
        let programs = PEERS
            .iter()
            .enumerate()
            .map(|(at, peer)| {
                if options.alone && at > 0 {
                    return None;
                }
                (peer.find)().inspect_err(|why| eprintln!("without {}: {why}", peer.name)).ok()
            })
            .collect();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
        fs::write(&certificate, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Self {
            options,
            dir: dir.to_owned(),
            origin: Origin::start()?,
            pattern: Pattern::default(),
            programs,
            certificate,
            key,
            stood: 0,
            failures: 0,
        })
    }

    /// Starts a server as a case has it, in a directory of its own.
    fn stand(&mut self, peer: usize, program: &Path, case: &Case) -> Result<Server> {
        self.stood += 1;
        let dir = self.dir.join(self.stood.to_string());
        fs::create_dir_all(&dir)?;
        if case.setting.cached && case.objects == 1 {
            let file = dir.join(format!("files{}", case.path(0)));
            fs::create_dir_all(dir.join(format!("files/{}", case.size)))?;
            fs::write(file, self.pattern.pieces(0..case.size).collect::<Vec<_>>().concat())?;
        }
        let site = Site {
            dir: &dir,
            port: server::free_port()?,
            origin: self.origin.port,
            setting: case.setting,
            certificate: &self.certificate,
            key: &self.key,
        };
        let command = (PEERS[peer].configure)(program, &site)?;
        Server::start(&command, site.port, dir.clone())
    }
}
