//! One object of any length, sent by HTTP/1.1 with ranges: the server of the experiments.
//!
//! It can treat its clients like a moved route: it resets connections at a given age, or gives up
//! dormant ones with the same watch as a node.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::header::RANGE;
use levada_client::command::content;
use levada_net::{
    dormant::{DormancyWatch, MonitoredStream, WatchedConnection},
    tcp::reset_on_close,
};
use levada_testbed::cluster::client::{BodyEnd, Reader, connect, fields, request};
use levada_types::Key;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::AbortHandle,
};

/// The object, and the treatment of connections.
pub(super) struct Sender {
    /// Size of the object.
    pub(super) size: u64,
    /// The age at which a connection is reset.
    pub(super) reset_after: Option<Duration>,
    /// Unanswered retransmissions after which a connection is reset.
    pub(super) dormant_retries: Option<u8>,
    /// Connections that were reset for that reason.
    pub(super) dormant: AtomicU64,
}

type Task = OnceLock<AbortHandle>;

impl Sender {
    pub(super) fn new(size: u64) -> Self {
        Self { size, reset_after: None, dormant_retries: None, dormant: AtomicU64::new(0) }
    }

    /// Serves until it is dropped.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let watch = self.dormant_retries.map(DormancyWatch::<Task>::new);
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ticks.tick(), if watch.is_some() => {
                    let give_up = |seat: &WatchedConnection<Task>| {
                        self.dormant.fetch_add(1, Relaxed);
                        seat.about.get().map(AbortHandle::abort);
                    };
                    watch.iter().for_each(|watch| watch.sweep(|seat, _| give_up(seat)));
                    continue;
                }
            };
            let Ok((stream, _)) = accepted else { continue };
            let seat = WatchedConnection::new(Task::new());
            let stream = MonitoredStream::new(stream, watch.clone(), seat.clone());
            let sender = self.clone();
            let task = tokio::spawn(async move { sender.connection(stream).await });
            let _ = seat.about.set(task.abort_handle());
        }
    }

    async fn connection(&self, mut stream: MonitoredStream<Task>) {
        let age = self.reset_after.unwrap_or(NEVER);
        tokio::select! {
            _ = self.answers(&mut stream) => return,
            () = tokio::time::sleep(age) => {}
        }
        let _ = reset_on_close(stream.stream());
    }

    async fn answers(&self, stream: &mut MonitoredStream<Task>) -> io::Result<()> {
        let (mut head, mut piece) = (Vec::new(), vec![0; PIECE as usize]);
        loop {
            while !head.ends_with(b"\r\n\r\n") {
                if head.len() > LONGEST_HEAD {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                head.push(stream.read_u8().await?);
            }
            let asked = range(&head, self.size);
            let (first, end) = asked.unwrap_or((0, self.size));
            let (last, size) = (end.saturating_sub(1), self.size);
            let status = match asked {
                Some(_) => {
                    format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{size}")
                }
                None => "200 OK".to_owned(),
            };
            let length = end - first;
            let sent = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\n\r\n"
            );
            stream.write_all(sent.as_bytes()).await?;
            let is_get = head.starts_with(b"GET ");
            let mut at = if is_get { first } else { end };
            while at < end {
                let piece = &mut piece[..PIECE.min(end - at) as usize];
                content::write(KEY, at, piece);
                stream.write_all(piece).await?;
                at += piece.len() as u64;
            }
            head.clear();
        }
    }
}

/// The first byte requested and the one after the last.
fn range(head: &[u8], size: u64) -> Option<(u64, u64)> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = head.lines();
    let (first, last) =
        lines.find_map(|line| line.strip_prefix("range: bytes=")?.split_once('-'))?;
    let first = first.trim().parse().unwrap_or(0).min(size);
    let end = last.trim().parse::<u64>().map_or(size, |last| last.saturating_add(1)).min(size);
    Some((first, end.max(first)))
}

/// A listener on a host, for a runtime on any thread.
pub(super) fn listen(
    host: &levada_net::lab::Host,
    address: std::net::Ipv4Addr,
    port: u16,
) -> anyhow::Result<std::net::TcpListener> {
    let listener = host.namespace().run(|| {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::from((address, port)).into())?;
        socket.listen(16_384)?;
        io::Result::Ok(socket.into())
    })??;
    Ok(listener)
}

/// Requests the object from a byte on; whether all of it came.
pub(super) async fn download(
    server: SocketAddr,
    first: u64,
    seen: impl FnMut(&[u8]),
) -> anyhow::Result<()> {
    let mut connection = connect(server).await?;
    let mut fields = fields("anycast.test");
    fields.insert(RANGE, format!("bytes={first}-").parse()?);
    let response = connection.send_request(request("/", &fields)).await?;
    match Reader::new(f64::INFINITY, Duration::MAX).receive(response, seen).await {
        BodyEnd::Broken(error) => Err(error.into()),
        BodyEnd::Whole | BodyEnd::Stalled => Ok(()),
    }
}

/// The key of the object's bytes.
pub(super) const KEY: Key = Key(1);
/// Bytes sent at a time.
const PIECE: u64 = 64 << 10;
/// As that of a node: half of Linux' shortest retransmission timeout.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
const LONGEST_HEAD: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_clients_write_them() {
        assert_eq!(range(b"GET / HTTP/1.1\r\n\r\n", 9), None);
        assert_eq!(range(b"GET / HTTP/1.1\r\nRange: bytes=3-\r\n\r\n", 9), Some((3, 9)));
        assert_eq!(range(b"GET / HTTP/1.1\r\nrange: bytes=3-4\r\n\r\n", 9), Some((3, 5)));
        assert_eq!(range(b"GET / HTTP/1.1\r\nrange: bytes=30-4\r\n\r\n", 9), Some((9, 9)));
    }
}
