//! How soon a node follows a record that moves, and how requests are spread over the addresses of a name, with a
//! real DNS server (Knot, Debian's package `knot`).
//!
//! ```text
//! cargo build --release -p levada -p levada-bench --bin levada --bin records
//! target/release/records [--moves N]
//! ```
//!
//! A move takes the time from the moment at which the server answers with the new address until a client has the first
//! response from there. Names move to addresses that they never had, or between two of them. All listens on loopback.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use levada_types::Rng;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The TTLs of records that move, in seconds.
const TTLS: [u64; 4] = [1, 2, 5, 10];
/// A move is to be followed within the TTL and this.
const GRACE: Duration = Duration::from_secs(1);
/// The timeout for each step: a move may take the longest TTL several times.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two requests of a client.
const PAUSE: Duration = Duration::from_millis(2);
/// The addresses that requests are spread over, and these requests.
const SPREAD: u8 = 4;
const REQUESTS: usize = 200;
/// The ways to choose among servers: by the order of origins, or by a policy.
const CHOICES: [&str; 4] = ["origin", "adaptive", "round_robin", "fdr"];

/// A name that moves.
struct Moving {
    name: String,
    ttl: u64,
    /// Whether it moves between two addresses.
    returns: bool,
    /// The network of its addresses.
    network: u8,
}

impl Moving {
    fn all() -> Vec<Self> {
        let kinds = TTLS.iter().flat_map(|ttl| [(*ttl, false), (*ttl, true)]);
        let moving = |(network, (ttl, returns)): (u8, (u64, bool))| {
            let kind = if returns { "returns" } else { "moves" };
            Self { name: format!("{kind}{ttl}"), ttl, returns, network }
        };
        (1..).zip(kinds).map(moving).collect()
    }

    fn address(&self, turn: usize) -> Ipv4Addr {
        let host = if self.returns { turn % 2 } else { turn };
        Ipv4Addr::new(127, 3, self.network, host as u8 + 1)
    }
}

