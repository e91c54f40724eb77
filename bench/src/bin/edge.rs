//! The edge beside Debian's nginx: CPU per request, on the same core, before the same origin.
//!
//! ```text
//!   wrk (core 1) ──> levada │ nginx (core 0) ──> nginx as the origin (core 1)
//! ```
//!
//! ```text
//! cargo build --profile dist --workspace     # what packages ship: nginx comes from one, too
//! cargo run --profile dist -p levada-bench --bin edge [-- --rounds N --seconds S --connections C]
//! ```
//!
//! Both send the origin the same fields, so that it has the same work.
//!
//! Rounds are interleaved, so that a machine whose speed drifts treats both alike; the figure of a
//! server is its own CPU time (user and system, as the kernel accounts it) divided by the requests
//! that were answered. Needs `nginx`, `wrk` and `taskset`, and two cores. Everything listens on
//! loopback and is stopped at the end.

use std::{
    error::Error,
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is asked for, and how each server is to treat it.
struct Case {
    name: &'static str,
    path: &'static str,
    /// Through the cache, or past it.
    cached: bool,
    /// What the comparison is meant to stay below.
    target: f64,
}

const CASES: &[Case] = &[
    Case { name: "memory hit, 1 KB", path: "/1k", cached: true, target: 0.75 },
    Case { name: "memory hit, 10 KB", path: "/10k", cached: true, target: 0.75 },
    Case { name: "pass-through, 1 KB", path: "/1k", cached: false, target: 1.1 },
    Case { name: "pass-through, 1 MB", path: "/1m", cached: false, target: 1.1 },
];

struct Options {
    rounds: usize,
    seconds: u64,
    connections: u32,
}

fn main() -> Result<()> {
    let options = options()?;
    let dir = std::env::temp_dir().join(format!("levada-bench-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let outcome = measure(&options, &dir);
    fs::remove_dir_all(&dir)?;
    outcome
}

fn options() -> Result<Options> {
    let mut options = Options { rounds: 5, seconds: 3, connections: 32 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} wants a number"))?;
        match word.as_str() {
            "--rounds" => options.rounds = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--connections" => options.connections = value.parse()?,
            _ => return Err(format!("no option {word}").into()),
        }
    }
    Ok(options)
}

fn measure(options: &Options, dir: &Path) -> Result<()> {
    let origin = origin(dir)?;
    println!(
        "CPU per request, {} interleaved rounds of {} s, {} connections",
        options.rounds, options.seconds, options.connections
    );
    println!(
        "{:<20} {:>10} {:>10} {:>8} {:>8} {:>8}  target",
        "", "levada us", "nginx us", "best", "median", "worst"
    );
    for cached in [true, false] {
        let servers = [levada(dir, origin.port, cached)?, nginx(dir, origin.port, cached)?];
        for case in CASES.iter().filter(|case| case.cached == cached) {
            compare(case, &servers, options)?;
        }
    }
    Ok(())
}

/// One line of the table.
fn compare(case: &Case, servers: &[Server; 2], options: &Options) -> Result<()> {
    let mut costs: [Vec<f64>; 2] = Default::default();
    for server in servers {
        load(server.port, case.path, 1, options.connections)?;
    }
    for _ in 0..options.rounds {
        for (server, costs) in servers.iter().zip(&mut costs) {
            let before = server.cpu()?;
            let requests = load(server.port, case.path, options.seconds, options.connections)?;
            costs.push((server.cpu()? - before) * 1e6 / requests as f64);
        }
    }
    let mut ratios: Vec<f64> = costs[0].iter().zip(&costs[1]).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let median = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    println!(
        "{:<20} {:>10.2} {:>10.2} {:>8.2} {:>8.2} {:>8.2}  {}",
        case.name,
        median(&costs[0]),
        median(&costs[1]),
        ratios[0],
        ratios[ratios.len() / 2],
        ratios[ratios.len() - 1],
        case.target,
    );
    Ok(())
}

/// A server under measurement, stopped when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(command: &mut Command, core: &str, port: u16) -> Result<Self> {
        let mut pinned = Command::new("taskset");
        pinned.arg("-c").arg(core).arg(command.get_program()).args(command.get_args());
        let child = pinned
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("taskset: {e}; install util-linux"))?;
        let server = Self { child, port };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > deadline {
                return Err(format!("nothing listens on port {port}: {command:?}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Seconds of CPU that the process and its children that live have used.
    fn cpu(&self) -> Result<f64> {
        let ticks: u64 = tree(self.child.id())?
            .iter()
            .map(|pid| -> Result<u64> {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
                let after = stat.rsplit_once(')').ok_or("stat")?.1;
                let fields: Vec<&str> = after.split_whitespace().collect();
                Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
            })
            .sum::<Result<u64>>()?;
        // The kernel accounts in hundredths of a second, on every architecture that Debian ships.
        Ok(ticks as f64 / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for pid in tree(self.child.id()).unwrap_or_default() {
            let _ = Command::new("kill").arg(pid.to_string()).stderr(Stdio::null()).status();
        }
        let _ = self.child.wait();
    }
}

/// The process and its descendants.
fn tree(root: u32) -> Result<Vec<u32>> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|c| c.parse::<u32>().ok()));
    }
    Ok(all)
}

