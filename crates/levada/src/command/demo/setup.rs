//! From the options to a demo that can run: this module checks all options and chooses defaults,
//! before any process is started.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use levada_config::PolicyChoice;
use levada_policy::{Deployment, POLICIES, ParameterValue, PolicyEntry};
use levada_types::document::did_you_mean;
use levada_types::{format_duration, parse_duration, parse_rate};

use super::{
    args::DemoArgs,
    catalog::Catalog,
    client::OBJECT_TIMEOUT,
    plan::{Arrival, Phase, arrivals, stream},
};

/// A demo that can run.
pub(super) struct Setup {
    pub(super) nodes: usize,
    pub(super) policy: PolicyChoice,
    pub(super) catalog: Arc<Catalog>,
    /// Requests per second of the trace.
    pub(super) rate: f64,
    /// Objects of the flash crowd.
    pub(super) hot: Vec<u32>,
    /// Requests per second of the flash crowd.
    pub(super) crowd_rate: f64,
    pub(super) duration: Duration,
    /// Bytes per second of a node's emulated link.
    pub(super) link: u64,
    /// Bytes of a node's cache.
    pub(super) cache: u64,
    /// Objects and bytes that the load touches.
    pub(super) working_set: (u64, u64),
    pub(super) seed: u32,
    pub(super) hold: bool,
    pub(super) json: bool,
    /// The part of the usual load that is sent.
    pub(super) pace: f64,
    /// Answers per second that this machine gave before the demo.
    pub(super) answers_per_second: Option<f64>,
    /// Whether the rate was chosen, and is kept on a busy machine.
    pub(super) keeps_rate: bool,
    /// The command line of the same demo.
    pub(super) options: String,
    /// Sentences about unexpected choices.
    pub(super) notes: Vec<String>,
}

/// A part of the demo, by its requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// All phases.
    Story,
    /// One more crowd, which comes at this time.
    Crowd(Duration),
    /// A minute of the trace, from this time on.
    Minute(Duration),
}

impl Setup {
    /// Checks the options and chooses the others.
    ///
    /// # Errors
    /// The invalid option and its remedy.
    pub(super) fn new(args: &DemoArgs) -> anyhow::Result<Self> {
        Self::paced(args, 1.0, None)
    }

    /// A demo with this part of the usual load: rates and links that were chosen are kept. `catalog` is that
    /// of the trace file, if it has been read.
    fn paced(args: &DemoArgs, pace: f64, catalog: Option<Arc<Catalog>>) -> anyhow::Result<Self> {
        ensure!(
            (2..=64).contains(&args.nodes),
            "--nodes {}: the demo needs 2 nodes, so that one can die, and takes 64 at most",
            args.nodes
        );
        ensure!(
            (1..=100).contains(&args.hot),
            "--hot {}: a crowd meets at 1 object, at 100 at most",
            args.hot
        );
        let duration = duration(&args.duration)?;
        let link = link(args.link.as_deref(), pace)?;
        let mut notes = Vec::new();
        let policy = policy(args, duration, &mut notes)?;
        let (rate, catalog) = load(args, (duration, link, pace), catalog, &mut notes)?;
        let requests = (rate * duration.as_secs_f64()) as usize;
        let working_set = catalog.working_set(requests);
        let hot = catalog.hot(args.hot, HOT_SIZE);
        let crowd_rate = crowd_rate(args, &catalog, &hot, link, &mut notes)?;
        Ok(Self {
            nodes: args.nodes,
            policy,
            rate,
            crowd_rate,
            hot,
            duration,
            link,
            cache: cache(working_set, args.nodes),
            working_set,
            seed: args.seed,
            hold: args.hold,
            json: args.json,
            pace,
            answers_per_second: None,
            keeps_rate: args.rate.is_some(),
            options: options(args, (rate, link, pace)),
            notes,
            catalog,
        })
    }

