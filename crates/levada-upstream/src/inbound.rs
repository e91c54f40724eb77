//! The body of a response while it arrives.

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, client::conn::http2};
use levada_http1::{ResponseBodyError, UpstreamConnection, ZeroCopyQueue};
use prometheus_client::metrics::counter::Counter;

use crate::{AdmittedRequest, RequestBody, ResponseGuard, Server, pool::PooledSender};

/// The reason why the body of a response broke off.
#[derive(Debug, thiserror::Error)]
pub enum InboundError {
    /// The connection over HTTP/2, with its error.
    #[error("the server's body broke off: {0}")]
    Http2(#[from] hyper::Error),
    /// The connection over HTTP/1.1, with the reason.
    #[error("the server's body broke off: {0}")]
    Http1(&'static str),
    /// The body of the request, which was still being sent.
    #[error("the request's body broke off")]
    Request,
    /// No piece came for too long.
    #[error("the server sent nothing for too long")]
    Stalled,
}

impl From<ResponseBodyError> for InboundError {
    fn from(error: ResponseBodyError) -> Self {
        match error {
            ResponseBodyError::Broken(reason) => Self::Http1(reason),
            ResponseBodyError::Request => Self::Request,
        }
    }
}

/// A response whose body is still arriving.
pub type UpstreamResponse = Response<Inbound>;

/// A response's body and the connection that it arrives on, which the next request may use when the
/// body has ended. Dropped earlier, the connection is closed.
pub struct Inbound {
    server: Arc<Server>,
    source: InboundSource,
    /// The client that the connection has stated.
    client: Option<IpAddr>,
    _admitted: Option<AdmittedRequest<()>>,
    /// Lasts until the body has ended.
    guard: Option<Box<dyn ResponseGuard>>,
    /// Counts the bytes of the body.
    received: Option<Counter>,
}

pub(crate) enum InboundSource {
    /// `None` when the body has ended.
    Http1(Option<Box<UpstreamConnection<RequestBody>>>),
    Http2(Incoming, Option<http2::SendRequest<RequestBody>>),
}

impl Inbound {
    pub(crate) fn new(
        server: Arc<Server>,
        source: InboundSource,
        client: Option<IpAddr>,
        admitted: Option<AdmittedRequest<()>>,
    ) -> Self {
        let mut body =
            Self { server, source, client, _admitted: admitted, guard: None, received: None };
        if body.is_end_stream() {
            body.give_back();
        }
        body
    }

    /// The server that the response comes from.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The next frame of the body.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InboundError>>> {
        let polled = match &mut self.source {
            InboundSource::Http1(None) => return Poll::Ready(None),
            InboundSource::Http1(Some(link)) => {
                link.poll_frame(cx).map(|item| item.map(|frame| frame.map_err(InboundError::from)))
            }
            InboundSource::Http2(body, _) => Pin::new(body)
                .poll_frame(cx)
                .map(|item| item.map(|frame| frame.map_err(InboundError::from))),
        };
        if let Some(guard) = &self.guard {
            guard.polled(polled.is_ready() || self.waits_for_client());
        }
        let item = ready!(polled);
        if let Some(Ok(frame)) = &item {
            self.server.health.progressed();
            if let (Some(received), Some(data)) = (&self.received, frame.data_ref()) {
                received.inc_by(data.len() as u64);
            }
        }
        let ended = match &item {
            Some(Ok(_)) => self.is_end_stream(),
            Some(Err(_)) => false,
            None => true,
        };
        if ended {
            self.give_back();
        }
        Poll::Ready(item)
    }

    /// Bounds the bytes of the body that are read at once, for callers with a memory budget.
    pub fn read_at_most(&mut self, bytes: usize) {
        if let InboundSource::Http1(Some(link)) = &mut self.source {
            link.read_at_most(bytes);
        }
    }

    /// Lets the system move the body to the client that has this queue, if it is long. Returns whether it
    /// does.
    pub fn convey(&mut self, zero_copy: &Arc<ZeroCopyQueue>) -> bool {
        let InboundSource::Http1(Some(link)) = &mut self.source else { return false };
        link.convey(zero_copy)
    }

    /// Whether reading waits for the client to take the previous piece.
    pub fn waits_for_client(&self) -> bool {
        matches!(&self.source, InboundSource::Http1(Some(link)) if link.waits_for_client())
    }

    /// Counts the bytes of the body as they arrive.
    pub(crate) fn count_into(&mut self, received: Counter) {
        self.received = Some(received);
    }

    /// Holds `guard` until the body has ended.
    pub fn hold(&mut self, guard: Box<dyn ResponseGuard>) {
        match self.is_end_stream() {
            true => guard.complete(),
            false => self.guard = Some(guard),
        }
    }

    /// Releases what the body held. It has been read to its end.
    fn give_back(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.complete();
        }
        match &mut self.source {
            InboundSource::Http1(link) => {
                if let Some(mut link) = link.take()
                    && link.rest()
                {
                    self.server.pool.put(PooledSender::Http1(link), self.client);
                }
            }
            InboundSource::Http2(_, sender) => {
                if let Some(sender) = sender.take() {
                    self.server.pool.put(PooledSender::Http2(sender), self.client);
                }
            }
        }
    }

    /// Whether the body has been received whole.
    pub fn is_end_stream(&self) -> bool {
        match &self.source {
            InboundSource::Http1(link) => link.as_ref().is_none_or(|link| link.is_ended()),
            InboundSource::Http2(body, _) => body.is_end_stream(),
        }
    }

    /// Whether all of the body is here already, although it was not taken.
    pub fn has_come(&self) -> bool {
        match &self.source {
            InboundSource::Http1(link) => link.as_ref().is_none_or(|link| link.has_come()),
            InboundSource::Http2(body, _) => body.is_end_stream(),
        }
    }

    /// The bytes that are still to come, as far as they are known.
    pub fn size_hint(&self) -> SizeHint {
        match &self.source {
            InboundSource::Http1(None) => SizeHint::with_exact(0),
            InboundSource::Http1(Some(link)) => link.size_hint(),
            InboundSource::Http2(body, _) => body.size_hint(),
        }
    }
}
