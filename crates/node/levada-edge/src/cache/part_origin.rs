//! Fetches blocks of one body by range requests to the origin, or the whole body once more.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response};
use levada_body::{
    AskedAgain, BlockOrigin, BlockOutcome, BlockWriter, BlockedBody, BodyAgain, FlightLeader,
    FlightStart, Follower, Joined, LongBody, Parts, ReadError, Representation,
    part::{self, PartAnswer},
};
use levada_cache::{CONDITIONAL, Validators};
use levada_http::ZeroCopyQueue;
use levada_observe::redact::without_query;
use levada_rules::{SentFields, UnkeyedFields};
use levada_store::{Blocks, Label, Object};
use levada_types::Key;
use levada_upstream::{Inbound, Relay, ServerFailure, UpstreamHead};

use super::{
    Cache,
    fill::{FetchOutcome, FillLeader},
    rest,
};
use crate::{request::RequestContext, sites::Site};
use levada_failure::Failure;

/// The origin of a body.
pub(crate) struct PartOrigin {
    cache: Arc<Cache>,
    site: Arc<Site>,
    /// The key of the URI.
    key: Key,
    /// The request for the whole.
    request: UpstreamHead,
    /// The strong validator under which parts are asked for.
    validator: Option<HeaderValue>,
    /// It says that it sends parts, or has sent one.
    offers_parts: AtomicBool,
}

/// The representation that parts must belong to.
pub(crate) struct PartsOf<'a> {
    pub(crate) key: Key,
    pub(crate) identity: &'a str,
    pub(crate) validators: &'a Validators,
    /// `None` while it is not known.
    pub(crate) length: Option<u64>,
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
    let onward = || {
        let fields =
            UnkeyedFields::of(context.unkeyed(), &SentFields::Varying(head.vary.fields().into()));
        cache.forwarder.shared(context, &fields)
    };
    let told = (&head.validators, &head.headers);
    let origin = PartOrigin::new(cache, &resource.site, resource.key(), told, onward);
    let of = Representation {
        key: resource.key(),
        identity: resource.identity().into(),
        head,
        block,
        length: Some(length),
    };
    let long = origin.long(version);
    BlockedBody::in_blocks(&cache.tiers, of, long, zero_copy.cloned())
}

impl PartOrigin {
    /// Asks as `onward` asks for the whole, but without the conditions on the client's own copy.
    pub(crate) fn new(
        cache: &Arc<Cache>,
        site: &Arc<Site>,
        key: Key,
        (validators, fields): (&Validators, &HeaderMap),
        onward: impl FnOnce() -> UpstreamHead,
    ) -> Arc<Self> {
        let validator = || fields.get(header::ETAG).or_else(|| fields.get(header::LAST_MODIFIED));
        let validator = if validators.is_strong() { validator().cloned() } else { None };
        let mut request = onward();
        request.method = Method::GET;
        request.interim = None;
        for name in &CONDITIONAL {
            request.headers.remove(name);
        }
        let units = fields.get(header::ACCEPT_RANGES);
        let offers_parts = units.is_some_and(|units| units.as_bytes() == b"bytes").into();
        let (cache, site) = (cache.clone(), site.clone());
        Arc::new(Self { cache, site, key, request, validator, offers_parts })
    }

    /// The same, unless the origin has no parts, or they look like those of another representation.
    pub(crate) fn of_parts(
        cache: &Arc<Cache>,
        site: &Arc<Site>,
        key: Key,
        (validators, fields): (&Validators, &HeaderMap),
        onward: impl FnOnce() -> UpstreamHead,
    ) -> Option<Arc<Self>> {
        let has_parts = validators.is_strong() && !cache.has_no_parts(key);
        has_parts.then(|| Self::new(cache, site, key, (validators, fields), onward))
    }

