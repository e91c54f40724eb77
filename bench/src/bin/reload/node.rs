//! A node with many sites, and the disturbances that it has to stand.

use std::{
    env,
    fmt::{self, Write as _},
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{Result, threads};

/// The bytes of the object that clients ask for.
pub(crate) const SIZE: usize = 1024;
/// The timeout for a start and for an answer: a node with many sites takes its time to start.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// The origins of all sites. Each has a queue for connections that has room for a burst of probes.
const SINKS: usize = 32;

/// The size of a node.
pub(crate) struct Shape {
    pub(crate) sites: usize,
    pub(crate) threads: usize,
    pub(crate) is_shared: bool,
    /// Whether sites have no routes and no header fields.
    pub(crate) is_plain: bool,
}

/// A change of the file.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Nothing,
    OneSite,
    AllSites,
    AllOrigins,
}

/// An event at the node that no client should notice.
#[derive(Clone, Copy)]
pub(crate) enum Disturbance {
    Reload(Change),
    /// A page of the admin listener is read.
    Page(&'static str),
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reload(Change::Nothing) => f.write_str("reload, no change"),
            Self::Reload(Change::OneSite) => f.write_str("reload, one site"),
            Self::Reload(Change::AllSites) => f.write_str("reload, all sites"),
            Self::Reload(Change::AllOrigins) => f.write_str("reload, all origins"),
            Self::Page(page) => write!(f, "GET {page}"),
        }
    }
}

/// A node before its origins.
pub(crate) struct Node {
    process: Child,
    configuration: Configuration,
    directory: PathBuf,
}

/// The file of the node.
struct Configuration {
    shape: Shape,
    port: u16,
    admin: u16,
    /// The origin of the object.
    answering: u16,
    /// The origins of the sites, which only take connections, and others that can take their places.
    sinks: [Vec<u16>; 2],
    /// The versions of the first site, and of all sites.
    one: usize,
    all: usize,
}

impl Node {
    pub(crate) fn start(shape: Shape) -> Result<Self> {
        let levada = match env::var_os("LEVADA") {
            Some(path) => PathBuf::from(path),
            None => env::current_exe()?.with_file_name("levada"),
        };
        let directory = env::temp_dir().join(format!("levada-bench-reload-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let (file, said) = (directory.join("levada.toml"), directory.join("said"));
        let sinks = || (0..SINKS).map(|_| origin(drop)).collect::<Result<Vec<_>>>();
        let (answering, sinks) = (origin(answer)?, [sinks()?, sinks()?]);
        let (port, admin) = (free_port()?, free_port()?);
        let configuration = Configuration { shape, port, admin, answering, sinks, one: 0, all: 0 };
        fs::write(&file, configuration.text()?)?;
        let mut command = Command::new(levada);
        command.arg("run").arg("--config").arg(&file).stdout(Stdio::null());
        let process = command.stderr(File::create(&said)?).spawn()?;
        let mut node = Self { process, configuration, directory };
        let end = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err()
            || node.serving().len() < node.configuration.shape.threads
        {
            if node.process.try_wait()?.is_some() || Instant::now() > end {
                return Err(format!("levada: {}", fs::read_to_string(said)?).into());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(node)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The port for clients.
    pub(crate) fn port(&self) -> u16 {
        self.configuration.port
    }

    /// The threads that serve clients.
    pub(crate) fn serving(&self) -> Vec<u32> {
        let (pid, shape) = (self.pid(), &self.configuration.shape);
        let is_named = |thread: &u32, name: &str| {
            threads::name(pid, *thread).is_some_and(|n| n.starts_with(name))
        };
        let mut all = threads::of(pid);
        all.sort_unstable();
        if shape.is_shared {
            // The runtime starts them first.
            all.retain(|thread| is_named(thread, "tokio-rt-worker"));
            all.truncate(shape.threads);
        } else {
            all.retain(|thread| *thread == pid || is_named(thread, "worker-"));
        }
        all
    }

    pub(crate) fn disturb(&mut self, disturbance: Disturbance) -> Result<()> {
        match disturbance {
            Disturbance::Page(page) => self.request("GET", page),
            Disturbance::Reload(change) => {
                self.configuration.change(change);
                fs::write(self.directory.join("levada.toml"), self.configuration.text()?)?;
                self.request("POST", "/reload")
            }
        }
    }

    /// Sends a request to the admin listener, and reads the answer to its end.
    fn request(&self, method: &str, path: &str) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.configuration.admin))?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        if answer.starts_with(b"HTTP/1.1 200 ") {
            return Ok(());
        }
        Err(format!("{path}: {}", String::from_utf8_lossy(&answer)).into())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Configuration {
    fn change(&mut self, change: Change) {
        match change {
            Change::Nothing => {}
            Change::OneSite => self.one += 1,
            Change::AllSites => self.all += 1,
            Change::AllOrigins => self.sinks.swap(0, 1),
        }
    }

    fn text(&self) -> Result<String> {
        let Self { shape, port, admin, answering, sinks, one, all } = self;
        let mode = if shape.is_shared { "shared" } else { "per_core" };
        let threads = shape.threads;
        let mut text = format!(
            "name = \"n\"\n[runtime]\nmode = \"{mode}\"\nthreads = {threads}\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\n[log]\naccess = \"none\"\n\
             [[listen]]\naddress = \"127.0.0.1:{port}\"\n\
             [[site]]\nhosts = \"hit.test\"\norigin = \"http://127.0.0.1:{answering}\"\n",
        );
        for site in 0..shape.sites {
            let ttl = 60 + all + if site == 0 { *one } else { 0 };
            let sink = sinks[0][site % SINKS];
            let host = if site % 2 == 0 { "*" } else { "www" };
            write!(
                text,
                "[[site]]\nhosts = \"{host}.ex{site}.test\"\norigin = \"http://127.0.0.1:{sink}\"\n\
                 default_ttl = \"{ttl}s\"\n",
            )?;
            if !shape.is_plain {
                text += "response_headers = { set = { \"X-Frame-Options\" = \"DENY\" } }\n\
                         [[site.route]]\npath = \"/static/**\"\nttl = \"1h\"\n\
                         [[site.route]]\npath = \"/api/**\"\nrequest_headers = { remove = [\"Cookie\"] }\n";
            }
        }
        Ok(text)
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Does the same with each connection that comes. Returns its port.
fn origin(serve: fn(TcpStream)) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    Ok(port)
}

/// Answers the requests of a connection with an object that can be cached for long.
fn answer(stream: TcpStream) {
    thread::spawn(move || {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=31536000\r\nContent-Length: {SIZE}\r\n\r\n"
        )
        .into_bytes();
        answer.resize(answer.len() + SIZE, b'x');
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
            if line == "\r\n" && stream.get_mut().write_all(&answer).is_err() {
                return;
            }
            line.clear();
        }
    });
}
