//! A client that sends exactly the given bytes, and distinguishes a whole answer from one that was cut.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use super::{HOST, within};

pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A connection, byte by byte.
pub(crate) struct Wire {
    io: Box<dyn Io>,
    buffer: Vec<u8>,
}

/// A connection from the address 127.0.0.`client`.
pub(crate) async fn connect_from(client: u8, at: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, client], 0))).unwrap();
    within(socket.connect(at)).await.unwrap()
}

/// A response. Status 0 when the connection ended without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The body ended as its framing says.
    pub(crate) whole: bool,
}

impl Answer {
    /// The values of a field, one after another.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let of = |(found, value): &(String, String)| (found == name).then(|| value.clone());
        let values: Vec<String> = self.fields.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// The values of a field, or nothing at all.
    pub(crate) fn field(&self, name: &str) -> String {
        self.header(name).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the first cache on the way answered from its store.
    pub(crate) fn is_hit(&self) -> bool {
        self.field("cache-status").contains("; hit")
    }
}

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = within(TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    pub(crate) fn over(io: impl Io + 'static) -> Self {
        Self { io: Box::new(io), buffer: Vec::new() }
    }

    /// Connects with a small receive buffer, so that a slow reader is noticed.
    pub(crate) async fn narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self::over(within(socket.connect(address)).await.unwrap())
    }

    /// A connection that has sent these bytes.
    pub(crate) async fn saying(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Self {
        let mut wire = Self::to(address).await;
        wire.send(bytes).await;
        wire
    }

    /// Sends; an error shows in the answer.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = within(self.io.write_all(bytes.as_ref())).await;
        let _ = within(self.io.flush()).await;
    }

    /// Sends bytes. Returns whether that was possible.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        within(self.io.write_all(bytes)).await.is_ok()
    }

    /// The final answer to a GET.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.answer_to("GET").await
    }

    pub(crate) async fn answer_to(&mut self, method: &str) -> Answer {
        let mut answer = self.head().await;
        while (100..200).contains(&answer.status) && answer.status != 101 {
            answer = self.head().await;
        }
        self.body(&mut answer, method).await;
        answer
    }

    /// The next head.
    pub(crate) async fn head(&mut self) -> Answer {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..at + 4).collect();
                return parse_head(&String::from_utf8_lossy(&head));
            }
            if !self.more().await {
                return Answer::default();
            }
        }
    }

    /// The next bytes of a body of known length.
    pub(crate) async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.more().await, "closed after {} of {length} bytes", self.buffer.len());
        }
        self.buffer.drain(..length).collect()
    }

    /// Reads to the end of the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads to the end. Returns the number of bytes, and whether the end was an orderly one.
    pub(crate) async fn read_out(mut self) -> (usize, std::io::Result<usize>) {
        let mut read = self.buffer.len();
        let mut bytes = vec![0; 64 << 10];
        loop {
            match within(self.io.read(&mut bytes)).await {
                Ok(count @ 1..) => read += count,
                end => return (read, end),
            }
        }
    }

    /// Reads until the bytes end with `end`.
    pub(crate) async fn rest_until(&mut self, end: &[u8]) -> Vec<u8> {
        while !self.buffer.ends_with(end) && self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    /// The next bytes that arrive, or none at the end.
    pub(crate) async fn some(&mut self) -> Vec<u8> {
        if self.buffer.is_empty() {
            self.more().await;
        }
        std::mem::take(&mut self.buffer)
    }

    pub(crate) async fn body(&mut self, answer: &mut Answer, method: &str) {
        let bodiless = method == "HEAD" || matches!(answer.status, 0 | 101 | 204 | 304);
        if bodiless {
            answer.whole = answer.status != 0;
        } else if answer.header("transfer-encoding").is_some() {
            answer.whole = self.chunks(&mut answer.body).await.is_some();
        } else if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.buffer.len() < length && self.more().await {}
            answer.whole = self.buffer.len() >= length;
            let taken = self.buffer.len().min(length);
            answer.body = self.buffer.drain(..taken).collect();
        } else {
            answer.body = self.rest().await;
            answer.whole = true;
        }
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        loop {
            let line = loop {
                if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                    break self.buffer.drain(..at + 2).collect::<Vec<u8>>();
                }
                self.more().await.then_some(())?;
            };
            let line = String::from_utf8(line).ok()?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            while self.buffer.len() < size + 2 {
                self.more().await.then_some(())?;
            }
            body.extend(self.buffer.drain(..size));
            self.buffer.drain(..2);
            if size == 0 {
                return Some(());
            }
        }
    }

    async fn more(&mut self) -> bool {
        within(self.io.read_buf(&mut self.buffer)).await.is_ok_and(|read| read > 0)
    }
}

fn parse_head(head: &str) -> Answer {
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let fields = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Answer { status: status.expect("a status line"), fields, ..Answer::default() }
}

/// A request head.
pub(crate) fn head_of(method: &str, target: &str, fields: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head += &format!("Host: {HOST}\r\n");
    }
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}

/// A GET over a connection of its own.
pub(crate) async fn get(address: SocketAddr, target: &str) -> Answer {
    get_with(address, target, &[]).await
}

pub(crate) async fn get_with(address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> Answer {
    Wire::saying(address, head_of("GET", target, fields)).await.answer().await
}