    /// The demo that a machine shows which gives `answers` per second. It is this one if they are many more
    /// than it asks for, and one with less load otherwise.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub(super) fn within(mut self, answers: f64, args: &DemoArgs) -> anyhow::Result<Self> {
        let (peak, least) = (self.rate + self.crowd_rate, answers / HEADROOM);
        self.answers_per_second = Some(answers);
        if peak <= least {
            return Ok(self);
        }
        let pace = (least / peak).max(LEAST_PACE);
        let known = args.trace.is_some().then(|| self.catalog.clone());
        let mut slower = Self::paced(args, pace, known)?;
        slower.answers_per_second = Some(answers);
        let busy =
            format!("the machine is busy or slow: its nodes give {answers:.0} answers/s now");
        let is_kept = slower.rate >= self.rate && slower.link >= self.link;
        slower.notes.push(match is_kept {
            true => format!(
                "{busy}, and the demo asks for {peak:.0}. --rate and --link are kept: latencies and \
                 failures show the machine"
            ),
            false => format!(
                "{busy}, so that the load is lowered to {:.0} %: {:.0} requests/s of the trace, {:.0} of \
                 the crowd, links of {:.1} Mbit/s",
                pace * 100.0,
                slower.rate,
                slower.crowd_rate,
                slower.link as f64 * 8.0 / 1e6
            ),
        });
        if least < LEAST_PACE * peak {
            slower.notes.push(TOO_BUSY.to_owned());
        }
        Ok(slower)
    }

    /// A demo with half of this load, if the answers of a rehearsal took so long that more would show the machine
    /// and not the nodes.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub(super) fn slower(&self, median: Duration, args: &DemoArgs) -> anyhow::Result<Option<Self>> {
        if median <= SLOW || self.pace <= LEAST_PACE {
            return Ok(None);
        }
        let pace = (self.pace / 2.0).max(LEAST_PACE);
        let known = args.trace.is_some().then(|| self.catalog.clone());
        let mut slower = Self::paced(args, pace, known)?;
        slower.answers_per_second = self.answers_per_second;
        slower.notes.push(format!(
            "the machine is busy or slow: half of the answers took {:.0} ms and more in a rehearsal \
             of {:.0} requests/s, so that the trace begins at {:.0}",
            median.as_secs_f64() * 1e3,
            self.rate,
            slower.rate
        ));
        if pace <= LEAST_PACE {
            slower.notes.push(TOO_BUSY.to_owned());
        }
        Ok(Some(slower))
    }

    /// A policy of this name, with the parameters that suit the demo.
    ///
    /// # Errors
    /// If there is none that runs on an edge.
    pub(super) fn policy_named(&self, name: &str) -> anyhow::Result<PolicyChoice> {
        let entry = levada_policy::find(name).filter(|entry| entry.runs_on_an_edge());
        let entry = entry.with_context(|| format!("there is no policy `{name}` for an edge"))?;
        let mut parameters = BTreeMap::new();
        hasten(entry, self.duration, &mut parameters, &mut Vec::new());
        Ok(PolicyChoice { name: entry.name.to_owned(), parameters })
    }

    /// The requests of a part of the demo.
    pub(super) fn arrivals(&self, part: Part) -> Box<dyn Iterator<Item = Arrival> + Send + '_> {
        let (trace, seed) = (&self.catalog.requests[..], u64::from(self.seed));
        match part {
            Part::Story => {
                let crowd = (&self.hot[..], self.crowd_rate);
                Box::new(arrivals((trace, self.rate), crowd, self.duration, seed))
            }
            Part::Crowd(from) => {
                let lasts = Phase::Crowd.end(self.duration) - Phase::Before.end(self.duration);
                let times = (from, from + lasts.min(LONGEST_CROWD));
                Box::new(stream(self.hot.iter().cycle(), self.crowd_rate, times, seed))
            }
            Part::Minute(from) => {
                let begin = from.as_secs_f64() * self.rate;
                let requests = trace.iter().cycle().skip(begin as usize % trace.len());
                Box::new(stream(requests, self.rate, (from, from + MINUTE), seed))
            }
        }
    }

    /// Time in which a restarted node reaches its full share.
    pub(super) fn slow_start(&self) -> Duration {
        self.duration / 10
    }

    /// Time for answers after the last request: a shared link takes long for the largest object.
    pub(super) fn last_timeout(&self) -> Duration {
        let largest = self.catalog.objects.iter().map(|object| object.size).max().unwrap_or(0);
        OBJECT_TIMEOUT + Duration::from_secs(largest * 4 / self.link).min(LONGEST_TRANSFER)
    }

    /// The first object of the crowd, which the demo follows.
    pub(super) fn hottest(&self) -> u32 {
        self.hot[0]
    }
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let duration = parse_duration(text).with_context(|| format!("--duration {text}"))?;
    ensure!(
        (SHORTEST..=LONGEST).contains(&duration),
        "--duration {text}: from {} to {}; in less, a dead node is not noticed before it is back",
        format_duration(SHORTEST),
        format_duration(LONGEST)
    );
    Ok(duration)
}

