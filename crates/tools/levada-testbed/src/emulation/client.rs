//! One client of a lab: it sends requests over kept connections and verifies every byte.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use http::{HeaderMap, HeaderValue, StatusCode, header::CONNECTION};
use levada_client::command::content::Verifier;
use levada_sim::prototype;
use levada_types::Key;

use crate::cluster::client::{BodyEnd, IdleConnections, Reader, connect, fields, request};

/// A client of one server.
pub struct Client {
    server: SocketAddr,
    idle: IdleConnections,
    fields: HeaderMap,
    once: bool,
}

impl Client {
    /// With a connection `once` for each request, as clients of HTTP/1.0 have, or with kept ones.
    pub fn of(server: SocketAddr, once: bool) -> Self {
        let mut fields = fields(prototype::HOST);
        if once {
            fields.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Self { server, idle: IdleConnections::default(), fields, once }
    }

    /// Requests `target` and receives all of its `size` bytes; returns the fields of the response.
    ///
    /// # Errors
    /// If there is no answer, a status other than 200, or a wrong body.
    pub async fn get(&self, target: &str, size: u64) -> anyhow::Result<HeaderMap> {
        let mut connection = match self.idle.take() {
            Some(kept) => kept,
            None => connect(self.server).await.context("no connection")?,
        };
        let response = connection.send_request(request(target, &self.fields)).await;
        let response = response.context("no answer")?;
        ensure!(response.status() == StatusCode::OK, "status {}", response.status().as_u16());
        let fields = response.headers().clone();
        let mut verifier = Verifier::new(Key::of(target.as_bytes()));
        let mut reader = Reader::new(f64::INFINITY, Duration::MAX);
        if let BodyEnd::Broken(error) = reader.receive(response, |piece| verifier.take(piece)).await
        {
            return Err(error).context("the body broke off");
        }
        ensure!(verifier.is_whole(size), "wrong body: {} of {size} bytes", verifier.bytes());
        if !self.once {
            self.idle.keep(connection).await;
        }
        Ok(fields)
    }
}
