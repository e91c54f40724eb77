//! Fetches blocks of one body by range requests to the origin.

use std::{ops::Range, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use levada_body::{
    BlockOrigin, BlockOutcome, BlockWriter, BlockedBody, FlightLeader, FlightStart, Follower,
    Joined, LongBody, ReadError, Representation,
};
use levada_cache::{CONDITIONAL, ContentRange, Validators};
use levada_http1::ZeroCopyQueue;
use levada_store::{Blocks, Label, Object};
use levada_types::Key;
use levada_upstream::{Inbound, Relay, RequestBody, ServerFailure, UpstreamHead};

use super::{
    Cache,
    fill::{FetchOutcome, FillLeader},
    rest,
};
use crate::{clock, request::RequestContext, sites::Site};
use levada_failure::Failure;

/// The origin of a body whose parts can be told from those of another representation.
pub(crate) struct PartOrigin {
    cache: Arc<Cache>,
    site: Arc<Site>,
    /// The request for a block, without its range.
    request: UpstreamHead,
}

/// The representation that parts must belong to.
pub(crate) struct PartsOf<'a> {
    pub(crate) key: Key,
    pub(crate) identity: &'a str,
    pub(crate) validators: &'a Validators,
    /// `None` while it is not known.
    pub(crate) length: Option<u64>,
}

/// The field that asks for these bytes.
pub(crate) fn range_value(first: u64, end: u64) -> HeaderValue {
    let text = format!("bytes={first}-{}", end.saturating_sub(1));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("bytes=0-"))
}

/// The body of a stored object, for the client that asks for it.
pub(crate) fn stored(
    cache: &Arc<Cache>,
    context: &RequestContext,
    object: &Object,
    zero_copy: Option<&Arc<ZeroCopyQueue>>,
) -> Arc<BlockedBody> {
    let resource = &context.resource;
    let Blocks { version, block, length } = object.blocks().unwrap_or_default();
    let head = object.head();
    let onward = || cache.forwarder.onward(context, context.parts.headers.clone());
    let told = (&head.validators, &head.headers);
    let origin = PartOrigin::new(cache, &resource.site, resource.key(), told, onward);
    let of = Representation {
        key: resource.key(),
        identity: resource.identity().into(),
        head,
        block,
        length: Some(length),
    };
    let long = PartOrigin::long(origin, version);
    BlockedBody::in_blocks(&cache.tiers, of, long, zero_copy.cloned())
}

impl PartOrigin {
    /// Asks for parts as `onward` asks for the whole, but without the conditions on the client's own
    /// copy. `None` when the origin has no parts, or without a strong validator to ask under.
    pub(crate) fn new(
        cache: &Arc<Cache>,
        site: &Arc<Site>,
        key: Key,
        (validators, fields): (&Validators, &HeaderMap),
        onward: impl FnOnce() -> UpstreamHead,
    ) -> Option<Arc<Self>> {
        if cache.has_no_parts(key) || !validators.is_strong() {
            return None;
        }
        let validator = fields.get(header::ETAG).or_else(|| fields.get(header::LAST_MODIFIED))?;
        let mut request = onward();
        request.method = Method::GET;
        for name in &CONDITIONAL {
            request.headers.remove(name);
        }
        request.headers.insert(header::IF_RANGE, validator.clone());
        Some(Arc::new(Self { cache: cache.clone(), site: site.clone(), request }))
    }

    /// A long body of this version whose blocks `origin` has.
    pub(crate) fn long(origin: Option<Arc<Self>>, version: u64) -> LongBody {
        LongBody { version, origin: origin.map(|origin| -> Arc<dyn BlockOrigin> { origin }) }
    }

    /// Receives the first block that was asked for. The followers of `leader` learn how to read the
    /// others.
    pub(crate) async fn first(
        &self,
        body: Arc<BlockedBody>,
        number: u64,
        relay: Relay,
        leader: FillLeader,
    ) {
        // Only this fetch knows this version.
        let Some((_, Some(block_leader))) = self.join(&body, number) else {
            return leader.conclude(FetchOutcome::Unshared);
        };
        leader.settle(FetchOutcome::Body(body.clone()));
        // The head is in the store: later requests find it there.
        drop(leader);
        self.receive(&body, number, relay, block_leader).await;
    }

    /// Blocks are purged with their object: only a fetch that began before a purge is not followed.
    fn join(&self, body: &BlockedBody, number: u64) -> Option<Joined<BlockOutcome>> {
        let (purges, identity) = (&self.cache.purges, &body.of.identity);
        let pending = purges.begin();
        let label = Label::new(self.site.id, pending.born());
        let start = FlightStart::now(label, pending.begun());
        self.cache.block_flights.join(body.block_key(number), identity, start, |start, _| {
            purges.may_follow(&start.label, start.begun, identity)
        })
    }

