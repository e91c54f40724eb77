//! From a scenario to a run: checks, and inputs.

use std::{sync::Arc, time::Duration};

use levada_policy::{
    BuildError, Deployment, Need, ParameterValue, build, find, lard_admission_limit,
};
use levada_topology::{MAX_CLIENTS, MAX_SERVERS, Role, Routes, Shape, Topology};
use levada_trace::{Trace, generate::GENERATORS};
use levada_types::format_duration;

use super::{Arrivals, Policy, Problems, Scenario};
use crate::{Fidelity, Library, Remark, network::MAX_WINDOW, regions};

/// Bytes of the largest head of a response.
const LARGEST_HEAD: u64 = 1 << 20;
/// The size of a packet with its headers is a 16-bit number.
const LARGEST_SEGMENT: u32 = 65_000;
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// A scenario without errors, with the inputs of its run.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    pub(crate) scenario: Scenario,
    pub(crate) topology: Arc<Topology>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) trace: Arc<Trace>,
}

impl Prepared {
    /// The scenario that it was made from.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Its places and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Requests outstanding at most in a closed loop: LARD's S (ASPLOS'98 Sec. 2.3) unless given.
    pub(crate) fn outstanding(&self) -> u64 {
        let threshold = |name: &str, usual| match self.scenario.policy.parameters.get(name) {
            Some(ParameterValue::Integer(given)) => u64::try_from(*given).unwrap_or(usual),
            _ => usual,
        };
        let (low, high) = (threshold("t_low", 25), threshold("t_high", 65));
        let limit = || lard_admission_limit(self.scenario.servers.count, low, high).max(1);
        self.scenario.workload.outstanding.map_or_else(limit, u64::from)
    }

    /// Maximum number of requests to play.
    pub(crate) fn most_requests(&self) -> u64 {
        let once = matches!(self.scenario.workload.arrivals, Arrivals::Closed | Arrivals::Recorded);
        let all = if once { self.trace.requests().len() as u64 } else { u64::MAX };
        self.scenario.measure.requests.unwrap_or(all)
    }
}

impl Scenario {
    /// Checks the scenario and loads its inputs from `library`.
    ///
    /// # Errors
    /// Every problem, with its key and the remedy.
    pub fn prepare(&self, library: &mut Library) -> Result<Prepared, Problems> {
        let mut problems = Problems::default();
        self.check_numbers(&mut problems);
        self.policy.check("policy", &mut problems);
        self.check_origin(&mut problems);
        self.check_failures(&mut problems);
        if let Some(settings) = &self.cap {
            for (key, remedy) in levada_cap::check(settings) {
                problems.add(key, remedy);
            }
            return problems.or(Prepared { scenario: self.clone(), ..Prepared::default() });
        }
        let (topology, routes) = match &self.regions {
            Some(settings) => {
                regions::check(self, settings, &mut problems);
                Default::default()
            }
            None => self.topology(library, &mut problems),
        };
        let trace = match library.trace(&self.workload.trace, self.seed) {
            Ok(trace) => trace,
            Err(what) => {
                problems.add("workload.trace", what);
                Arc::default()
            }
        };
        problems.add_if(
            trace.requests().is_empty() && problems.0.is_empty(),
            "workload.trace",
            "there is no request in it",
        );
        problems.add_if(
            self.workload.arrivals == Arrivals::Recorded
                && trace.times().is_none()
                && !trace.requests().is_empty(),
            "workload.arrivals",
            "the trace does not say when its requests came: choose `ramp`, `constant` or `closed`",
        );
        if let Some(what) = self.too_short(&trace) {
            problems.add("workload.trace", what);
        }
        self.check_growth(trace.objects().len(), &mut problems);
        problems.or(Prepared {
            scenario: self.clone(),
            topology: Arc::new(topology),
            routes: Arc::new(routes),
            trace,
        })
    }

