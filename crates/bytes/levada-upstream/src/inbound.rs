//! The body of a response while it arrives.

use std::{
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use levada_http::{UpstreamConnection, ZeroCopyQueue, judge_response_trailers};
use levada_observe::metrics::Counter;

use crate::{
    AdmittedRequest, InboundError, RequestBody, ResponseGuard, Server, ServerFailure,
    http2::Http2Body,
    switched::{ServerEnd, TunnelHold},
};

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
    Http2(Option<Box<Http2Body>>),
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

    /// The connection of a response that has switched to another protocol, with what was held until the end of
    /// its body. The server's own bounds count it no longer.
    pub fn into_switched(self) -> Option<ServerEnd> {
        let Self { source, guard, .. } = self;
        let InboundSource::Http1(Some(link)) = source else { return None };
        let (io, ahead) = link.into_switched()?;
        Some(ServerEnd { io, ahead, hold: TunnelHold::new(guard) })
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
            InboundSource::Http1(None) | InboundSource::Http2(None) => return Poll::Ready(None),
            InboundSource::Http1(Some(link)) => {
                link.poll_frame(cx).map(|item| item.map(|frame| frame.map_err(InboundError::from)))
            }
            InboundSource::Http2(Some(body)) => body.poll_frame(cx),
        };
        if let Some(guard) = &self.guard {
            guard.polled(polled.is_ready() || self.waits_for_client());
        }
        let mut item = ready!(polled);
        if let Some(Ok(frame)) = &mut item
            && let Some(trailers) = frame.trailers_mut()
            && judge_response_trailers(trailers).is_err()
        {
            return Poll::Ready(Some(Err(InboundError::Trailers)));
        }
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

    /// The whole body, if it has at most so many bytes. Read to its end, the connection can be used again.
    ///
    /// # Errors
    /// When it is longer, or breaks off.
    pub async fn whole(mut self, most: usize) -> Result<Bytes, ServerFailure> {
        let mut bytes = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| self.poll_frame(cx)).await {
            let frame = frame.map_err(|_| ServerFailure::NoResponse)?;
            bytes.extend(frame.data_ref().map_or(&[][..], |data| data));
            if bytes.len() > most {
                return Err(ServerFailure::BadResponse);
            }
        }
        Ok(bytes.into())
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

    /// Whether a piece of the request's body was sent during the response since the last call.
    pub(crate) fn request_moved(&self) -> bool {
        matches!(&self.source, InboundSource::Http2(Some(body)) if body.request_moved())
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
                    self.server.pool.put(link, self.client);
                }
            }
            // Its place on the connection is free for the next request.
            InboundSource::Http2(body) => drop(body.take()),
        }
    }

    /// Whether the body has been received whole.
    pub fn is_end_stream(&self) -> bool {
        match &self.source {
            InboundSource::Http1(link) => link.as_ref().is_none_or(|link| link.is_ended()),
            InboundSource::Http2(body) => body.as_ref().is_none_or(|body| body.is_end_stream()),
        }
    }

    /// Whether all of the body is here already, although it was not taken.
    pub fn has_come(&self) -> bool {
        match &self.source {
            InboundSource::Http1(link) => link.as_ref().is_none_or(|link| link.has_come()),
            InboundSource::Http2(body) => body.as_ref().is_none_or(|body| body.is_end_stream()),
        }
    }

    /// The bytes that are still to come, as far as they are known.
    pub fn size_hint(&self) -> SizeHint {
        match &self.source {
            InboundSource::Http1(None) | InboundSource::Http2(None) => SizeHint::with_exact(0),
            InboundSource::Http1(Some(link)) => link.size_hint(),
            InboundSource::Http2(Some(body)) => body.size_hint(),
        }
    }
}
