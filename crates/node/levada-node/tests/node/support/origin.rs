//! A scripted origin: it replies path by path, and records its requests.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

/// Blocks until it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn passed(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// A link that replies share: so many bytes at a time pass, of one reply after another.
#[derive(Clone, Debug)]
pub(crate) struct SlowLink(Arc<tokio::sync::Mutex<usize>>);

impl SlowLink {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(tokio::sync::Mutex::new(bytes)))
    }

    async fn carry(&self, stream: &mut impl Socket, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let most = self.0.lock().await;
            tokio::time::sleep(Duration::from_millis(8)).await;
            let (now, later) = bytes.split_at(bytes.len().min(*most));
            stream.write_all(now).await?;
            bytes = later;
        }
        Ok(())
    }
}

/// A step of the origin's reply.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// Bytes that pass a link.
    Slowly(SlowLink, Vec<u8>),
    /// Waits.
    Gate(Gate),
    /// Closes the connection.
    Cut,
}

/// The origin's reply to a request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: String,
    fields: Vec<(String, String)>,
    body: Vec<Piece>,
    before: Option<Gate>,
    chunked: bool,
    raw: bool,
    close: bool,
}

impl Reply {
    /// 200 with this body, without caching fields.
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: "200 OK".to_owned(),
            fields: Vec::new(),
            body: vec![Piece::Bytes(body.into())],
            before: None,
            chunked: false,
            raw: false,
            close: false,
        }
    }

    /// 200 with this body, fresh for a minute.
    pub(crate) fn cached(body: impl Into<Vec<u8>>) -> Self {
        Self::ok(body).with("cache-control", "max-age=60")
    }

    /// Chunked, in these pieces.
    pub(crate) fn chunked(pieces: Vec<Piece>) -> Self {
        Self { body: pieces, chunked: true, ..Self::ok("") }
    }

    /// Exactly these bytes, then the connection closes.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { raw: true, close: true, ..Self::ok(bytes) }
    }

    /// Closes the connection without an answer.
    pub(crate) fn hang_up() -> Self {
        Self { body: vec![Piece::Cut], ..Self::raw("") }
    }

    pub(crate) fn status(mut self, status: &str) -> Self {
        status.clone_into(&mut self.status);
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The head waits at the gate.
    pub(crate) fn after(mut self, gate: &Gate) -> Self {
        self.before = Some(gate.clone());
        self
    }

    /// Sent in these pieces, with a `Content-Length` given by [`with`](Self::with).
    pub(crate) fn pieces(mut self, pieces: Vec<Piece>) -> Self {
        self.body = pieces;
        self
    }

    /// Closes the connection after the reply, without `Connection: close`.
    pub(crate) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    async fn carry_out(&self, stream: &mut impl Socket, asked: &Asked) -> std::io::Result<bool> {
        if let Some(gate) = &self.before {
            gate.passed().await;
        }
        if !self.raw {
            stream.write_all(self.head().as_bytes()).await?;
            if asked.method == "HEAD" || self.status.starts_with("304") {
                return Ok(!self.close);
            }
        }
        for piece in &self.body {
            match piece {
                Piece::Gate(gate) => gate.passed().await,
                Piece::Cut => return Ok(false),
                Piece::Bytes(bytes) if self.chunked && !bytes.is_empty() => {
                    stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
                    stream.write_all(bytes).await?;
                    stream.write_all(b"\r\n").await?;
                }
                Piece::Bytes(bytes) => stream.write_all(bytes).await?,
                Piece::Slowly(link, bytes) => link.carry(stream, bytes).await?,
            }
        }
        if self.chunked {
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Ok(!self.close)
    }

    fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {}\r\n", self.status);
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        let has_length = self.fields.iter().any(|(name, _)| name == "content-length");
        if self.chunked {
            head += "transfer-encoding: chunked\r\n";
        } else if !has_length && !self.status.starts_with("304") && !self.status.starts_with("204")
        {
            let length: usize = self
                .body
                .iter()
                .map(|piece| if let Piece::Bytes(bytes) = piece { bytes.len() } else { 0 })
                .sum();
            head += &format!("content-length: {length}\r\n");
        }
        head + "\r\n"
    }
}

/// A request as the origin saw it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// The values of a field, one after another.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// The number of lines of a field in the head.
    pub(crate) fn lines(&self, name: &str) -> usize {
        let named = |line: &&str| {
            line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name))
        };
        self.head.lines().skip(1).filter(named).count()
    }
}

type Script = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

#[derive(Default)]
struct Memory {
    scripts: HashMap<String, Script>,
    otherwise: Option<Script>,
    asked: Vec<Asked>,
    forgetful: bool,
    connections: usize,
    arriving: usize,
}

/// An origin on loopback. Stops when dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    task: AbortHandle,
}

