//! The places at the origins of a site, and the queues before them.

use std::{net::IpAddr, sync::Arc};

use levada_config::MissLimits;
use levada_policy::ClientShare;
use levada_upstream::{FairQueue, RequestBody, ServerFailure, UpstreamHead};

/// The places at the origins of a site, and the queues before them. Requests whose length is up to their client have
/// places of their own: otherwise slow clients would hold those of all others.
#[derive(Clone)]
pub(crate) struct OriginQueues {
    /// For requests that have come whole.
    pub(crate) whole: Arc<FairQueue<IpAddr>>,
    /// For uploads that are under way, and for handshakes of tunnels.
    pub(crate) open: Arc<FairQueue<IpAddr>>,
}

impl OriginQueues {
    pub(crate) fn new(limits: &MissLimits) -> Self {
        let MissLimits { at_once, queue, wait, .. } = *limits;
        let queue = || FairQueue::new(ClientShare::Dynamic, at_once, queue, wait);
        Self { whole: queue(), open: queue() }
    }

    /// The queue for this request. A short body is read before.
    pub(crate) async fn of(
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
    pub(crate) fn counts(&self) -> (usize, usize) {
        let (whole, open) = (self.whole.counts(), self.open.counts());
        (whole.admitted + open.admitted, whole.waiting + open.waiting)
    }
}

/// Bytes of a body that is read before its request has a place.
const SHORT_BODY: u64 = 16 << 10;
