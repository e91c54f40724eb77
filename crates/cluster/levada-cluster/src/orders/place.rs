//! The way of purge orders to the process that carries them out in place of this one, once this one has let go
//! of its journal.
//!
//! Orders that arrive while that process is not ready yet wait for it. They are passed on as the requests that
//! operators and peers make, over a socket between the two processes.

use std::{io, os::unix::net::UnixStream as StdUnixStream, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::UnixStream,
    sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock},
};

/// How long the other process may take for an order, which it passes to the peers: longer than it waits for them.
const PASS_TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of an answer.
const MAX_ANSWER: usize = 4 << 20;

/// Where orders are carried out: `None` is here.
#[derive(Default)]
pub struct OrderPlace(Arc<RwLock<Option<OrderWay>>>);

/// The way to the other process.
pub struct OrderWay(Mutex<SendRequest<Full<Bytes>>>);

/// Held while an order is carried out here.
pub type OrdersHere = OwnedRwLockReadGuard<Option<OrderWay>>;

/// Orders wait while this is held.
pub type OrdersWait = OwnedRwLockWriteGuard<Option<OrderWay>>;

impl OrderPlace {
    /// The place, which stays the same while this is held.
    pub async fn now(&self) -> OrdersHere {
        self.0.clone().read_owned().await
    }

    /// Lets orders wait.
    pub async fn pause(&self) -> OrdersWait {
        self.0.clone().write_owned().await
    }
}

impl OrderWay {
    /// The process at the other end of this socket.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub async fn by(socket: StdUnixStream) -> io::Result<Self> {
        let (sender, connection) = handshake(known(socket)?).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Self(Mutex::new(sender)))
    }

    /// Passes on an order or a message. Returns the answer.
    ///
    /// # Errors
    /// When the other process does not answer.
    pub async fn pass_on(&self, path: &str, json: Bytes) -> io::Result<(StatusCode, String)> {
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(json))
            .map_err(io::Error::other)?;
        let asking = async {
            let mut sender = self.0.lock().await;
            sender.ready().await.map_err(io::Error::other)?;
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let text = body.map_err(io::Error::other)?.to_bytes();
            Ok((head.status, String::from_utf8_lossy(&text).into_owned()))
        };
        tokio::time::timeout(PASS_TIMEOUT, asking).await?
    }
}

/// Answers what the former process passes on, until it has ended.
pub async fn serve<F: Future<Output = Response<Full<Bytes>>>>(
    socket: StdUnixStream,
    answer: impl Fn(Request<Incoming>) -> F,
) {
    let served = async {
        let service = service_fn(|request| {
            let answer = answer(request);
            async { Ok::<_, io::Error>(answer.await) }
        });
        let builder = server::conn::http1::Builder::new();
        builder.serve_connection(known(socket)?, service).await.map_err(io::Error::other)
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "the former process passes on no more purges");
    }
}

fn known(socket: StdUnixStream) -> io::Result<TokioIo<UnixStream>> {
    socket.set_nonblocking(true)?;
    Ok(TokioIo::new(UnixStream::from_std(socket)?))
}