    /// Why the requests of the trace are over before anything is measured, with what to set instead.
    fn too_short(&self, trace: &Trace) -> Option<String> {
        let (workload, warm_up) = (&self.workload, self.measure.warm_up.0);
        let requests = trace.requests().len();
        if requests == 0 || self.repeats() {
            return None;
        }
        let seconds = match workload.arrivals {
            Arrivals::Constant if workload.steps.is_empty() && workload.rate_at_end.is_none() => {
                requests as f64 / workload.rate
            }
            Arrivals::Recorded => {
                let times = trace.times()?;
                times.last()?.since(*times.first()?).as_secs_f64()
            }
            _ => return None,
        };
        if !seconds.is_finite() || seconds > warm_up.as_secs_f64() {
            return None;
        }
        let remedy = match workload.arrivals {
            Arrivals::Recorded => "set a shorter `measure.warm_up`".to_owned(),
            _ => {
                let run = self.measure.duration.map_or(warm_up * 5, |duration| duration.0);
                let rate = (requests as f64 / run.as_secs_f64()).floor().max(1.0);
                format!("set `workload.repeat = true`, or `workload.rate` to {rate} at most")
            }
        };
        Some(format!(
            "its {requests} requests are over after {seconds:.0} s, and nothing is measured before \
             `measure.warm_up`, {}: {remedy}",
            format_duration(warm_up)
        ))
    }

    fn check_numbers(&self, problems: &mut Problems) {
        let (servers, workload, network) = (&self.servers, &self.workload, &self.network);
        let positive = |x: f64| x.is_finite() && x > 0.0;
        problems.add_if(servers.count == 0, "servers.count", "there must be a server at least");
        problems.add_if(
            servers.active == 0,
            "servers.active",
            "a server must serve one request at least",
        );
        problems.add_if(servers.disks == 0, "servers.disks", "a server needs a disk");
        for (key, value) in [("servers.cpu", servers.cpu), ("servers.disk", servers.disk)] {
            problems.add_if(
                !positive(value),
                key,
                "it must be a number above 0; 1 is as in the papers",
            );
        }
        problems.add_if(
            !servers.speeds.iter().all(|speed| positive(*speed)),
            "servers.speeds",
            "each must be a number above 0; 1 is as fast as the others",
        );
        problems.add_if(
            servers.speeds_for.is_some_and(|time| time.0.is_zero()),
            "servers.speeds_for",
            "a speed must stay for a time; leave it out if speeds do not change",
        );
        problems.add_if(
            servers.loads_shared_every.is_some_and(|time| time.0.is_zero()),
            "servers.loads_shared_every",
            "it must be a time above 0; leave it out if front-ends know all loads at once",
        );
        problems.add_if(
            servers.slow_bits_per_second == 0,
            "servers.slow_bits_per_second",
            "a link must carry something",
        );
        problems.add_if(
            workload.clients == 0,
            "workload.clients",
            "there must be a client at least",
        );
        let by_rate = matches!(workload.arrivals, Arrivals::Ramp | Arrivals::Constant);
        problems.add_if(
            by_rate && !positive(workload.rate),
            "workload.rate",
            "it must be a number of requests per second above 0",
        );
        let ramp = workload.arrivals == Arrivals::Ramp;
        problems.add_if(
            ramp && !positive(workload.growth),
            "workload.growth",
            "a ramp must grow; the paper's grows by 0.01 per step",
        );
        problems.add_if(
            (ramp || !workload.steps.is_empty()) && workload.step.0.is_zero(),
            "workload.step",
            "a step must last; that of the paper's ramp lasts \"6s\"",
        );
        problems.add_if(
            !workload.steps.is_empty() && workload.arrivals != Arrivals::Constant,
            "workload.steps",
            "steps are constant rates: choose `workload.arrivals = \"constant\"`",
        );
        problems.add_if(
            !workload.steps.iter().all(|rate| positive(*rate)),
            "workload.steps",
            "each must be a number of requests per second above 0",
        );
        problems.add_if(
            workload.repeat == Some(true) && workload.arrivals == Arrivals::Recorded,
            "workload.repeat",
            "a trace that is played at its own times cannot begin again",
        );
        problems.add_if(
            self.measure.duration.is_some_and(|duration| duration.0 <= self.measure.warm_up.0),
            "measure.warm_up",
            "it must be shorter than `measure.duration`, or nothing is measured",
        );
        problems.add_if(
            workload.outstanding == Some(0),
            "workload.outstanding",
            "one request at least must be outstanding",
        );
        if let Some(flash) = &workload.flash {
            problems.add_if(
                !flash.exist && (self.origin.is_none() || self.regions.is_some()),
                "workload.flash.exist",
                "an origin is asked for what does not exist: give `[origin]`, and no `[regions]`",
            );
            problems.add_if(
                flash.urls == 0,
                "workload.flash.urls",
                "there must be a hot document at least",
            );
            problems.add_if(
                flash.mean_size.0 == 0,
                "workload.flash.mean_size",
                "documents must have a size",
            );
        }
        problems.add_if(
            network.segment == 0,
            "network.segment",
            "a segment must carry a byte at least; usual are 536 and 1460",
        );
        problems.add_if(
            network.initial_window == 0,
            "network.initial_window",
            "a connection begins with one segment at least",
        );
        problems.add_if(
            network.window < network.initial_window,
            "network.window",
            "it must be at least `network.initial_window`",
        );
        problems.add_if(
            network.response_head.0 > LARGEST_HEAD,
            "network.response_head",
            "it must be at most \"1MiB\"; usual are some hundred bytes",
        );
        problems.add_if(
            (self.cap.is_some() || self.regions.is_some())
                && (network.response_head.0 > 0 || network.persistent),
            "network",
            "`cap` and `regions` know no `response_head` and no `persistent`: leave them out",
        );
        if network.fidelity == Fidelity::Packet {
            self.check_packets(problems);
        }
        problems.add_if(
            self.measure.sample.0 < LEAST_SAMPLE,
            "measure.sample",
            "it must be \"100ms\" or more: every sample looks at all memories",
        );
        let ends = self.measure.duration.is_some() || self.measure.requests.is_some();
        problems.add_if(
            !ends && workload.arrivals == Arrivals::Constant,
            "measure.duration",
            "at a constant rate nothing else ends the run: give it or `measure.requests`",
        );
        self.check_cache(problems);
    }

