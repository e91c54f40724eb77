//! `levada plan` on the command line.

use std::{
    ffi::OsString,
    fs,
    io::{IsTerminal as _, Write as _},
    ops::ControlFlow,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, Parser};
use levada_cache::{
    disk_room::LEAST,
    eviction::{EVICTIONS, EvictionEntry, find_eviction},
};
use levada_client::command::{CommandStatus, output};
use levada_curves::CurveReport;
use levada_policy::{Deployment, build};
use levada_sim::Library;
use levada_types::{AdminAddress, ByteSize, parse_duration};

use crate::{
    aims::Aims,
    answer::answer,
    backtest::backtest,
    clean::{Cleaning, clean},
    cluster::Clusters,
    configuration,
    costs::{Costs, OriginTime, Prices, names, origin_time},
    evaluate::{Surroundings, scenario},
    expiry::Expiry,
    one_cache::{one_cache, sizes},
    page::page,
    peak::{Load, loads, peak},
    read::{Log, read},
    report::Plan,
    resume::{Finished, inputs},
    search::{Question, search},
    watch::{Progress, Watch},
};

/// Plans a cluster from access logs: how many nodes, how much memory and disk, which policy and eviction.
///
/// Reads the formats of docs/operate/traces.md, plain or compressed with gzip, xz or zstd. Simulates candidates at
/// the rate of the peak hour, and says which is the smallest that meets the aims. docs/simulate/plan.md describes it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// The logs; `-` is standard input.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The aims, such as `p99=200ms,origin=500Mbit/s,hit=0.9,cpu=0.8,disk=0.8`.
    #[arg(long, value_name = "AIM=VALUE,...")]
    slo: Option<Aims>,
    /// The aims hold with this many nodes less.
    #[arg(long, value_name = "NODES", default_value_t = 0, value_parser = lost, allow_negative_numbers = true)]
    survive: u16,
    /// Plans for this many times the rate of the log.
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = growth)]
    growth: f64,
    /// Requests per second at the peak, instead of the log's.
    #[arg(long, value_name = "RATE", value_parser = positive)]
    rate: Option<f64>,
    /// Numbers of nodes to try.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,3,4,6,8", value_parser = clap::value_parser!(u16).range(1..=1000))]
    nodes: Vec<u16>,
    /// Memory of a node to try. The default is five sizes, the largest of which holds all objects.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size)]
    memory: Vec<ByteSize>,
    /// Disk tier of a node to try; 0 is none.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "0", value_parser = disk)]
    disk: Vec<ByteSize>,
    /// Policies to try.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "adaptive,bounded_hash", value_parser = policy)]
    policy: Vec<String>,
    /// Evictions to try; the one with the highest curve is simulated.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "gdsf,s3fifo,lru", value_parser = eviction)]
    eviction: Vec<&'static EvictionEntry>,
    /// Leaves out the requests of clients that look like scanners.
    #[arg(long)]
    without_scans: bool,
    /// CPU and disk costs of a node.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Learns the CPU costs from the metrics of these running nodes.
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', conflicts_with = "costs")]
    node: Vec<AdminAddress>,
    /// Prices of nodes, memory, disk and traffic.
    #[arg(long, value_name = "FILE")]
    price: Option<PathBuf>,
    /// The time of the origin for an object, if the log does not say it.
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = time)]
    origin_latency: Duration,
    /// The time of a bit from a node to a client.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = time)]
    client_latency: Duration,
    /// Objects expire after this time; 0s if never. Without it, the log shows when copies have expired.
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Keeps the figures of finished candidates in this file, and takes those that are there.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Simulates less: two runs of 10,000 requests for each candidate.
    #[arg(long)]
    quick: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Also writes a page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also writes a configuration for each node, and a scenario, into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    config: Option<PathBuf>,
}

