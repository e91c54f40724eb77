//! Each kind of load, and the figures that it yields.
//!
//! Loads run in rounds, and in each round every server has its turn, so that a machine whose speed
//! drifts treats all alike. Filling the memory and the crowd are done once, one server after another.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    Bench, Result,
    case::{Case, Work},
    client::{self, Client},
    counts::{Counter, Counts},
    origin::ROUND_TRIP,
    peer::PEERS,
    report::{Report, Row, Verdict},
    server::Server,
    wrk,
};

/// The figures of one server in one round.
struct Sample {
    cpu_us: f64,
    /// The part of its core that the server used.
    busy: f64,
    p99_ms: f64,
}

/// A value for every server, in the order of [`PEERS`]. A server that fails has none.
type PerPeer<T> = Vec<Option<T>>;

impl Bench {
    pub(crate) fn measure(&mut self, case: &Case) -> Report {
        match case.work {
            Work::Load { .. } | Work::Streams(_) | Work::Rate(_) => self.load(case),
            Work::Fill => self.fill(case),
            Work::Crowd { clients } => self.crowd(case, clients),
        }
    }

    fn load(&mut self, case: &Case) -> Report {
        let mut servers: PerPeer<Server> = (0..PEERS.len())
            .map(|peer| {
                let server = self.start(peer, case)?;
                let warm = self.warm(case, &server);
                self.unless_failed(peer, case, warm)?;
                Some(server)
            })
            .collect();
        let mut samples: Vec<Vec<Sample>> = PEERS.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.options.rounds {
            for (peer, slot) in servers.iter_mut().enumerate() {
                let Some(server) = slot else { continue };
                let outcome = self.round(case, server, self.options.seconds);
                match self.unless_failed(peer, case, outcome) {
                    Some(sample) => samples[peer].push(sample),
                    None => {
                        *slot = None;
                        samples[peer].clear();
                    }
                }
            }
        }
        let counts: PerPeer<Counts> =
            servers.iter().map(|server| self.count(case, server.as_ref()?)).collect();
        summary(case, &samples, &counts)
    }

    /// One more round, in which perf counts. A machine that cannot count misses no measurement.
    fn count(&self, case: &Case, server: &Server) -> Option<Counts> {
        let count = || {
            let counter = Counter::attach(&server.processes())?;
            let round = self.round_of_any_kind(case, server, self.options.seconds);
            counter.read(round?.1)
        };
        count().inspect_err(|why| eprintln!("{}: no counts: {why}", case.name)).ok()
    }

    /// Has every object stored, then loads for a second, so that what a server does at first is done.
    fn warm(&self, case: &Case, server: &Server) -> Result<()> {
        if case.setting.tls || case.setting.http2 {
            client::check_by_curl(case, server.port, &self.pattern)?;
            self.round_of_any_kind(case, server, 1)?;
        } else {
            self.store_all(case, server)?;
        }
        self.round(case, server, 1)?;
        Ok(())
    }