fn link(text: Option<&str>, pace: f64) -> anyhow::Result<u64> {
    let Some(text) = text else { return Ok((USUAL_LINK * pace).max(SLOWEST_LINK as f64) as u64) };
    match parse_rate(text) {
        Ok(bytes) if bytes >= SLOWEST_LINK => Ok(bytes),
        _ => bail!("--link {text}: write a rate of at least 1Mbit/s, such as 40Mbit/s or 5MiB/s"),
    }
}

/// The policy with its parameters, checked as in a node.
fn policy(
    args: &DemoArgs,
    duration: Duration,
    notes: &mut Vec<String>,
) -> anyhow::Result<PolicyChoice> {
    let name = &args.policy;
    let all = || POLICIES.iter().flat_map(|file| file.iter());
    let Some(entry) = levada_policy::find(name) else {
        let help = did_you_mean(name, all().filter(|e| e.runs_on_an_edge()).map(|e| e.name))
            .unwrap_or_else(|| "`levada policies` lists them".to_owned());
        bail!("--policy {name}: there is no such policy; {help}");
    };
    ensure!(
        entry.runs_on_an_edge(),
        "--policy {name}: it needs what only the simulator knows; choose one that runs on an edge: \
         see `levada policies`"
    );
    let mut parameters = BTreeMap::new();
    for setting in &args.set {
        let (key, value) = setting
            .split_once('=')
            .with_context(|| format!("--set {setting}: write it as KEY=VALUE"))?;
        parameters.insert(key.to_owned(), value_of(value));
    }
    hasten(entry, duration, &mut parameters, notes);
    levada_policy::build(entry.name, &parameters, &Deployment::default()).map_err(|error| {
        anyhow::anyhow!("--set: {error}; `levada policies {name}` describes them")
    })?;
    Ok(PolicyChoice { name: entry.name.to_owned(), parameters })
}

/// A demo lasts less than a minute, and sets that grew must shrink within it.
fn hasten(
    entry: &PolicyEntry,
    duration: Duration,
    parameters: &mut BTreeMap<String, ParameterValue>,
    notes: &mut Vec<String>,
) {
    let Some(parameter) = entry.parameters.iter().find(|p| p.name == SHRINK_AFTER) else { return };
    if parameters.contains_key(SHRINK_AFTER) {
        return;
    }
    // Rounds to tenths of a second.
    let sooner = duration.mul_f64(SHRINK_PART).as_millis() as u64 / 100 * 100;
    let sooner = format!("{}", format_duration(Duration::from_millis(sooner)));
    notes.push(format!(
        "{SHRINK_AFTER} is {sooner} instead of {}, so that sets shrink within the demo (--set \
         {SHRINK_AFTER}=... chooses)",
        parameter.default
    ));
    parameters.insert(SHRINK_AFTER.to_owned(), ParameterValue::Text(sooner));
}

fn value_of(text: &str) -> ParameterValue {
    match (text.parse(), text.parse(), text.parse()) {
        (Ok(whole), _, _) => ParameterValue::Integer(whole),
        (_, Ok(number), _) => ParameterValue::Number(number),
        (_, _, Ok(switch)) => ParameterValue::Switch(switch),
        _ => ParameterValue::Text(text.to_owned()),
    }
}