    /// A long body of this version.
    pub(crate) fn long(self: Arc<Self>, version: u64) -> LongBody {
        LongBody { version, origin: Some(self) }
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
        self.offers_parts.store(true, Relaxed);
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
        let from_node = self.request.at_shield.is_none();
        self.cache.block_flights.join(body.block_key(number), identity, start, |start, _| {
            !(from_node && start.asks_node.load(Relaxed))
                && purges.may_follow(&start.label, start.begun, identity)
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
        let asked = tokio::select! {
            biased;
            asked = self.ask(&of, body.span(number), &leader.start().asks_node) => asked,
            () = leader.abandoned() => return,
        };
        match asked {
            Ok(inbound) => {
                let mut relay = Relay::new(inbound, self.cache.forwarder.body_timeout());
                rest::heal_part(&mut relay, self, &of, body.span(number));
                self.receive(body, number, relay, leader).await;
            }
            Err(error) => leader.conclude(BlockOutcome::Missing(error)),
        }
    }

    /// Asks for these bytes of a representation. Notes whether another node is asked.
    pub(crate) async fn ask(
        &self,
        of: &PartsOf<'_>,
        span: Range<u64>,
        asks_node: &AtomicBool,
    ) -> Result<Inbound, ReadError> {
        let mut request = self.request.clone();
        request.headers.insert(header::RANGE, part::range_value(span.clone()));
        let condition = self.validator.clone().map(|validator| (header::IF_RANGE, validator));
        request.headers.extend(condition);
        let (head, inbound) = self.send(request, asks_node).await?;
        self.judge(of, span, head.status, &head.headers).map(|()| inbound)
    }

    async fn send(
        &self,
        mut request: UpstreamHead,
        asks_node: &AtomicBool,
    ) -> Result<(response::Parts, Inbound), ReadError> {
        let Self { cache, site, .. } = self;
        let asked = cache.ask(site, &mut request, asks_node).await;
        let (head, inbound) = asked.map_err(|failed| ReadError::from(failed.failure))?.into_parts();
        // It says nothing about the representation.
        if head.status.is_server_error() {
            return Err(Failure::Server(ServerFailure::BadResponse).into());
        }
        Ok((head, inbound))
    }

    /// Asks for the whole body. Where no strong validator identifies the representation, its reader compares
    /// the bytes.
    async fn whole(&self, of: &Representation) -> Result<Inbound, ReadError> {
        let (head, inbound) = self.send(self.request.clone(), &AtomicBool::default()).await?;
        let uri = without_query(&of.identity);
        if !of.may_be_continued_by((head.status, &head.headers), SystemTime::now()) {
            tracing::info!(uri, "the representation has changed; its reader is cut");
            return Err(ReadError::Gone);
        }
        tracing::debug!(uri, "asked for again as a whole for one reader");
        Ok(inbound)
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
        let PartsOf { key, identity, length, .. } = *of;
        let uri = without_query(identity);
        match part::judge((of.validators, length), &span, (status, headers), SystemTime::now()) {
            PartAnswer::Part => {
                self.offers_parts.store(true, Relaxed);
                return Ok(());
            }
            PartAnswer::Changed => {
                tracing::info!(uri, "the representation has changed; its blocks are dropped");
            }
            PartAnswer::NoPart => {
                tracing::info!(uri, "the origin does not send the part it was asked for");
                self.cache.remember_no_parts(key);
            }
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
                tracing::info!(
                    uri = without_query(&body.of.identity),
                    "the origin's part broke off"
                );
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
    fn parts(&self) -> Parts {
        match self.offers_parts.load(Relaxed) {
            _ if self.validator.is_none() || self.cache.has_no_parts(self.key) => Parts::None,
            true => Parts::Offered,
            false => Parts::Untried,
        }
    }

    fn usual_time(&self) -> Duration {
        self.site.usual_time()
    }

    fn again(self: Arc<Self>, body: &Arc<BlockedBody>) -> AskedAgain {
        let body = body.clone();
        Box::pin(async move {
            let inbound = self.whole(&body.of).await?;
            let mut relay = Relay::new(inbound, self.cache.forwarder.body_timeout());
            let body: BodyAgain = Box::new(move |cx| {
                relay.read_at_most(self.cache.tiers.memory.longest_read());
                relay.poll_data(cx).map_err(|_| ReadError::Broken)
            });
            Ok(body)
        })
    }

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