    /// Asks for every object until none is fetched any more, and checks every byte.
    fn store_all(&self, case: &Case, server: &Server) -> Result<()> {
        let mut client = Client::connect(server.port, &self.pattern)?;
        for _ in 0..20 {
            let before = self.origin.requests();
            for number in 0..case.objects {
                client.get(&case.path(number))?;
            }
            if self.origin.requests() == before || !case.setting.cached {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err("does not store what it may".into())
    }

    /// One round, in which every request of a case of hits was a hit.
    fn round(&self, case: &Case, server: &Server, seconds: u64) -> Result<Sample> {
        let before = self.origin.requests();
        let (sample, requests) = self.round_of_any_kind(case, server, seconds)?;
        let fetched = self.origin.requests() - before;
        if case.setting.cached && fetched > 0 {
            return Err(format!("{fetched} of {requests} requests were not hits").into());
        }
        if !case.setting.cached && fetched < requests {
            return Err(format!("only {fetched} of {requests} requests reached the origin").into());
        }
        Ok(sample)
    }

    fn round_of_any_kind(
        &self,
        case: &Case,
        server: &Server,
        seconds: u64,
    ) -> Result<(Sample, u64)> {
        let (port, connections) = (server.port, self.options.connections);
        let (begun, before) = (Instant::now(), server.cpu()?);
        let load = match case.work {
            Work::Rate(rate) => {
                client::at_rate(&case.path(0), rate, port, seconds, connections, &self.pattern)?
            }
            Work::Streams(streams) => wrk::streams(case, streams, port, seconds, connections)?,
            _ => {
                let close = matches!(case.work, Work::Load { close: true });
                wrk::run(case, close, port, seconds, connections, &self.dir)?
            }
        };
        let cpu = server.cpu()? - before;
        let busy = cpu / begun.elapsed().as_secs_f64();
        let cpu_us = cpu * 1e6 / load.requests as f64;
        Ok((Sample { cpu_us, busy, p99_ms: load.p99_ms }, load.requests))
    }

    /// Memory after twice as many bytes went through as it may hold.
    fn fill(&mut self, case: &Case) -> Report {
        let paths = mixed_sizes((2 * case.setting.memory_mib) << 20);
        let outcomes = self.one_by_one(case, |bench, server| {
            let idle = server.memory()?.now;
            let before = bench.origin.requests();
            client::in_threads(FILLERS, |first| {
                let mut client = Client::connect(server.port, &bench.pattern)?;
                for path in paths.iter().skip(first).step_by(FILLERS) {
                    for _ in 0..FILLS {
                        client.get(path)?;
                    }
                }
                Ok(())
            })?;
            let fetched = bench.origin.requests() - before;
            if fetched > (paths.len() * 3 / 2) as u64 {
                return Err(format!("{} objects took {fetched} fetches", paths.len()).into());
            }
            let memory = server.memory()?;
            Ok([idle, memory.now, memory.peak])
        });
        let limit = case.setting.memory_mib as f64;
        // 15 % of the limit, and 64 MB.
        let allowed = limit * 1.15 + 64e6 / f64::from(1 << 20);
        Report {
            case: case.name,
            rows: vec![
                row("configured, MiB", &outcomes, |_| limit),
                row("resident when it starts, MiB", &outcomes, |[idle, ..]| *idle),
                row("resident after twice that, MiB", &outcomes, |[_, now, _]| *now),
                row("peak, MiB", &outcomes, |[.., peak]| *peak),
            ],
            verdicts: verdict("Levada's resident MiB", &outcomes, allowed, |[_, now, _]| *now),
        }
    }

    /// Many clients at once for one long object that is not stored.
    fn crowd(&mut self, case: &Case, clients: usize) -> Report {
        let path = format!("/{}/slow", case.size);
        let outcomes = self.one_by_one(case, |bench, server| {
            let idle = server.memory()?.now;
            let (requests, bytes) = (bench.origin.requests(), bench.origin.bytes());
            let cpu = server.cpu()?;
            let received = client::crowd(&path, clients, server.port, &bench.pattern)?;
            let cpu = server.cpu()? - cpu;
            let first = received.iter().map(|r| r.first_byte).min().ok_or("nobody")?;
            let last_first = received.iter().map(|r| r.first_byte).max().ok_or("nobody")?;
            let last = received.iter().map(|r| r.last_byte).max().ok_or("nobody")?;
            Ok([
                (bench.origin.requests() - requests) as f64,
                (bench.origin.bytes() - bytes) as f64 / 1e6,
                (last_first - first).as_secs_f64() * 1e3,
                (last - first).as_secs_f64(),
                cpu,
                idle,
                server.memory()?.peak,
            ])
        });
        let labels = [
            "origin requests",
            "MB from the origin",
            "first byte, last after first, ms",
            "until all have all, s",
            "CPU, s",
            "resident when it starts, MiB",
            "peak, MiB",
        ];
        let mut verdicts = verdict("Levada's origin requests", &outcomes, 1.0, |o| o[0]);
        let round_trip = ROUND_TRIP.as_secs_f64() * 1e3;
        verdicts.extend(verdict("Levada's first bytes, ms", &outcomes, round_trip, |o| o[2]));
        let window = 2.0 * case.setting.memory_mib as f64;
        verdicts.extend(verdict("Levada's growth, MiB", &outcomes, window, |o| o[6] - o[5]));
        Report {
            case: case.name,
            rows: (0..labels.len()).map(|n| row(labels[n], &outcomes, |o| o[n])).collect(),
            verdicts,
        }
    }

    fn one_by_one<T>(
        &mut self,
        case: &Case,
        work: impl Fn(&Self, &Server) -> Result<T>,
    ) -> PerPeer<T> {
        (0..PEERS.len())
            .map(|peer| {
                let server = self.start(peer, case)?;
                let outcome = work(self, &server);
                self.unless_failed(peer, case, outcome)
            })
            .collect()
    }

    /// Starts a server, or says why there is none.
    fn start(&mut self, peer: usize, case: &Case) -> Option<Server> {
        let name = PEERS[peer].name;
        if let Some((_, why)) = case.absent.iter().find(|(absent, _)| *absent == name) {
            eprintln!("{}: {name}: -, it {why}", case.name);
            return None;
        }
        let program = self.programs[peer].clone()?;
        let outcome = self.stand(peer, &program, case);
        self.unless_failed(peer, case, outcome)
    }

    fn unless_failed<T>(&mut self, peer: usize, case: &Case, outcome: Result<T>) -> Option<T> {
        outcome
            .inspect_err(|error| {
                eprintln!("{}: {}: FAILED: {error}", case.name, PEERS[peer].name);
                self.failures += 1;
            })
            .ok()
    }
}

/// Threads that fill a server's memory.
const FILLERS: usize = 8;
/// How often each asks for an object in turn: Traffic Server keeps in memory what it has read twice.
const FILLS: usize = 3;

/// Paths of so many bytes in all, from 10 KB to 1 MB, evenly spread on a logarithmic scale.
fn mixed_sizes(total: u64) -> Vec<String> {
    // Multiples of the golden ratio, without their whole part, fill an interval evenly.
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let mut sum = 0;
    (0_u32..)
        .map(|number| (number, (1e4 * 100_f64.powf((f64::from(number) * GOLDEN).fract())) as u64))
        .take_while(|(_, size)| {
            sum += size;
            sum < total
        })
        .map(|(number, size)| format!("/{size}/mixed{number}"))
        .collect()
}

fn summary(case: &Case, samples: &[Vec<Sample>], counts: &PerPeer<Counts>) -> Report {
    let values = |of: fn(&Sample) -> f64| -> Vec<Vec<f64>> {
        samples.iter().map(|rounds| rounds.iter().map(of).collect()).collect()
    };
    let (cpu, p99) = (values(|s| s.cpu_us), values(|s| s.p99_ms));
    let mut rows = rows("CPU us per request", &cpu);
    // Of a server that is not busy, a part of that is falling asleep and waking up.
    rows.push(Row {
        label: "part of its core in use, median".into(),
        values: values(|s| s.busy).iter().map(|rounds| rank(rounds, Rank::Median)).collect(),
    });
    let counted = |label: &str, of: fn(&Counts) -> Option<f64>| Row {
        label: label.to_owned(),
        values: counts.iter().map(|counts| of(counts.as_ref()?)).collect(),
    };
    rows.push(counted("instructions per request", |counts| counts.instructions));
    rows.push(counted("system calls per request", |counts| counts.calls));
    let compared = if let Work::Rate(_) = case.work {
        rows.extend(self::rows("p99 ms", &p99));
        &p99
    } else {
        // Of a queue that is always full: it shows stalls, and else the throughput.
        rows.push(Row {
            label: "p99 ms at full load, median".into(),
            values: p99
                .iter()
                .map(|rounds| rank(rounds, Rank::Median).filter(|p99| p99.is_finite()))
                .collect(),
        });
        &cpu
    };
    let best = |peer: usize| rank(&compared[peer], Rank::Best);
    let ratios: Vec<f64> = compared[0].iter().zip(&compared[1]).map(|(a, b)| a / b).collect();
    let verdicts = [
        ("Levada / nginx, best to best", best(0).zip(best(1)).map(|(a, b)| a / b)),
        ("Levada / nginx, median of rounds", rank(&ratios, Rank::Median)),
    ];
    Report {
        case: case.name,
        rows,
        verdicts: verdicts
            .into_iter()
            .filter_map(|(label, value)| {
                Some(Verdict { label, value: value?, target: case.target })
            })
            .collect(),
    }
}

/// A quantity's best, median and worst round.
fn rows(quantity: &str, values: &[Vec<f64>]) -> Vec<Row> {
    [("best", Rank::Best), ("median", Rank::Median), ("worst", Rank::Worst)]
        .into_iter()
        .map(|(word, wanted)| Row {
            label: format!("{quantity}, {word}"),
            values: values.iter().map(|rounds| rank(rounds, wanted)).collect(),
        })
        .collect()
}

#[derive(Clone, Copy)]
enum Rank {
    Best,
    Median,
    Worst,
}

fn rank(values: &[f64], rank: Rank) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match rank {
        Rank::Best => sorted.first().copied(),
        Rank::Median => {
            let middle = [sorted.get((sorted.len().max(1) - 1) / 2), sorted.get(sorted.len() / 2)];
            middle[0].zip(middle[1]).map(|(a, b)| f64::midpoint(*a, *b))
        }
        Rank::Worst => sorted.last().copied(),
    }
}

fn row<T>(label: &str, outcomes: &PerPeer<T>, of: impl Fn(&T) -> f64) -> Row {
    Row {
        label: label.to_owned(),
        values: outcomes.iter().map(|outcome| outcome.as_ref().map(&of)).collect(),
    }
}

/// The figure of Levada, the first of the servers, with its target.
fn verdict<T>(
    label: &'static str,
    outcomes: &PerPeer<T>,
    target: f64,
    of: impl Fn(&T) -> f64,
) -> Vec<Verdict> {
    outcomes[0].iter().map(|outcome| Verdict { label, value: of(outcome), target }).collect()
}
