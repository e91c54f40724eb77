//! Requests to an API that speaks JSON over HTTP/1.1, as those of etcd and Kubernetes: one answer, or a stream
//! with one value in each line.
//!
//! Each request has a connection of its own. Sources ask rarely, and a stream holds its connection anyway.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{Endpoint, tls::TlsError};

/// A server of an API, and what goes with every request to it.
pub(crate) struct Api {
    pub(crate) endpoint: Endpoint,
    /// Plain text when `None`.
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    /// The name that the server's certificate must have; `None`: that of the endpoint.
    pub(crate) server_name: Option<String>,
    /// Header fields of every request.
    pub(crate) fields: HeaderMap,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("no answer within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("the connection broke: {0}")]
    Cut(String),
    #[error("the server answers {status}: {message}")]
    Refused { status: StatusCode, message: String },
    #[error("the answer is not understood: {0}")]
    Json(#[from] serde_json::Error),
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
        let answering = async {
            let answer = self.send(method, path, body).await?;
            Ok(serde_json::from_slice(&answer.whole().await?)?)
        };
        timeout(ANSWER_TIMEOUT, answering).await.map_err(|_| ApiError::Slow(ANSWER_TIMEOUT))?
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
        let Endpoint { host, port, .. } = &self.endpoint;
        let stream = TcpStream::connect((&**host, *port)).await?;
        stream.set_nodelay(true)?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.authority())
            .header(header::ACCEPT, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(io::Error::other)?;
        request.headers_mut().extend(self.fields.clone());
        let Some(tls) = &self.tls else {
            return exchange(stream, request).await;
        };
        let name = self.server_name.clone().unwrap_or_else(|| host.to_string());
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        exchange(TlsConnector::from(tls.clone()).connect(name, stream).await?, request).await
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Answer, ApiError> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(cut)?;
    let mut carrying = JoinSet::new();
    carrying.spawn(async { drop(connection.await) });
    let response = sender.send_request(request).await.map_err(cut)?;
    let (head, body) = response.into_parts();
    let answer = Answer { body, _connection: carrying };
    if head.status.is_success() {
        return Ok(answer);
    }
    let message = refusal(&answer.whole().await?);
    Err(ApiError::Refused { status: head.status, message })
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
    _connection: JoinSet<()>,
}

impl Answer {
    async fn whole(self) -> Result<Bytes, ApiError> {
        let collected = Limited::new(self.body, LONGEST).collect().await;
        collected.map(|body| body.to_bytes()).map_err(|error| {
            let is_long = error.is::<http_body_util::LengthLimitError>();
            if is_long { ApiError::Long } else { ApiError::Cut(error.to_string()) }
        })
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