    fn check_packets(&self, problems: &mut Problems) {
        let network = &self.network;
        problems.add_if(
            network.window > MAX_WINDOW,
            "network.window",
            &format!("packet by packet it is at most {MAX_WINDOW} segments"),
        );
        problems.add_if(
            network.segment > LARGEST_SEGMENT,
            "network.segment",
            &format!("packet by packet it is at most {LARGEST_SEGMENT} bytes"),
        );
        problems.add_if(
            network.request.0 > u64::from(network.segment),
            "network.request",
            "it is one segment: at most `network.segment`",
        );
        problems.add_if(
            network.segments_per_ack == 0,
            "network.segments_per_ack",
            "1 acknowledges every segment, 2 delays acknowledgements as RFC 1122 has it",
        );
        for (key, time) in [
            ("network.first_timeout", network.first_timeout),
            ("network.least_timeout", network.least_timeout),
        ] {
            problems.add_if(
                time.0.is_zero() || time.0 > LONGEST_TIMEOUT,
                key,
                "it must be a time above 0 and at most \"1h\", such as \"1s\"",
            );
        }
        problems.add_if(
            network.ack_delay.0 > LONGEST_TIMEOUT,
            "network.ack_delay",
            "it must be at most \"1h\"; usual is \"100ms\"",
        );
    }

    /// Whether the trace begins again at its end.
    pub(crate) fn repeats(&self) -> bool {
        let generated = || GENERATORS.iter().any(|made| made.name == self.workload.trace);
        self.workload.arrivals != Arrivals::Recorded
            && self.workload.repeat.unwrap_or_else(generated)
    }

    /// The remark that the policy's busy threshold cannot be reached: a server with as many requests
    /// from each of the `redirectors` has failed.
    pub(crate) fn unreachable_threshold(&self, redirectors: u64) -> Option<Remark> {
        let Some(ParameterValue::Integer(busy)) = self.policy.parameters.get("busy") else {
            return None;
        };
        let busy = u64::try_from(*busy).ok()?;
        let redirectors = if self.needs(Need::GlobalLoads) { 1 } else { redirectors };
        let capacity = u64::from(self.servers.active) + u64::from(self.servers.queue);
        (busy.saturating_mul(redirectors) >= capacity).then_some(Remark::ThresholdOutOfReach {
            busy,
            redirectors,
            capacity,
        })
    }

    /// Whether requests can be lost: servers fail, or refuse.
    pub(crate) fn may_lose(&self) -> bool {
        let refuse = self.origin.as_ref().is_some_and(|origin| origin.misses_per_server.is_some());
        refuse || !self.servers.failure.is_empty()
    }

