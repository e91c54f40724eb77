//! The client of all labs and of the demo: GETs over connections that are kept.

use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header::HOST};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

/// A connection to a server.
pub type Connection = SendRequest<Empty<Bytes>>;

/// A connection to this address.
///
/// # Errors
/// If nothing listens there.
pub async fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(handshake(stream).await?)
}

/// A connection over this stream.
///
/// # Errors
/// If the stream is broken.
pub async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> hyper::Result<Connection> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The request that uses a broken connection reports the error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// The connections to a server that wait for a request.
#[derive(Default)]
pub struct IdleConnections(Mutex<Vec<Connection>>);

impl IdleConnections {
    /// The one that was used last.
    pub fn take(&self) -> Option<Connection> {
        let mut all = self.lock();
        all.retain(Connection::is_ready);
        all.pop()
    }

    /// Keeps a connection whose response has ended.
    pub async fn keep(&self, mut connection: Connection) {
        if connection.ready().await.is_ok() {
            self.lock().push(connection);
        }
    }

    /// Closes all of them.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fields of a request to this host.
pub fn fields(host: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))])
}

/// A GET. Targets are paths or URLs without characters that would have to be escaped.
pub fn request(target: &str, fields: &HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = target.parse().unwrap_or_default();
    *request.headers_mut() = fields.clone();
    request
}

/// How a response ended that had started.
#[derive(Debug)]
pub enum BodyEnd {
    /// As HTTP's framing says.
    Whole,
    /// The connection broke.
    Broken(hyper::Error),
    /// No byte arrived for too long.
    Stalled,
}

/// Receives bodies at the speed of one client.
pub struct Reader {
    /// Bytes per second.
    rate: f64,
    silence: Duration,
    paused: Duration,
}

impl Reader {
    /// A client that reads this many bytes per second and gives up after a `silence`.
    pub fn new(rate: f64, silence: Duration) -> Self {
        Self { rate, silence, paused: Duration::ZERO }
    }

    /// The time in which it had bytes to read and did not.
    pub fn paused(&self) -> Duration {
        self.paused
    }

    /// Receives a body and passes its pieces on.
    pub async fn receive(
        &mut self,
        response: Response<Incoming>,
        mut take: impl FnMut(&[u8]),
    ) -> BodyEnd {
        let (mut body, begun, mut bytes) = (response.into_body(), Instant::now(), 0);
        loop {
            match timeout(self.silence, body.frame()).await {
                Err(_) => return BodyEnd::Stalled,
                Ok(None) => return BodyEnd::Whole,
                Ok(Some(Err(error))) => return BodyEnd::Broken(error),
                Ok(Some(Ok(frame))) => {
                    let Some(piece) = frame.data_ref() else { continue };
                    take(piece);
                    bytes += piece.len();
                    let (now, until) = (begun.elapsed(), bytes as f64 / self.rate);
                    let pause = Duration::from_secs_f64(until).saturating_sub(now);
                    if !pause.is_zero() {
                        sleep(pause).await;
                        self.paused += begun.elapsed() - now;
                    }
                }
            }
        }
    }
}