impl PlanArgs {
    /// Reads options as the command line has them, without the name of the program.
    ///
    /// # Errors
    /// A word that is no option, or a value that cannot be.
    pub fn from_words(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        #[derive(Parser)]
        #[command(name = "plan", no_binary_name = true)]
        struct Line {
            #[command(flatten)]
            args: PlanArgs,
        }
        Line::try_parse_from(words).map(|line| line.args)
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{text}` must be a number above 0, such as 250"))
}

fn growth(text: &str) -> Result<f64, String> {
    let number = positive(text.strip_suffix('x').unwrap_or(text)).ok();
    number
        .filter(|factor| (1.0..=100.0).contains(factor))
        .ok_or_else(|| format!("`{text}` must be from 1x to 100x, such as 2x"))
}

fn size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    (size.0 > 0).then_some(size).ok_or_else(|| "must be above 0, such as 1GiB".to_owned())
}

fn disk(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    let least = format!("a disk tier has at least {}; 0 is none", ByteSize(LEAST));
    (size.0 == 0 || size.0 >= LEAST).then_some(size).ok_or(least)
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn ttl(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    let valid = time.is_zero() || time >= Duration::from_secs(1);
    valid
        .then_some(time)
        .ok_or_else(|| "must be at least 1s; 0s if objects never expire".to_owned())
}

fn policy(text: &str) -> Result<String, String> {
    let built = build(text, &Default::default(), &Deployment::default());
    built
        .map(|_| text.to_owned())
        .map_err(|_| "there is no such policy; `levada policies` lists them".to_owned())
}

fn eviction(text: &str) -> Result<&'static EvictionEntry, String> {
    find_eviction(text).ok_or_else(|| {
        let known: Vec<_> = EVICTIONS.iter().map(|entry| entry.name).collect();
        format!("there are {}", known.join(", "))
    })
}

/// Plans, and prints the plan.
///
/// # Errors
/// As of [`plan`].
pub fn run(args: &PlanArgs) -> anyhow::Result<CommandStatus> {
    let is_terminal = std::io::stderr().is_terminal();
    let plan = watched_plan(args, &mut |news| {
        if let Some(text) = news.filter(|_| is_terminal) {
            eprint!("\r\u{1b}[K{text}");
        }
        ControlFlow::Continue(())
    })?;
    output::print(args.json, &plan, |out| write!(out, "{plan}"))?;
    Ok(CommandStatus::of(plan.answer.met))
}

/// Reads the logs, plans, and writes the page and the configurations that the options ask for.
///
/// # Errors
/// When a log cannot be read or nothing can be planned from it, or a file cannot be written.
pub fn plan(args: &PlanArgs) -> anyhow::Result<Plan> {
    watched_plan(args, &mut |_| ControlFlow::Continue(()))
}

/// The same; `watch` sees the progress, and may end the plan.
///
/// # Errors
/// As of [`plan`], and if `watch` ended it.
pub fn watched_plan<'a>(args: &PlanArgs, watch: &'a mut Watch<'a>) -> anyhow::Result<Plan> {
    let mut progress = Progress(watch);
    let mut log = read(&args.logs, args.without_scans, &mut |lines| {
        progress.say(&format!("read {lines} lines"))
    })?;
    let cleaning = clean(&mut log, args.without_scans)?;
    let (plan, loads, around) = of_log(args, log, cleaning, &mut progress)?;
    progress.say("")?;
    if let Some(file) = &args.html {
        fs::write(file, page(&plan)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(directory) = &args.config {
        let candidate = &plan.answer.row.candidate;
        let (load, _) = &loads[0];
        let mut scenario = scenario(candidate, load, &around, load.warm, load.measured());
        let file = args.logs.first().filter(|file| file.as_os_str() != "-");
        let file = file.map_or_else(|| Ok("access.log".into()), fs::canonicalize)?;
        scenario.workload.trace = file.display().to_string();
        scenario.topology.file = Some(configuration::NETWORK.to_owned());
        let clusters = Clusters { client_latency: around.client_latency };
        configuration::write(directory, candidate, &scenario, &clusters.network(candidate.nodes))?;
    }
    Ok(plan)
}

type Loads = Vec<(Load, CurveReport)>;

fn of_log(
    args: &PlanArgs,
    mut log: Log,
    cleaning: Cleaning,
    progress: &mut Progress<'_>,
) -> anyhow::Result<(Plan, Loads, Surroundings)> {
    let peak = peak(&log, args.rate)?;
    let (parts, most) = if args.quick { (2, 20_000) } else { (3, 150_000) };
    let (costs, costs_from) = costs(args, peak.mean_bytes)?;
    progress.say("explaining the log's hits")?;
    let first = args.eviction.first().context("give an eviction")?;
    let given = Expiry::given(&log, args.ttl);
    let (backtest, expiry) = backtest(&log, first, cleaning.object_bytes, given);
    let requested = peak.rate * args.growth * peak.mean_bytes * 8.0;
    let logged = origin_time(&mut log.misses, requested);
    let around = Surroundings {
        costs,
        mean_bytes: peak.mean_bytes,
        origin: logged.unwrap_or(OriginTime {
            latency: args.origin_latency,
            rate: None,
            is_shared: false,
        }),
        expiry,
        client_latency: args.client_latency,
        passed: log.passed_bytes as f64 * 8e-6 / log.requests.len() as f64,
        parts,
    };
    progress.say("computing curves")?;
    let disk: Vec<u64> = args.disk.iter().map(|size| size.0).collect();
    // A disk holds what was requested long ago.
    let filling = most * if disk.iter().any(|size| *size > 0) { 40 } else { 10 };
    let loads = loads(&log, &peak, args.growth, most, filling).into_iter().map(|load| {
        let curves = curves(&load, &args.eviction)?;
        Ok((load, curves))
    });
    let loads: Loads = loads.collect::<anyhow::Result<_>>()?;
    // Candidates are simulated with its room free.
    drop(log);
    let clusters = Clusters { client_latency: around.client_latency };
    let mut library = Library::new(Box::new(clusters));
    loads.iter().for_each(|(load, _)| library.keep(load.model, load.trace.clone()));
    let aims = aims(args.slo, loads[0].1.unlimited.hit_ratio * expiry.best(&loads[0].0));
    let memory = match args.memory.is_empty() {
        true => default_memory(cleaning.object_bytes),
        false => args.memory.iter().map(|size| size.0).collect(),
    };
    let nodes: Vec<usize> = args.nodes.iter().map(|nodes| usize::from(*nodes)).collect();
    let question = Question {
        nodes: &nodes,
        memory: &memory,
        disk: &disk,
        policies: &args.policy,
        aims,
        survive: args.survive.into(),
        prices: args.price.as_deref().map(Prices::read).transpose()?,
    };
    let mut finished = Finished::open(args.resume.as_deref(), &inputs(&loads, &around))?;
    let (rows, excluded) =
        search(&question, &loads, &mut library, &around, &mut finished, progress)?;
    let Some(answer) = answer(&rows, excluded) else {
        bail!(
            "there is no candidate; give --nodes and --memory, and a --disk that is no smaller than --memory"
        )
    };
    let plan = Plan {
        backtest,
        log: cleaning,
        peak,
        growth: args.growth,
        aims,
        costs,
        costs_from,
        expiry,
        origin_latency: around.origin.latency.as_secs_f64(),
        origin_rate: around.origin.rate,
        origin_latency_from: match logged {
            Some(_) => "by the log's misses".to_owned(),
            None => "--origin-latency; the log does not say it".to_owned(),
        },
        curves: loads[0].1.curves.clone(),
        rows,
        excluded,
        answer,
    };
    Ok((plan, loads, around))
}

fn curves(load: &Load, evictions: &[&'static EvictionEntry]) -> anyhow::Result<CurveReport> {
    let objects: Vec<_> = (load.trace.objects().iter())
        .map(|object| (levada_types::Key::of(object.name.as_bytes()), object.size))
        .collect();
    let requests = load.trace.requests().iter().map(|id| objects[*id as usize]);
    let all = objects.iter().map(|(_, size)| size).sum();
    one_cache(requests, load.warm, evictions.to_vec(), sizes(all))
}

/// The aims as given; the hit ratio that is nearly the best, if there are none.
fn aims(given: Option<Aims>, best: f64) -> Aims {
    let mut aims = given.unwrap_or_default();
    if aims.p99.is_none() && aims.origin.is_none() && aims.hit.is_none() {
        aims.hit = Some(best * 0.95);
    }
    aims.cpu = aims.cpu.or(Some(0.8));
    aims.disk = aims.disk.or(Some(0.8));
    aims
}

/// Powers of two, each a quarter of the next; the largest holds all objects.
fn default_memory(all: u64) -> Vec<u64> {
    let most = all.max(1 << 20).checked_next_power_of_two().unwrap_or(1 << 62);
    let mut sizes: Vec<u64> = (0..5).map(|step| (most >> (2 * step)).max(1 << 20)).collect();
    sizes.reverse();
    sizes.dedup();
    sizes
}

fn costs(args: &PlanArgs, mean: f64) -> anyhow::Result<(Costs, String)> {
    Ok(match (&args.node[..], &args.costs) {
        ([], Some(file)) => (Costs::read(file)?, format!("from {}", file.display())),
        ([], None) => (Costs::default(), "a default; give --node or --costs".to_owned()),
        (nodes, _) => (Costs::of_nodes(nodes, mean)?, format!("from {}", names(nodes))),
    })
}

fn lost(text: &str) -> Result<u16, &'static str> {
    let number = text.parse().ok().filter(|nodes| *nodes < 1000);
    number.ok_or("must be a number of nodes below 1000, such as 1; 0 plans for no loss")
}

const EXAMPLES: &str = "\
Examples:
  levada plan access.log
  levada plan access.log.*.gz --slo p99=200ms,origin=500Mbit/s,hit=0.9 --survive 1 --growth 2x
  levada plan access.log --nodes 2,4,8,16 --policy adaptive,fdr,maglev --resume plan.results
  levada plan access.log --nodes 2,4 --memory 1GiB,4GiB --disk 0,100GiB --html plan.html --config cluster

Exit codes:
  0  a candidate meets the aims
  1  no candidate meets them; the nearest is shown
  2  a log cannot be read, or nothing can be planned from it";
