//! Requests to an API that speaks JSON over HTTP/1.1, as those of etcd and Kubernetes: one answer, or a stream
//! with one value in each line.
//!
//! Each request has a connection of its own: sources ask rarely, and a stream holds its connection anyway. A caller that
//! asks often keeps its connections.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{Endpoint, clock::ServerClock, tls::TlsError};

/// A server of an API, and what goes with every request to it.
pub struct Api {
    /// Its address.
    pub endpoint: Endpoint,
    /// Plain text when `None`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The name that the server's certificate must have; `None`: that of the endpoint.
    pub server_name: Option<String>,
    /// Header fields of every request.
    pub fields: HeaderMap,
    /// Connections that are kept for further requests; `None` closes each after its request.
    pub idle: Option<IdleConnections>,
}

/// Connections that wait for a further request, and what their server has said of its clock.
#[derive(Default)]
pub struct IdleConnections {
    waiting: Arc<Mutex<Vec<Connection>>>,
    clock: ServerClock,
}

/// A connection. It closes when it is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _carrying: JoinSet<()>,
}

/// As many connections wait at most.
const MOST_IDLE: usize = 8;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// There is no connection.
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The answer did not come in time.
    #[error("no answer within {} s", .0.as_secs())]
    Slow(Duration),
    /// The connection ended before the answer.
    #[error("the connection broke: {0}")]
    Cut(String),
    /// The server refuses.
    #[error("the server answers {status}: {message}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The server's words.
        message: String,
    },
    /// The answer is other JSON than expected, or none.
    #[error("the answer is not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// The answer is too long.
    #[error("the answer has more than {LONGEST} bytes")]
    Long,
}

/// An answer of one value, or one value of a stream.
const LONGEST: usize = 64 << 20;
/// The part of a refusal that is quoted.
const QUOTED: usize = 300;
/// The time limit for one answer, and for the head of a stream. The answers are small and the servers near.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

impl Api {
    /// Sends a request and reads its answer.
    pub(crate) async fn ask<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<A, ApiError> {
        self.ask_within(ANSWER_TIMEOUT, method, path, body).await
    }

    /// Sends a request and reads its answer, which may take so long.
    ///
    /// # Errors
    /// If there is no answer in time, or a refusal.
    pub async fn ask_within<A: DeserializeOwned>(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<A, ApiError> {
        let answering = async {
            let answer = self.send(method, path, body).await?;
            Ok(serde_json::from_slice(&answer.whole().await?)?)
        };
        timeout(limit, answering).await.map_err(|_| ApiError::Slow(limit))?
    }

    /// Sends a request and returns the lines of its answer.
    pub(crate) async fn stream(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Lines, ApiError> {
        let answering = timeout(ANSWER_TIMEOUT, self.send(method, path, body)).await;
        let answer = answering.map_err(|_| ApiError::Slow(ANSWER_TIMEOUT))??;
        Ok(Lines { answer, buffer: Vec::new(), searched: 0 })
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Answer, ApiError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.authority())
            .header(header::ACCEPT, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(io::Error::other)?;
        request.headers_mut().extend(self.fields.clone());
        while let Some(mut connection) = self.idle.as_ref().and_then(IdleConnections::take) {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return self.answer(connection, response).await,
                // The server has closed it meanwhile, and has not seen the request.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(cut(error.into_error())),
                },
            }
        }
        let mut connection = self.connect().await?;
        let response = connection.sender.send_request(request).await.map_err(cut)?;
        self.answer(connection, response).await
    }

    async fn connect(&self) -> Result<Connection, ApiError> {
        let Endpoint { host, port, .. } = &self.endpoint;
        let stream = TcpStream::connect((&**host, *port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return handshake(stream).await };
        let name = self.server_name.clone().unwrap_or_else(|| host.to_string());
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        handshake(TlsConnector::from(tls.clone()).connect(name, stream).await?).await
    }

    async fn answer(
        &self,
        connection: Connection,
        response: Response<Incoming>,
    ) -> Result<Answer, ApiError> {
        let (head, body) = response.into_parts();
        let idle = self.idle.as_ref();
        let idle = idle.inspect(|idle| idle.clock.heard(&head.headers));
        let idle = idle.map(|idle| idle.waiting.clone());
        let answer = Answer { body, connection, idle };
        if head.status.is_success() {
            return Ok(answer);
        }
        let message = refusal(&answer.whole().await?);
        Err(ApiError::Refused { status: head.status, message })
    }
}

impl IdleConnections {
    /// The seconds by which the clock of this machine was ahead of the server's at the last answer, one more or less.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.clock.ahead()
    }

    fn take(&self) -> Option<Connection> {
        let mut waiting = self.waiting.lock();
        // The last one that was used is the least likely to be closed.
        std::iter::from_fn(|| waiting.pop()).find(|one| one.sender.is_ready())
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Connection, ApiError> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(cut)?;
    let mut carrying = JoinSet::new();
    carrying.spawn(async { drop(connection.await) });
    Ok(Connection { sender, _carrying: carrying })
}

/// Why a request was refused: `message` of a JSON object, as both APIs write it, or else the beginning of the
/// text.
fn refusal(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    // etcd's gateway sends a trailer as part of the body, so there is more than one value.
    let first = serde_json::Deserializer::from_slice(body).into_iter::<Refusal>().next();
    let text = match first {
        Some(Ok(refusal)) => refusal.message,
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    text.chars().take(QUOTED).collect()
}

/// A response whose head has come. Its connection closes when it is dropped.
struct Answer {
    body: Incoming,
    connection: Connection,
    /// Where its connection goes when the body has come.
    idle: Option<Arc<Mutex<Vec<Connection>>>>,
}

impl Answer {
    async fn whole(self) -> Result<Bytes, ApiError> {
        let Self { body, mut connection, idle } = self;
        let collected = Limited::new(body, LONGEST).collect().await;
        let body = collected.map(|body| body.to_bytes()).map_err(|error| {
            let is_long = error.is::<http_body_util::LengthLimitError>();
            if is_long { ApiError::Long } else { ApiError::Cut(error.to_string()) }
        })?;
        if let Some(idle) = idle
            && connection.sender.ready().await.is_ok()
        {
            let mut idle = idle.lock();
            if idle.len() < MOST_IDLE {
                idle.push(connection);
            }
        }
        Ok(body)
    }
}

/// The lines of an answer that goes on for as long as there is news.
pub(crate) struct Lines {
    answer: Answer,
    buffer: Vec<u8>,
    /// The part of the buffer that has no end of a line.
    searched: usize,
}

impl Lines {
    /// The value of the next line; `None` at the end. It may be dropped and asked for again: nothing is lost.
    pub(crate) async fn next<V: DeserializeOwned>(&mut self) -> Result<Option<V>, ApiError> {
        loop {
            let fresh = &self.buffer[self.searched..];
            if let Some(end) = fresh.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
                self.searched = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > LONGEST {
                return Err(ApiError::Long);
            }
            match self.answer.body.frame().await {
                Some(Ok(frame)) => {
                    self.buffer.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
                }
                Some(Err(error)) => return Err(cut(error)),
                None if self.buffer.trim_ascii().is_empty() => return Ok(None),
                // The last line may be without its end.
                None => {
                    return Ok(Some(serde_json::from_slice(&std::mem::take(&mut self.buffer))?));
                }
            }
        }
    }
}

/// The reason is in the sources of hyper's error, such as the alert of a server that wants a certificate.
fn cut(error: hyper::Error) -> ApiError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    ApiError::Cut(text)
}
