//! One client of a lab: it sends requests on one connection and verifies every byte.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{CONNECTION, HOST},
};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use levada_sim::prototype;
use levada_types::Key;
use tokio::net::TcpStream;

use levada_client::command::content::Verifier;

/// A client and its connection, which is kept from request to request.
pub(crate) struct Client {
    server: SocketAddr,
    connection: Option<SendRequest<Empty<Bytes>>>,
    once: bool,
}

impl Client {
    pub(crate) fn of(server: SocketAddr) -> Self {
        Self { server, connection: None, once: false }
    }

    /// With a connection for each request, as clients of HTTP/1.0 have.
    pub(crate) fn asking_once(self) -> Self {
        Self { once: true, ..self }
    }

    /// Requests `target` and receives all of its `size` bytes; returns the fields of the response.
    ///
    /// # Errors
    /// If there is no answer, a status other than 200, or a wrong body.
    pub(crate) async fn get(&mut self, target: &str, size: u64) -> anyhow::Result<HeaderMap> {
        let mut connection = match self.connection.take().filter(SendRequest::is_ready) {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut request = Request::get(target).header(HOST, prototype::HOST).body(Empty::new())?;
        if self.once {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let response = connection.send_request(request).await.context("no answer")?;
        ensure!(response.status() == StatusCode::OK, "status {}", response.status().as_u16());
        let (head, mut body) = response.into_parts();
        let mut verifier = Verifier::new(Key::of(target.as_bytes()));
        while let Some(frame) = body.frame().await {
            if let Some(piece) = frame.context("the body broke off")?.data_ref() {
                verifier.take(piece);
            }
        }
        ensure!(verifier.is_whole(size), "wrong body: {} of {size} bytes", verifier.bytes());
        if !self.once && connection.ready().await.is_ok() {
            self.connection = Some(connection);
        }
        Ok(head.headers)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
        let stream = TcpStream::connect(self.server).await.context("no connection")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The request that uses a broken connection reports the error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}
