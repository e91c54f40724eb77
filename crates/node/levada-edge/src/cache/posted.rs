//! Stores the answer to a POST that says of itself that a GET of the same URI would get it (RFC
//! 9110 Sec. 9.3.3), for later requests.

use std::{sync::Arc, time::SystemTime};

use http::{HeaderMap, Method, header};
use levada_body::{FlightStart, part::content_length};
use levada_cache::{OriginExchange, Storable, may_store_post};
use levada_cluster::purge::PendingStore;
use levada_rules::{CacheUse, SentFields, UnkeyedFields};
use levada_store::Label;
use levada_upstream::{UpstreamHead, UpstreamResponse};

use super::{
    Cache,
    fetch::Fetch,
    fill::{FillFollower, FillLeader},
    lookup::FillRequest,
};
use crate::{request::RequestContext, resource::Resource};

/// Fields that describe the body of a request.
const OF_A_BODY: [header::HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::TRANSFER_ENCODING,
];

/// A POST that is about to be sent.
pub(crate) struct Posted {
    /// The client's fields.
    request: HeaderMap,
    unkeyed: UnkeyedFields,
    requested: SystemTime,
    /// When it was sent: purges and invalidations since then apply to the answer.
    pending: PendingStore,
}

/// An answer that may be stored.
pub(crate) struct StorablePost {
    posted: Posted,
    storable: Storable,
    received: SystemTime,
}

impl Posted {
    /// `None` for other methods, and for a POST whose answer is for its client alone.
    pub(crate) fn of(cache: &Cache, context: &RequestContext) -> Option<Self> {
        let RequestContext { resource, wants, parts, cache_use, .. } = context;
        let plain = parts.method == Method::POST && !wants.conditional && !wants.range;
        let plain = plain && matches!(cache_use, CacheUse::Full | CacheUse::StoreOnly);
        (plain && resource.handling.cache).then(|| Self {
            request: parts.headers.clone(),
            unkeyed: UnkeyedFields::of(context.unkeyed(), &SentFields::All).without(&OF_A_BODY),
            requested: SystemTime::now(),
            pending: cache.purges.begin(),
        })
    }

    /// Whether the answer may be stored. Call it before the answer invalidates stored responses: if
    /// another answer has done so since, this one may be outdated.
    pub(crate) fn judge(
        self,
        cache: &Cache,
        resource: &Resource,
        exchange: &UpstreamResponse,
    ) -> Option<StorablePost> {
        if self.pending.is_outdated(resource.key()) {
            return None;
        }
        let (response, received) = (exchange.headers(), SystemTime::now());
        let judged = OriginExchange {
            method: &Method::POST,
            request: &self.request,
            status: exchange.status(),
            response,
            requested: self.requested,
            received,
        };
        let target = resource.stored_url().parse().ok()?;
        let mut storable = may_store_post(&judged, &target, &resource.handling.rules).ok()?;
        if resource.handling.deceives(resource.target(), response) {
            let rules = resource.handling.rules.of_http();
            storable = may_store_post(&judged, &target, &rules).ok()?;
        }
        if !self.unkeyed.belong_to(storable.vary.fields()) {
            return None;
        }
        let small = |length| length <= cache.tiers.max_object;
        content_length(response).is_none_or(small).then_some(StorablePost {
            posted: self,
            storable,
            received,
        })
    }
}

impl StorablePost {
    /// Begins to store the answer; the client reads it meanwhile. Call it after the answer has
    /// invalidated stored responses. `head` is the head that was sent.
    pub(crate) fn begin(
        self,
        cache: &Arc<Cache>,
        resource: &Resource,
        head: UpstreamHead,
    ) -> Option<GrowingPost> {
        let Self { posted, storable, received } = self;
        let pending = cache.purges.begin();
        if pending.born() != posted.pending.born() {
            return None;
        }
        let label = Label::new(resource.site.id, pending.born());
        let start = FlightStart::now(label, pending.begun());
        let (follower, leader) = cache.fills.detached(resource.key(), resource.identity(), start);
        let mut head = UpstreamHead { method: Method::GET, ..head };
        for name in &OF_A_BODY {
            head.headers.remove(name);
        }
        let fetch = Fetch {
            cache: cache.clone(),
            site: resource.site.clone(),
            key: resource.key(),
            handling: resource.handling.clone(),
            identity: leader.identity().clone(),
            order: FillRequest::of(resource.key()),
            head,
            request_headers: posted.request,
            unkeyed: posted.unkeyed,
            armour: None,
            piece: None,
            head_is_enough: false,
            pending,
        };
        Some(GrowingPost { fetch, follower, leader, storable, received })
    }
}

/// An answer that is being stored.
pub(crate) struct GrowingPost {
    fetch: Fetch,
    follower: FillFollower,
    leader: FillLeader,
    storable: Storable,
    received: SystemTime,
}

impl GrowingPost {
    /// Receives the body in a task of its own.
    pub(crate) fn receive(self, exchange: UpstreamResponse) -> FillFollower {
        let Self { fetch, follower, leader, storable, received } = self;
        tokio::spawn(fetch.adopt(exchange, storable, received, leader));
        follower
    }
}
