//! One request of a client, and what it received.

use std::{cell::Cell, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::HOST};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpSocket,
    task::spawn_local,
    time::{Instant, sleep_until, timeout},
};

use super::door::Door;
use crate::cluster::SILENCE_TIMEOUT;

/// A connection to a node.
pub(super) type Connection = SendRequest<Empty<Bytes>>;

/// How a response ended that had started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// As HTTP's framing says.
    Whole,
    /// The connection broke.
    Broken,
    /// No byte arrived for too long.
    Stalled,
}

/// The time of a request, without the pauses of the client's own reading.
pub(super) struct Waiting {
    begun: Instant,
    paused: Cell<Duration>,
}

impl Waiting {
    /// From when the request was due.
    pub(super) fn since(begun: Instant) -> Self {
        Self { begun, paused: Cell::default() }
    }

    pub(super) fn so_far(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.paused.get())
    }

    /// Pauses until the client would have read this many bytes.
    async fn pause(&self, from: Instant, bytes: u64) {
        let until = from + Duration::from_secs_f64(bytes as f64 / READING);
        let now = Instant::now();
        if until > now {
            sleep_until(until).await;
            self.paused.set(self.paused.get() + now.elapsed());
        }
    }
}

/// Sends a GET and receives the head of the response, on a kept connection if there is one. If that
/// turns out to be closed, a new one takes its place.
///
/// # Errors
/// With the reason why there is no response.
pub(super) async fn send(
    door: &Door,
    target: &str,
    fields: &HeaderMap,
) -> Result<(Connection, Response<Incoming>), String> {
    let exchange = async {
        if let Some(kept) = door.kept()
            && let Ok(answered) = over(kept, target, fields).await
        {
            return Ok(answered);
        }
        let connection = connect(door.clients).await.map_err(|error| format!("{error:#}"))?;
        over(connection, target, fields).await.map_err(|error| error.to_string())
    };
    timeout(SILENCE_TIMEOUT, exchange)
        .await
        .unwrap_or_else(|_| Err("no response in time".to_owned()))
}

async fn over(
    mut connection: Connection,
    target: &str,
    fields: &HeaderMap,
) -> hyper::Result<(Connection, Response<Incoming>)> {
    let mut request = Request::new(Empty::new());
    // Targets of the lab are paths.
    *request.uri_mut() = target.parse().unwrap_or_default();
    *request.headers_mut() = fields.clone();
    let response = connection.send_request(request).await?;
    Ok((connection, response))
}

async fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let stream = small(address, None)?.connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // The request that uses a broken connection reports the error.
    spawn_local(async move { drop(connection.await) });
    Ok(sender)
}

/// A socket with a small buffer, so that a client that does not read leaves the bytes to the node.
pub(super) fn small(to: SocketAddr, from: Option<SocketAddr>) -> std::io::Result<TcpSocket> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(BUFFER)?;
    from.map_or(Ok(()), |from| socket.bind(from))?;
    Ok(socket)
}

/// Receives a body, at the speed of the clients, and passes its pieces on.
pub(super) async fn receive(
    mut body: Incoming,
    waiting: &Waiting,
    mut take: impl FnMut(&[u8]),
) -> BodyEnd {
    let (begun, mut bytes) = (Instant::now(), 0);
    loop {
        match timeout(SILENCE_TIMEOUT, body.frame()).await {
            Err(_) => return BodyEnd::Stalled,
            Ok(None) => return BodyEnd::Whole,
            Ok(Some(Err(_))) => return BodyEnd::Broken,
            Ok(Some(Ok(frame))) => {
                let Some(piece) = frame.data_ref() else { continue };
                take(piece);
                bytes += piece.len() as u64;
                waiting.pause(begun, bytes).await;
            }
        }
    }
}

/// The fields of a request of this client.
pub(super) fn fields(host: &'static str, client: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(HOST, HeaderValue::from_static(host));
    if let Ok(client) = client.parse() {
        fields.insert("x-forwarded-for", client);
    }
    fields
}

/// Whether a node had the response stored (RFC 9211).
pub(super) fn is_hit<T>(response: &Response<T>) -> bool {
    let all = response.headers().get_all("cache-status").iter();
    let ok = response.status() == StatusCode::OK;
    ok && all.filter_map(|value| value.to_str().ok()).any(|value| value.contains("; hit"))
}

/// Bytes per second that a client reads.
const READING: f64 = 10e6;
const BUFFER: u32 = 64 << 10;
