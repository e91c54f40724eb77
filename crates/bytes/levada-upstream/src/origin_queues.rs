//! The places at the origins of a site, and the queues before them.

use std::{
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::StatusCode;
use tokio::sync::oneshot;

use crate::{
    AdmittedRequest, FairQueue, KnownClients, RequestBody, ServerFailure, UpstreamHead,
    UpstreamResponse,
};

/// The places at the origins of a site, and the queues before them. Requests whose length is up to their client have
/// places of their own: otherwise slow clients would hold those of all others.
#[derive(Clone)]
pub struct OriginQueues {
    /// For requests that have come whole.
    pub whole: Arc<FairQueue<IpAddr>>,
    /// For uploads that are under way, and for handshakes of tunnels.
    pub open: Arc<FairQueue<IpAddr>>,
}

impl OriginQueues {
    /// So many places of each kind, and queues of this length before them, in which a request waits so long at most.
    pub fn new(places: usize, length: usize, wait: Duration) -> Self {
        let known = Arc::<KnownClients>::default();
        let queue = || FairQueue::shared(places, length, wait, &known);
        Self { whole: queue(), open: queue() }
    }

    /// The queue for this request. A short body is read before.
    ///
    /// # Errors
    /// When such a body breaks off.
    pub async fn of(
        &self,
        head: &UpstreamHead,
        body: &mut RequestBody,
    ) -> Result<&Arc<FairQueue<IpAddr>>, ServerFailure> {
        let is_whole = head.websocket.is_none()
            && match body {
                RequestBody::Client(upload) => upload.reads_whole(SHORT_BODY).await?,
                RequestBody::None | RequestBody::Text(_) => true,
            };
        Ok(if is_whole { &self.whole } else { &self.open })
    }

    /// Requests that have a place, and requests that wait.
    pub fn counts(&self) -> (usize, usize) {
        let (whole, open) = (self.whole.counts(), self.open.counts());
        (whole.admitted + open.admitted, whole.waiting + open.waiting)
    }
}

/// The places at a site's origins that a request has: one, and another while a second origin is asked next to a late
/// one.
pub struct OriginPlaces<'a> {
    queue: &'a Arc<FairQueue<IpAddr>>,
    client: IpAddr,
    first: Option<AdmittedRequest<IpAddr>>,
    second: Option<AdmittedRequest<IpAddr>>,
    /// Ready when it gives way; `None` as long as it is not late.
    gives_way: Option<oneshot::Receiver<()>>,
}

impl<'a> OriginPlaces<'a> {
    /// Waits for the first place.
    ///
    /// # Errors
    /// When the queue is full, or no place became free in time.
    pub async fn enter(
        queue: &'a Arc<FairQueue<IpAddr>>,
        client: IpAddr,
    ) -> Result<Self, ServerFailure> {
        let first = Some(queue.enter(client).await?);
        Ok(Self { queue, client, first, second: None, gives_way: None })
    }

    /// Whether no place is free.
    pub fn all_are_taken(&self) -> bool {
        self.queue.counts().are_full()
    }

    /// Takes the second place, if one is free now.
    pub fn takes_second(&mut self) -> bool {
        let Self { queue, client, second, .. } = self;
        *second = second.take().or_else(|| queue.enter_now(*client));
        second.is_some()
    }

    /// Leaves the second place.
    pub fn leave_second(&mut self) {
        self.second = None;
    }

    /// The head of the response is late.
    pub fn are_late(&mut self) {
        if let Some(gives_way) = self.first.as_mut().and_then(AdmittedRequest::late) {
            self.gives_way = Some(gives_way);
        }
    }

    /// Ready when the request has to end, because it is late and a client that is known waits.
    pub fn poll_gives_way(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(gives_way) = &mut self.gives_way else { return Poll::Pending };
        let asked = ready!(Pin::new(gives_way).poll(cx));
        self.gives_way = None;
        if asked.is_ok() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Has the response hold the first place until its body has come. A tunnel would keep it for hours:
    /// `limits.tunnels` bounds them.
    pub fn are_answered(&mut self, response: &mut UpstreamResponse) {
        (self.second, self.gives_way) = (None, None);
        if let Some(mut place) = self.first.take() {
            place.answered();
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.body_mut().hold(Box::new(place));
            }
        }
    }
}

/// Bytes of a body that is read before its request has a place.
const SHORT_BODY: u64 = 16 << 10;
