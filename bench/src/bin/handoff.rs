//! What a connection that is handed to a back-end costs its front-end, beside the same front-end
//! proxying it and HAProxy splicing it.
//!
//! `cargo run --release -p levada-bench --bin handoff -- [ROUNDS [SECONDS]]`, on Linux as root, with
//! nginx (the unmodified server of the back-end), HAProxy, wrk and iproute2. The Levada that is measured
//! is the binary beside this one.
//!
//! ```text
//!   wrk (core 1) ── router ──┬── front-ends (core 0), on three ports, one with load at a time
//!                            └── back-end: nginx, handoff-backend (core 1)
//! ```

use std::{
    env,
    error::Error,
    fs,
    net::Ipv4Addr,
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use levada_net::lab::{Child, Ethernet, Host, Network, possible};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 254);
const FRONT: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const BACK: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 11);

/// One kind of load.
struct Case {
    name: &'static str,
    bytes: usize,
    /// Whether each request has a connection of its own.
    close: bool,
    /// What is divided by the splicing proxy's, and what it should come to at most.
    target: Option<f64>,
}

const CASES: [Case; 4] = [
    Case { name: "1 KB, a connection each", bytes: 1000, close: true, target: None },
    Case { name: "100 KB, a connection each", bytes: 100_000, close: true, target: None },
    Case { name: "1 MB, a connection each", bytes: 1_000_000, close: true, target: Some(0.05) },
    Case { name: "1 MB, kept alive", bytes: 1_000_000, close: false, target: Some(0.05) },
];

/// What a connection that is handed off may cost in all, in microseconds.
const CONNECTION: f64 = 60.0;

const FRONTS: [&str; 3] = ["handoff", "proxy", "HAProxy, splicing"];
const PORTS: [u16; 3] = [80, 81, 82];

fn main() -> Result<ExitCode> {
    possible()?;
    let mut numbers = env::args().skip(1).map(|argument| argument.parse::<u64>());
    let rounds = numbers.next().transpose()?.unwrap_or(3) as usize;
    let seconds = numbers.next().transpose()?.unwrap_or(2);
    let directory = tempfile_in(&env::temp_dir())?;
    let stats = BpfStats::on();
    let world = World::new(&directory)?;
    let mut missed = false;
    for case in &CASES {
        let mut costs: [Vec<Cost>; 3] = Default::default();
        for round in 0..rounds {
            for turn in 0..FRONTS.len() {
                let front = (round + turn) % FRONTS.len();
                costs[front].push(world.load(front, case, seconds)?);
            }
        }
        missed |= report(case, &mut costs);
    }
    drop((world, stats));
    fs::remove_dir_all(&directory)?;
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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
}

fn report(case: &Case, costs: &mut [Vec<Cost>; 3]) -> bool {
    println!("\n{}", case.name);
    println!(
        "{:20} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "req/s", "us/req", "steering", "us/MB", "handed"
    );
    let mut medians = [0.0; 3];
    for (at, rounds) in costs.iter_mut().enumerate() {
        rounds.sort_by(|a, b| (a.process + a.steering).total_cmp(&(b.process + b.steering)));
        let median = rounds[rounds.len() / 2];
        medians[at] = median.process + median.steering;
        println!(
            "{:20} {:>10.0} {:>10.1} {:>10.2} {:>10.1} {:>9.1}%",
            FRONTS[at],
            median.per_second,
            medians[at],
            median.steering,
            medians[at] / (case.bytes as f64 / 1e6),
            median.handed * 100.0
        );
    }
    let [handoff, proxy, splicing] = medians;
    println!("handoff / proxy {:.3}, handoff / HAProxy {:.3}", handoff / proxy, handoff / splicing);
    let verdict = |what: &str, is: f64, most: f64| {
        let met = is <= most;
        println!("{what}: {is:.3}, at most {most}: {}", if met { "met" } else { "MISSED" });
        !met
    };
    let mut missed = false;
    if case.close {
        missed |= verdict("us per connection that is handed off", handoff, CONNECTION);
    }
    if let Some(most) = case.target {
        missed |= verdict("per MB, part of the splicing proxy's", handoff / splicing, most);
    }
    missed
}

/// Connections at once.
const AT_ONCE: f64 = 8.0;

/// Everything that runs.
struct World {
    client: Host,
    fronts: Vec<Child>,
    _others: Vec<Child>,
    /// The router, the front-end, the back-end.
    hosts: [Host; 3],
    _wires: [Ethernet; 2],
    _network: Network,
}

