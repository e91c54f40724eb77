//! The places at the origins of a site, and the queues before them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use levada_policy::ClientShare;

use crate::{FairQueue, RequestBody, ServerFailure, UpstreamHead};

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
        let queue = || FairQueue::new(ClientShare::Dynamic, places, length, wait);
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

/// Bytes of a body that is read before its request has a place.
const SHORT_BODY: u64 = 16 << 10;