/// The requests and their rate.
fn load(
    args: &DemoArgs,
    (duration, link, pace): (Duration, u64, f64),
    known: Option<Arc<Catalog>>,
    notes: &mut Vec<String>,
) -> anyhow::Result<(f64, Arc<Catalog>)> {
    if let Some(rate) = args.rate {
        ensure!(
            rate.is_finite() && (LEAST_RATE..=MOST_RATE).contains(&rate),
            "--rate {rate}: from {LEAST_RATE} to {MOST_RATE} requests per second"
        );
    }
    let comfortable = |mean: f64| {
        let of_links = BASE_LOAD * (args.nodes as u64 * link) as f64 / mean.max(1.0);
        of_links.clamp(LEAST_RATE, (USUAL_RATE * pace).max(LEAST_RATE)).round()
    };
    let Some(path) = &args.trace else {
        let rate = args.rate.unwrap_or_else(|| comfortable(levada_trace::RICE.mean_transfer));
        let requests = (rate * duration.as_secs_f64()) as u64;
        return Ok((rate, Catalog::generate(requests.max(1), args.seed.into()).into()));
    };
    let catalog = known.map_or_else(|| Catalog::read(path).map(Arc::new), Ok)?;
    let rate = args.rate.unwrap_or_else(|| {
        let rate = comfortable(catalog.mean_transfer());
        if rate < (USUAL_RATE * pace).round() {
            notes.push(format!(
                "{rate} requests/s, because the average request of this trace is {:.0} kB and fills \
                 the links (--rate chooses)",
                catalog.mean_transfer() / 1e3
            ));
        }
        rate
    });
    Ok((rate, catalog))
}

/// Requests per second of the crowd, from a multiple of a node's link capacity.
fn crowd_rate(
    args: &DemoArgs,
    catalog: &Catalog,
    hot: &[u32],
    link: u64,
    notes: &mut Vec<String>,
) -> anyhow::Result<f64> {
    let links = args.crowd.unwrap_or_else(|| USUAL_CROWD.min(args.nodes as f64 / 2.0));
    ensure!(
        (0.0..=64.0).contains(&links),
        "--crowd {links}: from 0 to 64 times the link of a node"
    );
    let bytes: u64 = hot.iter().map(|id| catalog.object(*id).size).sum();
    let mean = (bytes as f64 / hot.len() as f64).max(1.0);
    let rate = links * link as f64 / mean;
    if rate > MOST_CROWD {
        notes.push(format!(
            "the crowd is {MOST_CROWD} requests/s, {:.1} links instead of {links}: the hot objects \
             are as small as {mean:.0} B",
            MOST_CROWD * mean / link as f64
        ));
    }
    Ok(rate.min(MOST_CROWD))
}

/// Size of a node's cache: too small for all requested objects, while all nodes together have room
/// for each object once. Each object counts with the node's bookkeeping.
fn cache((objects, bytes): (u64, u64), nodes: usize) -> u64 {
    let whole = bytes + objects * OBJECT_OVERHEAD;
    (whole * 5 / 4 / nodes as u64).max(1 << 20)
}

/// The options of the same load. A load that was lowered is one of a chosen rate.
fn options(args: &DemoArgs, (rate, link, pace): (f64, u64, f64)) -> String {
    let mut words = vec![format!("--nodes {} --seed {}", args.nodes, args.seed)];
    words.push(format!("--duration {}", args.duration));
    let is_lowered = pace < 1.0;
    let chosen_link = || args.link.clone().unwrap_or_else(|| format!("{link}B/s"));
    words.extend((is_lowered || args.link.is_some()).then(|| format!("--link {}", chosen_link())));
    words.extend((is_lowered || args.rate.is_some()).then(|| format!("--rate {rate}")));
    words.extend(args.crowd.map(|crowd| format!("--crowd {crowd}")));
    words.extend((args.hot != 1).then(|| format!("--hot {}", args.hot)));
    words.extend(args.trace.as_ref().map(|path| format!("--trace {}", path.display())));
    words.join(" ")
}

/// The phase with a dead node must last longer than the probes that detect it.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(3600);
/// A demo that has ended waits no longer for its largest object.
const LONGEST_TRANSFER: Duration = Duration::from_secs(60);
/// A crowd that somebody orders lasts no longer.
const LONGEST_CROWD: Duration = Duration::from_secs(20);
/// The trace goes on by minutes when the demo is held.
pub(super) const MINUTE: Duration = Duration::from_secs(60);
const SLOWEST_LINK: u64 = 125_000;
/// 40 Mbit/s.
const USUAL_LINK: f64 = 5e6;

/// Requests per second that two cores carry together with four nodes, an origin and the clients.
const USUAL_RATE: f64 = 300.0;
const LEAST_RATE: f64 = 1.0;
const MOST_RATE: f64 = 20_000.0;
const MOST_CROWD: f64 = 1_500.0;