impl World {
    fn new(directory: &Path) -> Result<Self> {
        let network = Network::new(1);
        let host = |name| network.host(name);
        let (client, router, front, back) =
            (host("client")?, host("router")?, host("front")?, host("back")?);
        let outer = network.ethernet(&[(&client, "eth0", CLIENT), (&router, "eth0", NEAR)])?;
        let inner = network.ethernet(&[
            (&router, "eth1", FAR),
            (&front, "eth0", FRONT),
            (&back, "eth0", BACK),
        ])?;
        client.ip(&[&format!("route add default via {NEAR}")])?;
        router.forward()?;
        router.ip(&[&format!("route add {SERVICE} via {FRONT}")])?;
        for host in [&front, &back] {
            let own = format!("addr add {SERVICE}/32 dev lo");
            host.ip(&[&own, &format!("route add default via {FAR}")])?;
            host.set("net.ipv4.tcp_max_tw_buckets", "0")?;
        }
        client.set("net.ipv4.ip_local_port_range", "1024 65535")?;
        client.set("net.ipv4.tcp_max_tw_buckets", "0")?;
        let others = vec![nginx(&back, directory)?, taker(&back, directory)?];
        let fronts = vec![
            levada(&front, directory, "handoff", PORTS[0], true)?,
            levada(&front, directory, "proxy", PORTS[1], false)?,
            haproxy(&front, directory)?,
        ];
        let hosts = [router, front, back];
        let wires = [outer, inner];
        let world =
            Self { client, fronts, _others: others, hosts, _wires: wires, _network: network };
        world.wait()?;
        Ok(world)
    }

    /// Until every front-end answers.
    fn wait(&self) -> Result<()> {
        let start = Instant::now();
        for port in PORTS {
            let url = format!("http://{SERVICE}:{port}/1000");
            let get = || {
                let mut curl = Command::new("curl");
                curl.args(["-sf", "-o", "/dev/null", &url]).status()
            };
            while !self.client.namespace().run(get)??.success() {
                if start.elapsed() > Duration::from_secs(20) {
                    return Err(format!("nothing answers at {url}").into());
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        // The channel to the back-end is opened meanwhile.
        thread::sleep(Duration::from_millis(500));
        Ok(())
    }

    fn load(&self, front: usize, case: &Case, seconds: u64) -> Result<Cost> {
        let process = &self.fronts[front].process;
        let mut wrk = Command::new("taskset");
        wrk.args(["-c", "1", "wrk", "-t1", &format!("-c{AT_ONCE}"), &format!("-d{seconds}s")]);
        if case.close {
            wrk.args(["-H", "Connection: close"]);
        }
        wrk.arg(format!("http://{SERVICE}:{}/{}", PORTS[front], case.bytes));
        let already = handed(&self.hosts[1])?;
        let before = used(process.id())?;
        let start = Instant::now();
        let output = self.client.namespace().run(|| wrk.output())??;
        let elapsed = start.elapsed().as_secs_f64();
        let after = used(process.id())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || text.contains("Non-2xx") || text.contains("Socket errors") {
            return Err(format!("{}: {}: {text}", case.name, FRONTS[front]).into());
        }
        let requests =
            text.split(" requests in ").next().and_then(|text| text.split_whitespace().last());
        let requests: f64 = requests.unwrap_or_default().parse().map_err(|_| text.clone())?;
        let per = |nanoseconds: u64| nanoseconds as f64 / 1e3 / requests;
        Ok(Cost {
            process: per(after.process - before.process),
            steering: per(after.steering.saturating_sub(before.steering)),
            handed: (handed(&self.hosts[1])? - already)
                / if case.close { requests } else { AT_ONCE },
            per_second: requests / elapsed,
        })
    }
}

/// Nanoseconds of a process, and of the programs that it has in the kernel.
struct Used {
    process: u64,
    steering: u64,
}

/// Connections that the front-end has handed over so far.
fn handed(front: &Host) -> Result<f64> {
    let metrics = front.namespace().run(|| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "http://127.0.0.1:9180/metrics"]).output()
    });
    let text = String::from_utf8(metrics??.stdout)?;
    let line = text.lines().find_map(|line| line.strip_prefix(HANDED));
    Ok(line.unwrap_or("0").trim().parse()?)
}

const HANDED: &str = "levada_handoffs_total{result=\"ended\"}";