    /// Whether servers fetch files from each other's memory. This is the difference between WRR/GMS
    /// and WRR (ASPLOS'98 Sec. 4).
    pub(crate) fn has_global_memory(&self) -> bool {
        self.policy.name == "wrr/gms"
    }

    /// The policy's needs beyond keys and local loads; empty for an unknown policy.
    pub(crate) fn needs(&self, need: Need) -> bool {
        self.policy.needs(need)
    }

    fn topology(&self, library: &mut Library, problems: &mut Problems) -> (Topology, Routes) {
        let before = problems.0.len();
        let found = match &self.topology.file {
            Some(path) => self.topology_from_file(path, library, problems),
            None => self.listed_topology(problems),
        };
        let (topology, routes) = found.unwrap_or_default();
        if problems.0.len() == before {
            let servers = topology.places_of(Role::Server).count();
            problems.add_if(
                servers < self.servers.count,
                "servers.count",
                &format!("the topology has places for {servers} servers only"),
            );
        }
        (topology, routes)
    }

    fn topology_from_file(
        &self,
        path: &str,
        library: &mut Library,
        problems: &mut Problems,
    ) -> Option<(Topology, Routes)> {
        for name in self.topology.parameters.keys() {
            let what = "a file has no parameters: leave it out, or name a listed topology";
            problems.add(format!("topology.{name}"), what);
        }
        let text = match library.text(path) {
            Ok(text) => text,
            Err(what) => {
                problems.add("topology.file", what);
                return None;
            }
        };
        // GraphML is XML, which never begins with a character that JSON begins with.
        let xml = text.trim_start_matches('\u{feff}').trim_start().starts_with('<');
        let read = if xml {
            levada_topology::from_graphml(&text)
        } else {
            levada_topology::from_json(&text)
        };
        let note = |error: levada_topology::FileError| {
            problems.add("topology.file", format!("{path}: {error}"));
        };
        read.map_err(|errors| errors.into_iter().for_each(note)).ok()
    }

    fn listed_topology(&self, problems: &mut Problems) -> Option<(Topology, Routes)> {
        let (servers, clients) = (self.servers.count, self.workload.clients);
        problems.add_if(
            servers > MAX_SERVERS,
            "servers.count",
            &format!("listed topologies have at most {MAX_SERVERS} servers"),
        );
        problems.add_if(
            clients > MAX_CLIENTS,
            "workload.clients",
            &format!("listed topologies have at most {MAX_CLIENTS} clients"),
        );
        let shape = Shape {
            servers: servers.clamp(1, MAX_SERVERS),
            slow: self.servers.slow.0,
            slow_bits_per_second: self.servers.slow_bits_per_second.max(1),
            clients: clients.clamp(1, MAX_CLIENTS),
            seed: self.seed,
        };
        match levada_topology::build(&self.topology.name, &self.topology.parameters, &shape) {
            Ok(built) => {
                let routes = built.routes();
                let routes = routes.map_err(|error| problems.add("topology", error.to_string()));
                Some((built, routes.ok()?))
            }
            Err(errors) => {
                for error in errors {
                    problems.add(format!("topology.{}", error.name()), error.to_string());
                }
                None
            }
        }
    }
}

/// The shortest interval between counts of replicas.
const LEAST_SAMPLE: Duration = Duration::from_millis(100);

impl Policy {
    /// Whether it needs this beyond keys and local loads; an unknown policy needs nothing.
    pub(crate) fn needs(&self, need: Need) -> bool {
        find(&self.name).is_some_and(|entry| entry.needs.contains(&need))
    }

    /// Adds what is wrong with the policy in the table `place` to `problems`.
    pub(crate) fn check(&self, place: &str, problems: &mut Problems) {
        match build(&self.name, &self.parameters, &Deployment::default()) {
            Ok(_) => {}
            Err(BuildError::UnknownPolicy(name)) => {
                problems.add(
                    format!("{place}.name"),
                    format!("there is no policy `{name}`; `levada policies` lists them"),
                );
            }
            Err(BuildError::Parameters(errors)) => {
                for error in errors {
                    problems.add(format!("{place}.{}", error.name()), error.to_string());
                }
            }
        }
    }
}