    /// Fetches a block into the store, for all its readers.
    async fn block(
        self: &Arc<Self>,
        body: &BlockedBody,
        number: u64,
        leader: FlightLeader<BlockOutcome>,
    ) {
        self.cache.tiers.memory.room().await;
        let Representation { key, identity, head, length, .. } = &body.of;
        let validators = &head.validators;
        let of = PartsOf { key: *key, identity, validators, length: *length };
        match self.ask(&of, body.span(number)).await {
            Ok(inbound) => {
                let mut relay = Relay::new(inbound, self.cache.forwarder.body_timeout());
                rest::heal_part(&mut relay, self, &of, body.span(number));
                self.receive(body, number, relay, leader).await;
            }
            Err(error) => leader.conclude(BlockOutcome::Missing(error)),
        }
    }

    /// Asks for these bytes of a representation.
    pub(crate) async fn ask(
        &self,
        of: &PartsOf<'_>,
        span: Range<u64>,
    ) -> Result<Inbound, ReadError> {
        let Self { cache, site, request } = self;
        let mut request = request.clone();
        request.headers.insert(header::RANGE, range_value(span.start, span.end));
        let asked = cache.forwarder.to_origin(site, &mut request, RequestBody::None).await;
        let (head, inbound) = asked.map_err(|failed| ReadError::from(failed.failure))?.into_parts();
        self.judge(of, span, head.status, &head.headers).map(|()| inbound)
    }

    /// Whether the site's retry budget allows one more request.
    pub(crate) fn affords_retry(&self) -> bool {
        self.site.may_retry(&self.cache.clock)
    }

    /// Whether the origin's answer is the part. An answer that is not may say that the stored blocks
    /// are of no use any more.
    fn judge(
        &self,
        of: &PartsOf<'_>,
        span: Range<u64>,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<(), ReadError> {
        // It says nothing about the representation.
        if status.is_server_error() {
            return Err(Failure::Server(ServerFailure::BadResponse).into());
        }
        let PartsOf { key, identity: uri, length, .. } = *of;
        let validators = Validators::of(headers, clock::wall());
        let same = validators.same_representation(of.validators)
            && matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
        let part = ContentRange::of_part(headers)
            .filter(|part| status == StatusCode::PARTIAL_CONTENT && part.range.is_some());
        let told = part.as_ref().and_then(|part| part.length);
        if !same || length.zip(told).is_some_and(|(length, told)| length != told) {
            tracing::info!(uri, "the representation has changed; its blocks are dropped");
        } else if part.and_then(|part| part.range) == Some(span) {
            return Ok(());
        } else {
            tracing::info!(uri, "the origin does not send the part it was asked for");
            self.cache.remember_no_parts(key);
        }
        self.cache.store.remove(key);
        Err(ReadError::Gone)
    }

    async fn receive(
        &self,
        body: &BlockedBody,
        number: u64,
        relay: Relay,
        leader: FlightLeader<BlockOutcome>,
    ) {
        let mut writer = BlockWriter::new(&self.cache.tiers.memory);
        leader.settle(BlockOutcome::Growing(writer.block().clone()));
        if self.copy(body, number, relay, &mut writer).await {
            body.store_block(number, writer);
        } else {
            // Readers of a broken block ask for it again, and must not follow this fetch.
            drop(leader);
        }
    }

    /// Copies the bytes of a block. Returns whether these are all of them.
    async fn copy(
        &self,
        body: &BlockedBody,
        number: u64,
        mut relay: Relay,
        writer: &mut BlockWriter,
    ) -> bool {
        let span = body.span(number);
        let due = span.end - span.start;
        loop {
            relay.read_at_most(self.cache.tiers.memory.longest_read());
            writer.room().await;
            let Some(piece) = relay.next_data().await else { break };
            let Ok(piece) = piece else {
                tracing::info!(uri = &*body.of.identity, "the origin's part broke off");
                return false;
            };
            if writer.written() + piece.len() as u64 > due {
                return false;
            }
            writer.push(piece);
        }
        writer.written() == due
    }
}

impl BlockOrigin for PartOrigin {
    fn fetch(
        self: Arc<Self>,
        body: &Arc<BlockedBody>,
        number: u64,
    ) -> Option<Follower<BlockOutcome>> {
        let (follower, leader) = self.join(body, number)?;
        if let Some(leader) = leader {
            let body = body.clone();
            tokio::spawn(async move { self.block(&body, number, leader).await });
        }
        Some(follower)
    }
}
