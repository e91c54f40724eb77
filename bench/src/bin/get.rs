//! `levada get` compared with curl, and with eight connections with aria2: time on the wall and of the
//! processor for one large file, over HTTP and TLS, from nginx on loopback to the temporary directory.
//!
//! `cargo run --release -p levada-bench --bin get -- [MIB [ROUNDS]]`. Programs take turns within each
//! round, each round beginning with another. Every copy is compared with the file, byte by byte.

use std::{
    env,
    error::Error,
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MIB: u64 = 512;
const ROUNDS: usize = 5;

/// Two programs and their arguments before the URL; they run where `certificate.pem` is, and write
/// `copy` there.
struct Pair {
    name: &'static str,
    ours: &'static [&'static str],
    peer: &'static str,
    theirs: &'static [&'static str],
}

const PAIRS: [Pair; 2] = [
    Pair {
        name: "one connection",
        ours: &["get", "-q", "--cacert", "certificate.pem", "-o", "copy"],
        peer: "curl",
        theirs: &["-q", "-sSf", "--cacert", "certificate.pem", "-o", "copy"],
    },
    Pair {
        name: "eight connections",
        ours: &["get", "-q", "-x", "8", "--cacert", "certificate.pem", "-o", "copy"],
        peer: "aria2c",
        // By default it would fetch over five, and fill the file with zeros first.
        theirs: &[
            "--no-conf",
            "-q",
            "-x8",
            "-s8",
            "-k1M",
            "--file-allocation=none",
            "--ca-certificate=certificate.pem",
            "--out=copy",
        ],
    },
];

fn main() -> Result<ExitCode> {
    let mut numbers = env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mib = numbers.next().transpose()?.unwrap_or(MIB);
    let rounds = numbers.next().transpose()?.map_or(Ok(ROUNDS), usize::try_from)?.max(1);
    let levada = match env::var_os("LEVADA") {
        Some(path) => PathBuf::from(path),
        None => env::current_exe()?.with_file_name("levada"),
    };
    if !levada.is_file() {
        return Err(format!("{}: build it, or name one in LEVADA", levada.display()).into());
    }
    let directory = env::temp_dir().join(format!("levada-bench-get-{}", std::process::id()));
    fs::create_dir_all(directory.join("www"))?;
    let result = measure(&directory, &levada, mib, rounds);
    fs::remove_dir_all(&directory)?;
    result?;
    Ok(ExitCode::SUCCESS)
}

fn measure(directory: &Path, levada: &Path, mib: u64, rounds: usize) -> Result<()> {
    write_noise(&directory.join("www/file"), mib)?;
    let server = Server::start(directory)?;
    println!("{mib} MiB, {rounds} rounds; medians in seconds");
    println!(
        "{:36} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "", "our wall", "wall", "our CPU", "CPU", "wall", "CPU"
    );
    for (scheme, port) in [("http", server.plain), ("https", server.tls)] {
        let url = format!("{scheme}://127.0.0.1:{port}/file");
        for pair in &PAIRS {
            if !runs(pair.peer) {
                println!("{scheme:5} {}: {} is not installed, left out", pair.name, pair.peer);
                continue;
            }
            let commands = [(levada, pair.ours), (pair.peer.as_ref(), pair.theirs)];
            let mut taken = [Vec::new(), Vec::new()];
            // The first round is not counted: it finds programs and libraries on the disk.
            for round in 0..=rounds {
                for turn in 0..2 {
                    let which = (round + turn) % 2;
                    let (program, arguments) = commands[which];
                    let took = time(program, arguments, &url, directory)?;
                    if round > 0 {
                        taken[which].push(took);
                    }
                }
            }
            print_pair(scheme, pair, &taken);
        }
    }
    Ok(())
}