fn main() -> Result<ExitCode> {
    let mut moves = 10;
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--moves" => moves = words.next().ok_or("--moves wants a number")?.parse()?,
            _ => return Err(format!("no option {word}").into()),
        }
    }
    let directory = env::temp_dir().join(format!("levada-bench-records-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let result = measure(&directory, moves);
    fs::remove_dir_all(&directory)?;
    result
}

fn measure(directory: &Path, moves: usize) -> Result<ExitCode> {
    let names = Moving::all();
    let spread: Vec<_> = (1..=SPREAD).map(|host| Ipv4Addr::new(127, 3, 0, host)).collect();
    let port = free_port()?;
    let all = names.iter().flat_map(|name| (0..=moves).map(|turn| name.address(turn)));
    let mut all: Vec<_> = all.chain(spread.clone()).collect();
    all.sort();
    all.dedup();
    all.into_iter().try_for_each(|ip| origin(ip, port))?;
    let mut records: BTreeMap<_, _> =
        names.iter().map(|name| (name.name.clone(), (name.ttl, vec![name.address(0)]))).collect();
    records.insert("spread".to_owned(), (60, spread.clone()));
    let dns = Dns::start(directory, records)?;
    let (_node, clients) = node(directory, &names, dns.address, port)?;

    println!("{REQUESTS} requests over {SPREAD} addresses of a name");
    println!("{:16} {:>24} {:>24}", "", "of one URL", "of as many URLs");
    for choice in CHOICES {
        let mut client = Client::connect(clients, &format!("{choice}.test"))?;
        let mut counts = |path: &dyn Fn(usize) -> String| -> Result<String> {
            let mut counts = vec![0; spread.len()];
            for number in 0..REQUESTS {
                let from = client.get(&path(number))?;
                let place = spread.iter().position(|ip| *ip == from).ok_or("not one of them")?;
                counts[place] += 1;
            }
            Ok(format!("{counts:?}"))
        };
        let (one, many) = (counts(&|_| "/one".to_owned())?, counts(&|n| format!("/{n}"))?);
        println!("{choice:16} {one:>24} {many:>24}");
    }

    println!("\n{:16} {:>6} {:>10} {:>10} {:>10}", "moves", "TTL", "median", "longest", "too late");
    let taken: Vec<Result<Vec<Duration>>> = thread::scope(|scope| {
        let dns = &dns;
        let follow = |name| scope.spawn(move || follow(name, moves, dns, clients));
        let threads: Vec<_> = names.iter().map(follow).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|taken| taken.unwrap_or_else(|_| Err("a client panicked".into()))).collect()
    });
    let mut has_missed = false;
    for (name, taken) in names.iter().zip(taken) {
        let mut taken = taken?;
        taken.sort();
        let bound = Duration::from_secs(name.ttl) + GRACE;
        let late = taken.iter().filter(|took| **took > bound).count();
        has_missed |= late > 0;
        let kind = if name.returns { "between two" } else { "to a new one" };
        let seconds = |took: Option<&Duration>| took.map_or(0.0, Duration::as_secs_f64);
        let (median, longest) = (seconds(taken.get(taken.len() / 2)), seconds(taken.last()));
        println!("{kind:16} {:>4} s {median:>8.2} s {longest:>8.2} s {late:>10}", name.ttl);
    }
    if has_missed {
        println!("MISSED: TTL + {GRACE:?}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Moves a name at random moments. Returns how long the node took each time.
fn follow(name: &Moving, moves: usize, dns: &Dns, clients: SocketAddr) -> Result<Vec<Duration>> {
    let mut rng = Rng::new(u64::from(name.network));
    let mut client = Client::connect(clients, &format!("{}.test", name.name))?;
    let mut taken = Vec::new();
    for turn in 1..=moves {
        let pause = Duration::from_millis(rng.below(name.ttl as usize * 1000) as u64);
        let end = Instant::now() + pause;
        while Instant::now() < end {
            client.get("/asked")?;
            thread::sleep(PAUSE);
        }
        let to = name.address(turn);
        let begun = dns.change(name, to)?;
        while client.get("/asked")? != to {
            if begun.elapsed() > STEP_TIMEOUT {
                return Err(format!("{} is not followed", name.name).into());
            }
            thread::sleep(PAUSE);
        }
        taken.push(begun.elapsed());
    }
    Ok(taken)
}

/// A process that ends with this one.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Records = BTreeMap<String, (u64, Vec<Ipv4Addr>)>;

/// A DNS server with the zone `test.`.
struct Dns {
    address: SocketAddr,
    directory: PathBuf,
    zone: Mutex<(u32, Records)>,
    _process: Process,
}

impl Dns {
    fn start(directory: &Path, records: Records) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let own = directory.display();
        let configuration = format!(
            "server:\n  rundir: \"{own}\"\n  listen: 127.0.0.1@{}\n\
             database:\n  storage: \"{own}/db\"\n\
             zone:\n  - domain: test.\n    storage: \"{own}\"\n    file: test.zone\n    \
             journal-content: none\n    zonefile-sync: -1\n",
            address.port()
        );
        let file = directory.join("knot.conf");
        fs::write(&file, configuration)?;
        write_zone(directory, 1, &records)?;
        let mut knot = Command::new("knotd");
        knot.arg("-c").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = knot.spawn().map_err(|e| format!("knotd: {e}; install the package knot"))?;
        let dns = Self {
            address,
            directory: directory.to_owned(),
            zone: Mutex::new((1, records)),
            _process: Process(process),
        };
        let first = Ipv4Addr::new(127, 3, 0, 1);
        let begun = Instant::now();
        while !dns.answers("spread", first).unwrap_or(false) {
            if begun.elapsed() > STEP_TIMEOUT {
                return Err("knotd does not answer".into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(dns)
    }

    /// Gives a name another address. Returns the moment from which on the server answers with it.
    fn change(&self, name: &Moving, to: Ipv4Addr) -> Result<Instant> {
        let mut zone = self.zone.lock().expect("no thread panics");
        let (serial, records) = &mut *zone;
        *serial += 1;
        records.insert(name.name.clone(), (name.ttl, vec![to]));
        write_zone(&self.directory, *serial, records)?;
        let mut command = Command::new("knotc");
        command.arg("-s").arg(self.directory.join("knot.sock")).args(["zone-reload", "test."]);
        let mut reload = command.stdout(Stdio::null()).spawn()?;
        let answered = loop {
            let asked = Instant::now();
            if self.answers(&name.name, to)? {
                break asked;
            }
            thread::sleep(Duration::from_millis(1));
        };
        reload.wait()?;
        Ok(answered)
    }

    /// Whether the server answers a question for a name with this address.
    fn answers(&self, name: &str, address: Ipv4Addr) -> Result<bool> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        // One question (RFC 1035, Section 4.1) of type A, class IN.
        let mut question = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in [name, "test", ""] {
            question.push(label.len() as u8);
            question.extend(label.as_bytes());
        }
        question.extend([0, 1, 0, 1]);
        socket.send_to(&question, self.address)?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        Ok(answer[..length].windows(4).any(|part| part == address.octets()))
    }
}

fn write_zone(directory: &Path, serial: u32, records: &Records) -> Result<()> {
    let mut zone = format!("$ORIGIN test.\n@ 1 SOA ns root {serial} 60 60 60 1\n@ 1 NS ns\n");
    writeln!(zone, "ns 1 A 127.0.0.1")?;
    for (name, (ttl, addresses)) in records {
        addresses.iter().try_for_each(|ip| writeln!(zone, "{name} {ttl} A {ip}"))?;
    }
    let file = directory.join("test.zone");
    fs::write(file.with_extension("new"), zone)?;
    Ok(fs::rename(file.with_extension("new"), file)?)
}

/// A node with a site for each name, and its address for clients.
fn node(
    directory: &Path,
    names: &[Moving],
    dns: SocketAddr,
    port: u16,
) -> Result<(Process, SocketAddr)> {
    let levada = match env::var_os("LEVADA") {
        Some(path) => PathBuf::from(path),
        None => env::current_exe()?.with_file_name("levada"),
    };
    let clients = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let mut text = format!(
        "name = \"n\"\n[[listen]]\naddress = \"{clients}\"\n[log]\naccess = \"none\"\n\
         [resolver]\nservers = [\"{dns}\"]\n"
    );
    for Moving { name, .. } in names {
        let origin = format!("http://{name}.test:{port}");
        writeln!(text, "[[site]]\nhosts = \"{name}.test\"\norigin = \"{origin}\"")?;
    }
    for choice in CHOICES {
        let servers = format!("\"http://spread.test:{port}\"");
        write!(text, "[[site]]\nhosts = \"{choice}.test\"\n")?;
        match choice {
            "origin" => writeln!(text, "origin = {servers}")?,
            policy => writeln!(text, "servers = {servers}\npolicy = {{ name = \"{policy}\" }}")?,
        }
    }
    let (file, said) = (directory.join("levada.toml"), directory.join("said"));
    fs::write(&file, text)?;
    let mut command = Command::new(levada);
    command.arg("run").arg("-c").arg(file).stdout(Stdio::null());
    let mut process = Process(command.stderr(fs::File::create(&said)?).spawn()?);
    let begun = Instant::now();
    while TcpStream::connect(clients).is_err() {
        if process.0.try_wait()?.is_some() || begun.elapsed() > STEP_TIMEOUT {
            return Err(format!("levada: {}", fs::read_to_string(said)?).into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok((process, clients))
}

/// A connection to the node.
struct Client {
    stream: BufReader<TcpStream>,
    host: String,
}

impl Client {
    fn connect(to: SocketAddr, host: &str) -> Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream), host: host.to_owned() })
    }

    /// The address of the origin that has answered.
    fn get(&mut self, path: &str) -> Result<Ipv4Addr> {
        write!(self.stream.get_mut(), "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host)?;
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let begun = head.len();
            if self.stream.read_line(&mut head)? == 0 {
                return Err("the node closed a connection".into());
            }
            let line = head[begun..].trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        let body = String::from_utf8(body)?;
        body.parse().map_err(|_| format!("a request failed: {head}{body}").into())
    }
}

/// Answers each request with its address, which is not to be stored.
fn origin(ip: Ipv4Addr, port: u16) -> Result<()> {
    let listener = TcpListener::bind((ip, port))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let body = ip.to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                    let is_end = line == "\r\n";
                    if is_end && stream.get_mut().write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