/// Loads a server and returns how many requests it answered. Any failed request is an error.
fn load(port: u16, path: &str, seconds: u64, connections: u32) -> Result<u64> {
    let output = Command::new("taskset")
        .args(["-c", "1", "wrk", "-t1"])
        .arg(format!("-c{connections}"))
        .arg(format!("-d{seconds}s"))
        .arg(format!("http://127.0.0.1:{port}{path}"))
        .output()
        .map_err(|e| format!("wrk: {e}; install wrk"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("requests failed:\n{text}").into());
    }
    let line = text.lines().find(|l| l.contains("requests in")).ok_or(text.to_string())?;
    Ok(line.trim().split(' ').next().ok_or("wrk")?.parse()?)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn origin(dir: &Path) -> Result<Server> {
    let root = dir.join("files");
    fs::create_dir_all(&root)?;
    for (name, size) in [("1k", 1 << 10), ("10k", 10 << 10), ("1m", 1 << 20)] {
        fs::write(root.join(name), vec![b'x'; size])?;
    }
    let port = free_port()?;
    let site = format!(
        "server {{ listen 127.0.0.1:{port} backlog=4096; root {}; \
         add_header Cache-Control max-age=3600; keepalive_requests 100000000; }}",
        root.display()
    );
    start_nginx(dir, "origin", &site, "1", port)
}

fn nginx(dir: &Path, origin: u16, cached: bool) -> Result<Server> {
    let port = free_port()?;
    let cache = if cached { "proxy_cache cache; proxy_cache_valid 200 1h;" } else { "" };
    let site = format!(
        "proxy_cache_path {dir}/nginx-cache keys_zone=cache:10m max_size=256m;\n\
         upstream origin {{ server 127.0.0.1:{origin}; keepalive 128; \
         keepalive_requests 100000000; }}\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; keepalive_requests 100000000;\n\
         location / {{ proxy_pass http://origin; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; \
         proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host; \
         proxy_set_header Via \"1.1 bench\"; proxy_set_header CDN-Loop levada; {cache} }} }}",
        dir = dir.display(),
    );
    let name = if cached { "cached" } else { "passing" };
    start_nginx(dir, name, &site, "0", port)
}

fn start_nginx(dir: &Path, name: &str, site: &str, core: &str, port: u16) -> Result<Server> {
    let prefix = dir.join(name);
    fs::create_dir_all(&prefix)?;
    let config = prefix.join("nginx.conf");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {}/{kind};\n", prefix.display()))
        .collect();
    let text = format!(
        "daemon off; worker_processes 1; pid {p}/pid; error_log {p}/error.log crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on;\n{temporary}\n{site}\n}}",
        p = prefix.display(),
    );
    fs::write(&config, user_line() + &text)?;
    Server::start(Command::new("nginx").arg("-p").arg(&prefix).arg("-c").arg(&config), core, port)
}

/// As root, nginx would drop to a user that cannot read the files.
fn user_line() -> String {
    let root = fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    if root { "user root;\n".to_owned() } else { String::new() }
}

fn levada(dir: &Path, origin: u16, cached: bool) -> Result<Server> {
    let port = free_port()?;
    let config = dir.join(format!("levada-{cached}.toml"));
    let text = format!(
        "name = \"bench\"\n[runtime]\nmode = \"shared\"\nthreads = 1\n[log]\naccess = \"off\"\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\n\
         [[site]]\nhosts = [\"*\"]\norigin = \"http://127.0.0.1:{origin}\"\ncache = {cached}\n"
    );
    fs::write(&config, text)?;
    Server::start(Command::new(binary()?).args(["run", "-c"]).arg(&config), "0", port)
}

/// The release build beside this program, or what LEVADA names.
fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LEVADA") {
        return Ok(path.into());
    }
    let path = std::env::current_exe()?.with_file_name("levada");
    if !path.exists() {
        return Err("build the binary first: cargo build --profile dist --workspace".into());
    }
    Ok(path)
}