impl Origin {
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap()).await
    }

    /// Listens at this address, which another origin used before.
    pub(crate) async fn at(address: SocketAddr) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1024).unwrap();
        let address = listener.local_addr().unwrap();
        let memory = Arc::<Mutex<Memory>>::default();
        let task = tokio::spawn(accept(listener, memory.clone())).abort_handle();
        Self { address, memory, task }
    }

    /// Listens at a Unix socket, whose file is replaced and never removed.
    pub(crate) fn at_socket(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let memory = Arc::<Mutex<Memory>>::default();
        let address = SocketAddr::from(([0; 4], 0));
        let task = tokio::spawn(accept(listener, memory.clone())).abort_handle();
        Self { address, memory, task }
    }

    /// Sets the reply to a path. Other paths get their own target as a body, fresh for a minute.
    pub(crate) fn on(&self, path: &str, reply: Reply) {
        self.script(path, move |_| reply.clone());
    }

    pub(crate) fn script(
        &self,
        path: &str,
        script: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) {
        self.memory.lock().unwrap().scripts.insert(path.to_owned(), Arc::new(script));
    }

    /// Sets the reply to every path without one of its own.
    pub(crate) fn otherwise(&self, script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        self.memory.lock().unwrap().otherwise = Some(Arc::new(script));
    }

    /// All requests for a path that have been read to the end.
    pub(crate) fn asked(&self, path: &str) -> Vec<Asked> {
        let memory = self.memory.lock().unwrap();
        memory.asked.iter().filter(|asked| path_of(&asked.target) == path).cloned().collect()
    }

    pub(crate) fn hits(&self, path: &str) -> usize {
        self.asked(path).len()
    }

    pub(crate) fn total(&self) -> usize {
        self.memory.lock().unwrap().asked.len()
    }

    /// Records nothing from now on, so that a flood does not fill its memory.
    pub(crate) fn forget(&self) {
        self.memory.lock().unwrap().forgetful = true;
    }

    pub(crate) fn connections(&self) -> usize {
        self.memory.lock().unwrap().connections
    }

    /// The number of request heads received, whether or not their bodies have arrived.
    pub(crate) fn heads(&self) -> usize {
        self.memory.lock().unwrap().arriving
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl Socket for TcpStream {}
impl Socket for UnixStream {}

trait Listener: Send + Sync + 'static {
    fn next(&self) -> impl Future<Output = std::io::Result<impl Socket>> + Send;
}

impl Listener for TcpListener {
    async fn next(&self) -> std::io::Result<impl Socket> {
        let (stream, _) = self.accept().await?;
        stream.set_nodelay(true).map(|()| stream)
    }
}

impl Listener for UnixListener {
    async fn next(&self) -> std::io::Result<impl Socket> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

async fn accept(listener: impl Listener, memory: Arc<Mutex<Memory>>) {
    // Dropping this task closes the connections.
    let mut connections = JoinSet::new();
    loop {
        let Ok(stream) = listener.next().await else { return };
        memory.lock().unwrap().connections += 1;
        connections.spawn(serve(stream, memory.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: impl Socket, memory: Arc<Mutex<Memory>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let head = read_head(&mut stream, &mut buffer).await?;
        memory.lock().unwrap().arriving += 1;
        let mut words = head.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut asked = Asked { method, target, head, body: Vec::new() };
        asked.body = read_body(&mut stream, &mut buffer, &asked).await?;
        let script = {
            let mut memory = memory.lock().unwrap();
            if !memory.forgetful {
                memory.asked.push(asked.clone());
            }
            memory.scripts.get(path_of(&asked.target)).or(memory.otherwise.as_ref()).cloned()
        };
        let reply =
            script.map_or_else(|| Reply::cached(asked.target.clone()), |script| script(&asked));
        if !reply.carry_out(&mut stream, &asked).await.ok()? {
            return None;
        }
    }
}

fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

async fn more(stream: &mut impl Socket, buffer: &mut Vec<u8>) -> Option<()> {
    (stream.read_buf(buffer).await.ok()? > 0).then_some(())
}

async fn read_head(stream: &mut impl Socket, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = buffer.drain(..at + 4).collect();
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        more(stream, buffer).await?;
    }
}

async fn read_body(
    stream: &mut impl Socket,
    buffer: &mut Vec<u8>,
    asked: &Asked,
) -> Option<Vec<u8>> {
    if asked.header("transfer-encoding").is_none() {
        let length = asked.header("content-length").map_or(0, |l| l.parse().unwrap());
        return take(stream, buffer, length).await;
    }
    let mut body = Vec::new();
    loop {
        let size = loop {
            if let Some(at) = buffer.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = buffer.drain(..at + 2).collect();
                break usize::from_str_radix(std::str::from_utf8(&line[..at]).ok()?, 16).ok()?;
            }
            more(stream, buffer).await?;
        };
        body.extend(take(stream, buffer, size).await?);
        take(stream, buffer, 2).await?;
        if size == 0 {
            return Some(body);
        }
    }
}

async fn take(stream: &mut impl Socket, buffer: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    Some(buffer.drain(..length).collect())
}