/// How many times the answers of the demo a machine gives that shows the nodes and not itself.
const HEADROOM: f64 = 2.0;
/// The median latency of a rehearsal that is too long: half of what the warm-up may show.
const SLOW: Duration = Duration::from_millis(25);
/// The least part of the usual load: with less, a phase has too few requests to show anything.
const LEAST_PACE: f64 = 0.05;
const TOO_BUSY: &str = "the machine is too busy to show what the demo claims: other programs have the \
                        processor, and latencies and failures below are theirs. End them, and run it again";

/// The part of all link capacities that the trace alone takes.
const BASE_LOAD: f64 = 0.27;
/// The crowd in link capacities: more than one node has, less than three.
const USUAL_CROWD: f64 = 2.0;
/// The size of a hot object: large enough that a link is full before the processor is, small enough
/// that no single transfer matters.
const HOT_SIZE: u64 = 32 << 10;

const SHRINK_AFTER: &str = "shrink_after";
const SHRINK_PART: f64 = 0.075;
const OBJECT_OVERHEAD: u64 = 1_500;

/// The name of a node.
pub(super) fn node_name(index: usize) -> String {
    format!("n{}", index + 1)
}

/// The end of each phase, for listings.
pub(super) fn schedule(whole: Duration) -> String {
    let mut begin = Duration::ZERO;
    let part = |phase: &Phase| {
        let end = phase.end(whole);
        let text = format!("{} {:.0} s", phase.as_str(), (end - begin).as_secs_f64());
        begin = end;
        text
    };
    Phase::ALL.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DemoArgs,
    }

    /// The demo of these options on a machine that gives so many answers per second.
    fn within(answers: f64, options: &str) -> Setup {
        let words = ["demo"].into_iter().chain(options.split_whitespace());
        let Line { args } = Line::parse_from(words);
        Setup::new(&args).unwrap().within(answers, &args).unwrap()
    }

    #[test]
    fn fast_machine_gets_the_whole_load() {
        let usual = within(1e6, "");
        assert_eq!((usual.pace, usual.rate, usual.link), (1.0, USUAL_RATE, 5_000_000));
        assert!(!usual.options.contains("--rate") && !usual.options.contains("--link"));
    }

    #[test]
    fn slow_machine_gets_less_and_is_told_so() {
        let (usual, slow) = (within(1e6, ""), within(300.0, ""));
        let links = |setup: &Setup| {
            let size = setup.catalog.object(setup.hottest()).size as f64;
            setup.crowd_rate * size / setup.link as f64
        };
        assert!(slow.rate + slow.crowd_rate <= 300.0 / HEADROOM * 1.2, "{}", slow.rate);
        assert!((links(&slow) - links(&usual)).abs() < 0.1, "the crowd exceeds a link as before");
        let said = slow.notes.join("\n");
        assert!(said.contains("busy or slow: its nodes give 300 answers/s"), "{said}");
        assert!(!said.contains(TOO_BUSY), "{said}");
        let repeated = within(1e6, &slow.options);
        assert_eq!((repeated.rate, repeated.link), (slow.rate, slow.link));
    }

    #[test]
    fn machine_that_stands_still_is_told_to_be_too_busy() {
        let stuck = within(0.0, "");
        assert_eq!(stuck.pace, LEAST_PACE);
        assert!(stuck.notes.iter().any(|note| note == TOO_BUSY), "{:?}", stuck.notes);
    }

    #[test]
    fn load_is_halved_after_a_slow_rehearsal_down_to_the_least() {
        let words = Line::parse_from(["demo"]);
        let slower = |setup: &Setup, ms| {
            setup.slower(Duration::from_millis(ms), &words.args).expect("the options are right")
        };
        let mut setup = within(1e6, "");
        assert!(slower(&setup, 25).is_none());
        let mut rates = Vec::new();
        while let Some(next) = slower(&setup, 26) {
            rates.push(next.rate);
            setup = next;
        }
        assert_eq!(rates, [150.0, 75.0, 38.0, 19.0, 15.0]);
        assert!(setup.notes.iter().any(|note| note == TOO_BUSY), "{:?}", setup.notes);
    }

    #[test]
    fn chosen_rates_are_kept_on_a_slow_machine() {
        let kept = within(50.0, "--rate 200 --link 8Mbit/s");
        assert_eq!((kept.rate, kept.link, kept.keeps_rate), (200.0, 1_000_000, true));
        let said = kept.notes.join("\n");
        assert!(said.contains("--rate and --link are kept"), "{said}");
    }
}