fn used(pid: u32) -> Result<Used> {
    let mut process = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        process += stat.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    let mut steering = 0;
    for file in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // One that was closed meanwhile is no program.
        let text = fs::read_to_string(file?.path()).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim_start_matches(':').trim().parse::<u64>().ok()
        };
        steering += field("run_time_ns").unwrap_or(0);
    }
    Ok(Used { process, steering })
}

/// Has the kernel account for what programs use, while this is there.
struct BpfStats(Option<String>);

const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl BpfStats {
    fn on() -> Self {
        let before = fs::read_to_string(BPF_STATS).ok();
        if fs::write(BPF_STATS, "1").is_err() {
            println!("the kernel does not tell what steering costs: it is left out");
        }
        Self(before)
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(BPF_STATS, before.trim());
        }
    }
}

fn on_core(core: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn binary() -> Result<std::path::PathBuf> {
    Ok(env::current_exe()?.with_file_name("levada"))
}

fn nginx(host: &Host, directory: &Path) -> Result<Child> {
    let root = directory.join("root");
    fs::create_dir_all(&root)?;
    for case in &CASES {
        fs::write(root.join(case.bytes.to_string()), vec![b'x'; case.bytes])?;
    }
    let config = directory.join("nginx.conf");
    let text = format!(
        "user root;\nworker_processes 1;\nerror_log /dev/null;\npid {dir}/nginx.pid;\ndaemon off;\n\
         events {{ worker_connections 4096; }}\nhttp {{ access_log off; sendfile on; tcp_nopush on;\n\
         keepalive_requests 100000000;\nserver {{ listen {BACK}:8080 backlog=4096; root {root}; }} }}\n",
        dir = directory.display(),
        root = root.display()
    );
    fs::write(&config, text)?;
    let mut command = on_core("1", Path::new("nginx"));
    command.arg("-c").arg(config);
    Ok(host.start(command)?)
}

fn taker(host: &Host, directory: &Path) -> Result<Child> {
    let secret = directory.join("secret");
    fs::write(&secret, "0123456789abcdef")?;
    let mut command = on_core("1", &binary()?);
    command.args(["handoff-backend", "--log-level", "warn", "--interface", "eth0"]);
    command.args(["--listen", &format!("{BACK}:7072"), "--service", &format!("{SERVICE}:80")]);
    command.args(["--to", &format!("http://{BACK}:8080"), "--secret-file"]).arg(secret);
    Ok(host.start(command)?)
}

fn levada(host: &Host, directory: &Path, name: &str, port: u16, hands_over: bool) -> Result<Child> {
    let (handoff, server) = match hands_over {
        true => (
            "[admin]\nlisten = '127.0.0.1:9180'\n[handoff]\ninterfaces = 'eth0'\nsecret_file = 'secret'\n".to_owned(),
            format!("handoff = '{BACK}:7072'\n"),
        ),
        false => Default::default(),
    };
    let text = format!(
        "name = '{name}'\n[[listen]]\naddress = '{SERVICE}:{port}'\n[runtime]\nthreads = 1\n\
         [log]\naccess = 'off'\n{handoff}[[site]]\nhosts = '*'\ncache = false\n\
         policy = {{ name = 'lard/r' }}\n[[site.server]]\nurl = 'http://{BACK}:8080'\n{server}"
    );
    let config = directory.join(format!("{name}.toml"));
    fs::write(&config, text)?;
    let mut command = on_core("0", &binary()?);
    command.args(["run", "--log-level", "warn", "-c"]).arg(config);
    Ok(host.start(command)?)
}

fn haproxy(host: &Host, directory: &Path) -> Result<Child> {
    let text = format!(
        "global\n    nbthread 1\n    maxconn 4096\n\ndefaults\n    mode http\n    option splice-auto\n    \
         http-reuse always\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n\n\
         frontend clients\n    bind {SERVICE}:{port} backlog 4096\n    option forwardfor\n    \
         default_backend servers\n\nbackend servers\n    server one {BACK}:8080\n",
        port = PORTS[2]
    );
    let config = directory.join("haproxy.cfg");
    fs::write(&config, text)?;
    let mut command = on_core("0", Path::new("haproxy"));
    command.arg("-db").arg("-f").arg(config);
    Ok(host.start(command)?)
}

fn tempfile_in(parent: &Path) -> Result<std::path::PathBuf> {
    let directory = parent.join(format!("levada-handoff-{}", std::process::id()));
    fs::create_dir(&directory)?;
    Ok(directory)
}
