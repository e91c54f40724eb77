//! A server's body while it arrives.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use levada_upstream::{Inbound, Stall};

use crate::body_error::BodyError;

/// A server's body, between whose pieces no more than a certain time may pass.
pub(crate) struct Relay {
    body: Inbound,
    stall: Stall,
}

impl Relay {
    pub(crate) fn new(body: Inbound, patience: Duration) -> Self {
        Self { body, stall: Stall::new(patience) }
    }

    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.body.poll_frame(cx) {
            Poll::Ready(item) => {
                self.stall.moved();
                Poll::Ready(item.map(|frame| frame.map_err(BodyError::from)))
            }
            Poll::Pending if self.body.waits_for_client() => {
                self.stall.moved();
                Poll::Pending
            }
            Poll::Pending => self.stall.poll(cx).map(|()| Some(Err(BodyError::Stalled))),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Reads on to the end, so that the connection can be used again, or to so many bytes.
    pub(crate) async fn drain(mut self, mut most: usize) {
        while let Some(Ok(piece)) = self.next_data().await {
            match most.checked_sub(piece.len()) {
                Some(left) => most = left,
                None => return,
            }
        }
    }

    /// The next bytes, for callers that are not bodies themselves.
    pub(crate) async fn next_data(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            match poll_fn(|cx| self.poll(cx)).await?.map(Frame::into_data) {
                Ok(Ok(piece)) => return Some(Ok(piece)),
                Err(error) => return Some(Err(error)),
                // Trailers.
                Ok(Err(_)) => {}
            }
        }
    }
}
