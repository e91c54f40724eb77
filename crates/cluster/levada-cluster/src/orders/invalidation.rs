//! Tells peers which URLs and groups an unsafe request has invalidated.
//!
//! A URL that an unsafe request has invalidated is sent to the peers at once and without the log, because
//! such requests are frequent. If a peer does not answer, its URLs are gathered for a moment and become
//! one order of the log.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::purge::{MAX_ITEMS, PurgeOrder, PurgeTarget, absolute};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::orders::{
    endpoint::{ORDERS, PurgeEndpoint, Told, pass_on},
    exchange::{CONFIRM_TIMEOUT, send},
};

/// Peers post invalidated URLs to this path.
pub(crate) const PATH: &str = "/.levada/invalidate";

/// How long the answer to an unsafe request waits for the peers. Then the client is more important.
const HOLD_TIMEOUT: Duration = Duration::from_secs(1);
/// How long URLs are gathered that a peer has not confirmed, so that they become one order.
const GATHER_DELAY: Duration = Duration::from_secs(1);
/// RFC 9875 Sec. 3.
const CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// The responses that an unsafe request has invalidated.
#[derive(Default)]
pub struct Invalidated {
    /// URLs, which are invalid at this node already.
    pub urls: Vec<String>,
    /// Cache groups of its origin (RFC 9875 Sec. 3).
    pub groups: Option<PurgeOrder>,
    /// The same URLs, where their keys have variants.
    pub variants: Option<PurgeOrder>,
}

impl Invalidated {
    /// Whether nothing was invalidated.
    pub fn is_empty(&self) -> bool {
        self.urls.is_empty() && self.groups.is_none()
    }
}

/// The order to purge the groups that an origin names in an answer to an unsafe request for `identity`
/// (RFC 9875 Sec. 3).
pub fn groups(identity: &str, headers: &HeaderMap) -> Option<PurgeOrder> {
    let groups = levada_cache::strings(headers, &CACHE_GROUP_INVALIDATION);
    let target = match groups.len() {
        0 => return None,
        1..=MAX_ITEMS => PurgeTarget::Groups(groups, identity.to_owned()),
        _ => PurgeTarget::All(Some(absolute(identity).ok()?.host().to_owned())),
    };
    Some(PurgeOrder { target, soft: false })
}

/// Invalidated URLs that a peer has not confirmed.
#[derive(Default)]
pub struct MissedInvalidations(Mutex<BTreeSet<String>>);

impl MissedInvalidations {
    pub(crate) fn count(&self) -> u64 {
        u64::from(!self.0.lock().is_empty())
    }
}

impl PurgeEndpoint {
    /// Passes on what an unsafe request has invalidated, and waits for the peers for a short time: a
    /// client that has the answer should not get the old response from a peer.
    pub async fn propagate_invalidation(self: &Arc<Self>, invalidated: Invalidated) {
        let Invalidated { urls, groups, variants } = invalidated;
        for order in groups.into_iter().chain(variants) {
            let here = self.place.now().await;
            let done = match &*here {
                Some(successor) => {
                    pass_on(successor, &order, ORDERS).await.map(drop).map_err(Into::into)
                }
                None => self.carry_out(order, Told::Later, here).await.map(drop),
            };
            if let Err(error) = done {
                tracing::error!(%error, "what an unsafe request has invalidated is not purged");
            }
        }
        if let Some(successor) = &*self.place.now().await {
            let order = PurgeOrder { target: PurgeTarget::Invalid(urls), soft: false };
            if let Err(error) = pass_on(successor, &order, PATH).await {
                tracing::error!(%error, "what an unsafe request has invalidated is not purged");
            }
            return;
        }
        if urls.is_empty() || self.peers.is_none() {
            return;
        }
        // The task goes on when the client goes away.
        let purging = self.clone();
        let telling = tokio::spawn(async move { purging.invalidate_at_peers(urls).await });
        let _ = tokio::time::timeout(HOLD_TIMEOUT, telling).await;
    }

    /// Invalidates URLs that a peer has sent.
    pub(crate) fn invalidate(&self, urls: &[String]) {
        for url in urls.iter().filter_map(|url| absolute(url).ok()) {
            self.drop_stored(&url);
        }
    }

    async fn invalidate_at_peers(self: Arc<Self>, urls: Vec<String>) {
        let order = PurgeOrder { target: PurgeTarget::Invalid(urls.clone()), soft: false };
        let json = Bytes::from(serde_json::to_vec(&order).unwrap_or_default());
        let mut sending = JoinSet::new();
        for peer in self.other_nodes() {
            let json = json.clone();
            sending.spawn(async move {
                let sent =
                    async { peer.server.health.is_up() && send(&peer, PATH, json).await.is_ok() };
                tokio::select! {
                    sent = tokio::time::timeout(CONFIRM_TIMEOUT, sent) => sent.unwrap_or(false),
                    () = peer.gone() => true,
                }
            });
        }
        if !sending.join_all().await.into_iter().all(|confirmed| confirmed) {
            self.gather(urls);
        }
    }

    /// Notes URLs that a peer has not confirmed. The first one has all of them logged a little later.
    fn gather(self: Arc<Self>, urls: Vec<String>) {
        let mut missed = self.missed.0.lock();
        let (first, full) = (missed.is_empty(), missed.len() + urls.len() > MAX_ITEMS);
        missed.extend(urls);
        drop(missed);
        if first || full {
            tokio::spawn(async move {
                if !full {
                    tokio::time::sleep(GATHER_DELAY).await;
                }
                self.log_missed().await;
            });
        }
    }

    /// Makes orders of the URLs that a peer has not confirmed.
    async fn log_missed(&self) {
        let urls: Vec<String> = std::mem::take(&mut *self.missed.0.lock()).into_iter().collect();
        for some in urls.chunks(MAX_ITEMS) {
            let order = PurgeOrder { target: PurgeTarget::Invalid(some.to_vec()), soft: false };
            if let Err(error) = self.purges.order(order, Vec::new()).await {
                tracing::error!(%error, "a peer that is away may not hear of invalid responses");
            }
        }
    }
}