fn print_pair(scheme: &str, pair: &Pair, taken: &[Vec<Took>; 2]) {
    let wall = taken.each_ref().map(|all| median(all.iter().map(|took| took.wall)));
    let cpu = taken.each_ref().map(|all| median(all.iter().map(|took| took.cpu)));
    let ratios = [wall[0] / wall[1], cpu[0] / cpu[1]];
    let missed = if ratios.iter().any(|ratio| *ratio > 1.0) { "  MISSED" } else { "" };
    println!(
        "{:28} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>8.2} {:>8.2}{missed}",
        format!("{scheme:5} {} / {}", pair.name, pair.peer),
        wall[0],
        wall[1],
        cpu[0],
        cpu[1],
        ratios[0],
        ratios[1],
    );
}

struct Took {
    wall: f64,
    cpu: f64,
}

/// Fetches the file once, and looks at what has come.
fn time(program: &Path, arguments: &[&str], url: &str, directory: &Path) -> Result<Took> {
    let mut command = Command::new(program);
    command.args(arguments).arg(url).current_dir(directory);
    let before = children_seconds()?;
    let begun = Instant::now();
    let status = command.status()?;
    let wall = begun.elapsed().as_secs_f64();
    let cpu = children_seconds()? - before;
    if !status.success() {
        return Err(format!("{status}: {command:?}").into());
    }
    let copy = directory.join("copy");
    if !equal(&copy, &directory.join("www/file"))? {
        return Err(format!("the copy differs: {command:?}").into());
    }
    fs::remove_file(copy)?;
    Ok(Took { wall, cpu })
}

/// User and system time of all processes that this one has waited for.
fn children_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in brackets, may hold spaces. cutime and cstime are fields 16 and 17.
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("stat")?.1.split_whitespace().collect();
    let ticks = fields[13].parse::<u64>()? + fields[14].parse::<u64>()?;
    // In hundredths of a second, on every architecture that Debian ships.
    Ok(ticks as f64 / 100.0)
}

fn equal(a: &Path, b: &Path) -> Result<bool> {
    let length = fs::metadata(a)?.len();
    if length != fs::metadata(b)?.len() {
        return Ok(false);
    }
    let [mut a, mut b] = [File::open(a)?, File::open(b)?].map(BufReader::new);
    let mut buffers = [vec![0; 1 << 20], vec![0; 1 << 20]];
    let mut left = length;
    while left > 0 {
        let part = usize::try_from(left.min(1 << 20))?;
        let [one, other] = &mut buffers;
        a.read_exact(&mut one[..part])?;
        b.read_exact(&mut other[..part])?;
        if one[..part] != other[..part] {
            return Ok(false);
        }
        left -= part as u64;
    }
    Ok(true)
}

/// No two blocks are alike, so that none can stand at another's place.
fn write_noise(path: &Path, mib: u64) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..mib << 17 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    Ok(file.flush()?)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn runs(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// nginx with the file: one process, that ends with this value.
struct Server {
    child: Child,
    plain: u16,
    tls: u16,
}

impl Server {
    fn start(directory: &Path) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        fs::write(directory.join("certificate.pem"), made.cert.pem())?;
        fs::write(directory.join("key.pem"), made.signing_key.serialize_pem())?;
        let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
        let (plain, tls) = (free()?.port(), free()?.port());
        let at = directory.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
            .concat();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log stderr crit;\nevents {{}}\n\
             http {{\naccess_log off;\nsendfile on;\ntcp_nopush on;\n{temporary}\
             server {{\nlisten 127.0.0.1:{plain};\nlisten 127.0.0.1:{tls} ssl;\nroot {at}/www;\n\
             ssl_certificate {at}/certificate.pem;\nssl_certificate_key {at}/key.pem;\n}}\n}}\n"
        );
        fs::write(directory.join("nginx.conf"), text)?;
        // System administrators' directories count, for every user.
        let path = env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
        let mut command = Command::new("nginx");
        command.env("PATH", path).arg("-p").arg(directory);
        command.arg("-c").arg(directory.join("nginx.conf"));
        let child = command.spawn().map_err(|why| format!("nginx: {why}; install it"))?;
        let mut server = Self { child, plain, tls };
        while TcpStream::connect(("127.0.0.1", tls)).is_err() {
            if server.child.try_wait()?.is_some() {
                return Err("nginx does not start".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
