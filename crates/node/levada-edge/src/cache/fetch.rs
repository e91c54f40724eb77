//! Fetches an object from the origin into the store, for its leader and all followers.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, response};
use levada_access::fields::LARGE;
use levada_body::{
    BlockOrigin, BlockedBody, BodyWriter, Parts, Representation,
    part::{self, Inside, content_length},
};
use levada_cache::{
    ContentRange, NoStore, OriginExchange, OriginFailure, RangeSpec, Storable, Validators,
    is_error, make_conditional, may_store, may_store_part, serve_instead_of_error, strip_fields,
    strip_response, update_stored,
};

use levada_cluster::purge::PendingStore;
use levada_observe::redact::without_query;
use levada_rules::UnkeyedFields;
use levada_store::{Blocks, Label, Object, StoredHead, new_version};
use levada_types::Key;
use levada_upstream::{Relay, UpstreamHead, UpstreamResponse};

use super::{
    Cache,
    fill::{FetchOutcome, FillLeader, UnsharedResponse},
    lookup::{FillRequest, PartRequest},
    part_origin::PartOrigin,
    place, rest,
};
use crate::{large, request::RequestContext, sites::Site};
use levada_config::Handling;
use levada_failure::Failure;
use levada_upstream::Piece;

/// One fetch, with everything that its task needs to own.
pub(crate) struct Fetch {
    pub(crate) cache: Arc<Cache>,
    pub(crate) site: Arc<Site>,
    pub(crate) handling: Arc<Handling>,
    /// The key of the URI.
    pub(crate) key: Key,
    pub(crate) identity: Arc<str>,
    pub(crate) order: FillRequest,
    /// The request to the origin.
    pub(crate) head: UpstreamHead,
    /// The client's fields, without those that are withheld: by them a variant is selected.
    pub(crate) request_headers: HeaderMap,
    pub(crate) unkeyed: UnkeyedFields,
    /// Path and query as the client wrote them, where a response must fit them: the rules store more than HTTP does.
    pub(crate) armour: Option<Box<str>>,
    /// The piece of a large file that is fetched as an object.
    pub(crate) piece: Option<Arc<Piece>>,
    /// Whether the head of a large file is enough.
    pub(crate) head_is_enough: bool,
    /// Since when: purges that come later win.
    pub(crate) pending: PendingStore,
}

/// The most that is read of an unwanted answer so that its connection can be used again.
const DRAINED: usize = 64 << 10;

/// A body for which no request waits goes on while pieces of it come within this time, for later requests,
const LOOKS: Duration = Duration::from_secs(1);
/// and for so long.
const UNREAD: Duration = Duration::from_secs(60);

/// Why a response is not stored that does not fit its URL.
const DECEPTION: &str = "deception-armour";

/// Why a response is not shared that may be up to a field of its client alone.
const UNKEYED: &str = "unkeyed-field";

impl Fetch {
    pub(crate) fn new(
        cache: &Arc<Cache>,
        context: &RequestContext,
        order: FillRequest,
        identity: Arc<str>,
        pending: PendingStore,
    ) -> Self {
        let (resource, stored) = (&context.resource, order.stored.as_ref());
        let unkeyed = UnkeyedFields::of(context.unkeyed(), &order.fields);
        let mut head = cache.forwarder.shared(context, &unkeyed);
        let mut request_headers = context.parts.headers.clone();
        unkeyed.withhold(context.edits.as_deref(), &mut request_headers);
        let known = stored.filter(|_| !context.anew);
        let validators = known.map(|object| {
            object.fields(|name| [header::ETAG, header::LAST_MODIFIED].contains(name))
        });
        make_conditional(&mut head.headers, &validators.unwrap_or_default());
        let block = |number: u64| {
            let first = number.saturating_mul(cache.block);
            part::range_value(first..first.saturating_add(cache.block))
        };
        let range = match (&resource.piece, order.part) {
            (Some(piece), _) => Some(part::range_value(piece.url.range.clone())),
            (None, Some(PartRequest::Block(number))) => Some(block(number)),
            (None, Some(PartRequest::AsAsked(_))) => {
                context.parts.headers.get(header::RANGE).cloned()
            }
            (None, None) => None,
        };
        if let Some(range) = range {
            head.headers.insert(header::RANGE, range);
        }
        let validator = context.parts.headers.get(header::IF_RANGE);
        if let Some(validator) = validator.filter(|_| resource.piece.is_some() && stored.is_none())
        {
            head.headers.insert(header::IF_RANGE, validator.clone());
        }
        head.method = Method::GET;
        let armour = resource.handling.armour(resource.target()).map(Into::into);
        Self {
            cache: cache.clone(),
            site: resource.site.clone(),
            handling: resource.handling.clone(),
            key: resource.key(),
            identity,
            order,
            head,
            request_headers,
            unkeyed,
            armour,
            piece: resource.piece.clone(),
            head_is_enough: context.head_is_enough,
            pending,
        }
    }

    /// Fetches. A [`FetchLeader`](levada_body::FetchLeader) keeps it running when a client aborts, and others wait
    /// for the head, or the body comes.
    pub(crate) async fn run(mut self, leader: FillLeader) {
        let requested = SystemTime::now();
        // Pieces wait for their turn, and hold it until they have come whole.
        let turn = match &self.piece {
            Some(piece) => {
                let (site, timeout) = (&self.site, self.site.response_timeout());
                let (moving, wanted) = (|| site.origin_moves(), || leader.has_followers());
                match site.piece_turns.enter(piece.ahead, timeout, moving, wanted).await {
                    Ok(turn) => Some(turn),
                    Err(failure) => {
                        let failed = Failure::Server(failure).into();
                        return leader.conclude(FetchOutcome::Failed(failed));
                    }
                }
            }
            None => None,
        };
        let sent = tokio::select! {
            biased;
            sent = self.cache.ask(&self.site, &mut self.head, &leader.start().asks_node) => sent,
            () = leader.abandoned() => return,
        };
        if let Some(turn) = &turn {
            turn.answered(sent.is_ok());
        }
        let (mut head, body) = match sent {
            Ok(exchange) => exchange.into_parts(),
            Err(failed) => return leader.conclude(FetchOutcome::Failed(failed)),
        };
        let caching = self.handling.caching.clone();
        if caching.as_ref().is_some_and(|rules| rules.strips_response_cookies) {
            head.headers.remove(header::SET_COOKIE);
        }
        leader.own().chosen = head.extensions.get().cloned();
        leader.own().answered = Some(head.status.as_u16());
        let received = SystemTime::now();
        let patience = self.cache.forwarder.body_timeout();
        let mut relay = Relay::new(body, patience);
        // Pieces are asked for again as a whole.
        if self.piece.is_none() {
            let of = (&self.site, self.key, &*self.identity);
            rest::heal(&mut relay, &self.cache, of, (head.status, &head.headers), || {
                self.head.clone()
            });
        }
        if head.status == StatusCode::NOT_MODIFIED
            && let Some(stored) = self.order.stored.take()
        {
            if !stored.validators().selected_by(&head.headers, true) {
                // It speaks of another representation, which nobody has (RFC 9111 Sec. 4.3.4).
                self.cache.store.remove(self.key);
                return leader.conclude(FetchOutcome::Unshared);
            }
            return self.renew(&stored, &head, requested, received, leader);
        }
        if self.may_bridge(head.status, received) {
            leader.conclude(FetchOutcome::Failed(Failure::ErrorAnswer(head.status).into()));
            // The connection is useful to others if what it still carries is short.
            return relay.drain(DRAINED).await;
        }
        // A node of the shield sends the head of a large file without its body.
        let is_head = head.headers.remove(LARGE).map(|length| {
            head.headers.insert(header::CONTENT_LENGTH, length);
        });
        let verdict = self.judge(head.status, &head.headers, requested, received);
        strip_response(&mut head.headers);
        if let Some(piece) = &self.piece
            && let Err(failure) = large::as_object(&mut head, piece)
        {
            if failure == Failure::NoPieces {
                self.cache.remember_no_parts(large::file_key(&self.identity));
            }
            leader.conclude(FetchOutcome::Failed(failure.into()));
            return relay.drain(DRAINED).await;
        }
        match self.order.part {
            Some(PartRequest::Block(number)) if head.status == StatusCode::PARTIAL_CONTENT => {
                let part = self.receive_part(number, head, relay, verdict, received, leader);
                return Box::pin(part).await;
            }
            Some(PartRequest::AsAsked(range))
                if [StatusCode::PARTIAL_CONTENT, StatusCode::RANGE_NOT_SATISFIABLE]
                    .contains(&head.status) =>
            {
                let part = self.receive_as_asked(range, head, relay, verdict, received, leader);
                return Box::pin(part).await;
            }
            // Whether the client's own range is satisfiable is another question, and says nothing of the
            // whole.
            Some(_) if head.status == StatusCode::RANGE_NOT_SATISFIABLE => {
                leader.conclude(FetchOutcome::Unshared);
                return relay.drain(DRAINED).await;
            }
            // The origin has no parts of it to give.
            Some(_) if head.status == StatusCode::OK && is_head.is_none() => {
                self.cache.remember_no_parts(self.key);
            }
            _ => {}
        }
        let length = content_length(&head.headers);
        if let (Ok(storable), Some(length)) = (&verdict, length)
            && head.status == StatusCode::OK
            && self.is_large(&head.headers, length, received)
        {
            // Its body is fetched in pieces: the connection ends here.
            leader.own().fields = named(&head.headers, &storable.strip);
            let head = self.stored_head(head, storable.clone(), received);
            return leader.conclude(self.large(&head, length));
        }
        if is_head.is_some() {
            return leader.conclude(FetchOutcome::Unshared);
        }
        let too_large = length.is_some_and(|length| length > self.cache.tiers.max_object);
        match verdict.and_then(|storable| (!too_large).then_some(storable).ok_or("too-large")) {
            Ok(storable) => {
                self.cache.unstorable.forget(self.order.key);
                leader.own().fields = named(&head.headers, &storable.strip);
                let head = self.stored_head(head, storable, received);
                Box::pin(self.receive(head, relay, leader)).await;
            }
            Err(reason) => {
                // Whatever was stored for this URI has been superseded, except by an error of the
                // origin, which says nothing about it (RFC 9111 Sec. 4.3.3).
                if !head.status.is_server_error() && reason != UNKEYED {
                    self.cache.store.remove(self.key);
                }
                if speaks_for_others(head.status, reason) {
                    self.cache.unstorable.remember(self.order.key, self.cache.clock.now());
                } else if reason == UNKEYED {
                    // The next request may be answered for all.
                    self.cache.unstorable.forget(self.order.key);
                }
                let is_whole = self.piece.is_some()
                    || head.status.is_server_error()
                    || !self.unkeyed.are_missed();
                leader.own().unshared = Some(UnsharedResponse { head, relay, reason, is_whole });
                leader.conclude(FetchOutcome::Unshared);
            }
        }
    }

    /// Receives the answer to another request as if it were that to this fetch.
    pub(crate) async fn adopt(
        self,
        exchange: UpstreamResponse,
        storable: Storable,
        received: SystemTime,
        leader: FillLeader,
    ) {
        let (mut head, body) = exchange.into_parts();
        strip_response(&mut head.headers);
        let relay = Relay::new(body, self.cache.forwarder.body_timeout());
        leader.own().fields = named(&head.headers, &storable.strip);
        let head = self.stored_head(head, storable, received);
        self.receive(head, relay, leader).await;
    }

    /// Whether this answer is an error that the stored response may stand in for.
    fn may_bridge(&self, status: StatusCode, now: SystemTime) -> bool {
        let Some(stored) = self.order.stored.as_ref().filter(|_| is_error(status)) else {
            return false;
        };
        let freshness = &stored.freshness();
        serve_instead_of_error(freshness, &self.order.directives, OriginFailure::Error, now)
            .is_some()
    }

    fn judge(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        requested: SystemTime,
        received: SystemTime,
    ) -> Result<Storable, &'static str> {
        let exchange = OriginExchange {
            method: &Method::GET,
            request: &self.request_headers,
            status,
            response: headers,
            requested,
            received,
        };
        // A part that was not asked for is nothing to be stored.
        let asked_for = self.order.part.is_some() || self.piece.is_some();
        let part = asked_for && status == StatusCode::PARTIAL_CONTENT;
        let judge = if part { may_store_part } else { may_store };
        let mut storable = judge(&exchange, &self.handling.rules).map_err(NoStore::as_str)?;
        if Handling::is_deceptive(self.armour.as_deref(), headers) {
            storable = judge(&exchange, &self.handling.rules.of_http()).map_err(|_| DECEPTION)?;
        }
        // Another client's response must not be up to a field that its key does not have.
        if self.unkeyed.belong_to(storable.vary.fields()) { Ok(storable) } else { Err(UNKEYED) }
    }

    fn stored_head(
        &self,
        head: response::Parts,
        storable: Storable,
        received: SystemTime,
    ) -> StoredHead {
        let mut headers = head.headers;
        let validators = Validators::of(&headers, received);
        strip_fields(&mut headers, &storable.strip);
        headers.remove(header::AGE);
        let label = Label::of(&headers, &self.identity, self.site.id, self.pending.born());
        self.cache.purges.strip(&mut headers);
        let mut head = StoredHead {
            status: head.status,
            headers,
            freshness: storable.freshness,
            validators,
            variant: storable.vary.key(&self.request_headers),
            vary: storable.vary,
            label,
            copies: 0,
        };
        self.prepare_for_copies(&mut head);
        head
    }

    fn prepare_for_copies(&self, head: &mut StoredHead) {
        if let Some(compress) = &self.handling.compress
            && self.piece.is_none()
        {
            compress.prepare(head, &self.request_headers);
        }
    }

    /// Receives the body while its readers read it, then keeps it.
    async fn receive(self, head: StoredHead, relay: Relay, leader: FillLeader) {
        let length = match head.status {
            StatusCode::NO_CONTENT => Some(0),
            _ => content_length(&head.headers),
        };
        let place = place(self.key, head.status, || head.headers.clone());
        let min_uses = self.handling.caching.as_ref().map_or(1, |rules| rules.min_uses);
        let kept = (min_uses <= 1 || self.cache.uses().count(self.key) >= min_uses)
            && self.cache.store.admits(place, &head.variant);
        let of = self.representation(head, length);
        let (body, mut writer) = BlockedBody::arriving(&self.cache.tiers, of, kept);
        self.note_length(&body, length);
        leader.settle(FetchOutcome::Body(body.clone()));
        let received = self.copy(&body, relay, &mut writer, &leader).await;
        let version = body.long().map(|long| long.version);
        match (received, version) {
            (Ok(()), None) => self.keep_whole(&body, writer),
            (Ok(()), Some(version)) => {
                if let Some(length) = writer.finish() {
                    self.put_blocked(&body.of.head, version, length);
                }
            }
            (Err(incomplete), version) => {
                if !matches!(incomplete, Incomplete::Unread) {
                    tracing::info!(uri = without_query(&self.identity), "{incomplete}");
                }
                // No request may follow a broken fetch. The blocks of a long body that broke off, or that
                // nobody reads, are useful if the rest can be asked for by range.
                drop(leader);
                let has_blocks = matches!(incomplete, Incomplete::BrokenOff | Incomplete::Unread);
                if let (Some(version), Some(length)) = (version, length)
                    && has_blocks
                    && writer.is_resumable()
                {
                    self.put_blocked(&body.of.head, version, length);
                }
            }
        }
    }

    async fn copy(
        &self,
        body: &BlockedBody,
        mut relay: Relay,
        writer: &mut BodyWriter,
        leader: &FillLeader,
    ) -> Result<(), Incomplete> {
        let length = body.of.length;
        let (mut moved, mut unread_since) = (Instant::now(), None::<Instant>);
        loop {
            relay.read_at_most(self.cache.tiers.memory.longest_read());
            writer.room().await;
            let piece = tokio::time::timeout(LOOKS, relay.next_data()).await;
            if writer.is_read(leader.has_followers()) {
                unread_since = None;
            } else if piece.is_err()
                || unread_since.get_or_insert_with(Instant::now).elapsed() > UNREAD
            {
                return Err(Incomplete::Unread);
            }
            let Ok(piece) = piece else {
                // Requests that come later need not wait for it, unless all responses share a full link.
                if moved.elapsed() >= Relay::STILL && !relay.server_moves() {
                    leader.end_following();
                }
                continue;
            };
            moved = Instant::now();
            let Some(piece) = piece else { break };
            let piece = piece.map_err(|_| Incomplete::BrokenOff)?;
            let written = writer.written() + piece.len() as u64;
            if length.is_some_and(|length| written > length) {
                return Err(Incomplete::TooLong);
            }
            self.note_length(body, Some(written));
            let pushed = writer.push(piece, || leader.has_followers()).await;
            pushed.map_err(|_| Incomplete::Unread)?;
            if body.is_long() && !writer.is_kept() {
                leader.end_following();
            }
        }
        match length {
            Some(length) if length != writer.written() => Err(Incomplete::TooShort),
            _ => Ok(()),
        }
    }

    /// The body has at least this length.
    fn note_length(&self, body: &BlockedBody, length: Option<u64>) {
        if length.is_some_and(|length| length > body.of.block) {
            body.set_long(|| self.origin(&body.of.head).long(new_version()));
        }
    }

    /// Keeps a body of one block as an ordinary object.
    fn keep_whole(&self, body: &BlockedBody, writer: BodyWriter) {
        let (identity, head) = (&*self.identity, body.of.head.clone());
        let object = Object::new(identity, head, writer.pieces().iter(), writer.written());
        let object = Arc::new(object);
        if writer.is_kept() {
            self.keep(object.clone());
        }
        writer.finish_as(object.body());
    }

    fn put_blocked(&self, head: &StoredHead, version: u64, length: u64) -> Arc<Object> {
        let block = self.cache.block;
        let blocks = Blocks { version, block, length };
        let object = Arc::new(Object::blocked(&self.identity, head.clone(), blocks));
        self.keep(object.clone());
        object
    }

    /// A large file, of which only the head is stored.
    fn large(&self, head: &StoredHead, length: u64) -> FetchOutcome {
        FetchOutcome::Large(self.put_blocked(head, new_version(), length))
    }

    /// Whether a representation is fetched in pieces and the request may learn of it.
    fn is_large(&self, headers: &HeaderMap, length: u64, received: SystemTime) -> bool {
        let validators = Validators::of(headers, received);
        self.head_is_enough
            && self.piece.is_none()
            && large::is_large(
                &self.cache,
                &self.site,
                &self.identity,
                (headers, &validators, length),
            )
    }

    fn keep(&self, object: Arc<Object>) {
        self.cache.keep(self.key, object, &self.pending);
    }

    fn representation(&self, head: StoredHead, length: Option<u64>) -> Representation {
        let (key, identity) = (self.key, self.identity.clone());
        Representation { key, identity, head, block: self.cache.block, length }
    }

    fn origin(&self, head: &StoredHead) -> Arc<PartOrigin> {
        let version = (&head.validators, &head.headers);
        PartOrigin::new(&self.cache, &self.site, self.key, version, || self.head.clone())
    }

    /// A 206 to the request for a block: the whole, if there is no more of it, or the first block of
    /// many. Parts that could be mixed up with those of another representation are of no use.
    async fn receive_part(
        self,
        number: u64,
        mut head: response::Parts,
        relay: Relay,
        verdict: Result<Storable, &'static str>,
        received: SystemTime,
        leader: FillLeader,
    ) {
        let told = ContentRange::of_part(&head.headers);
        let (Ok(storable), Some(ContentRange { range: Some(range), length: Some(length) })) =
            (verdict, told)
        else {
            self.cache.remember_no_parts(self.key);
            return leader.conclude(FetchOutcome::Unshared);
        };
        head.status = StatusCode::OK;
        head.headers.remove(header::CONTENT_RANGE);
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        if self.is_large(&head.headers, length, received) {
            let head = self.stored_head(head, storable, received);
            return leader.conclude(self.large(&head, length));
        }
        let mut head = self.stored_head(head, storable, received);
        if range == (0..length) && length <= self.cache.block {
            return self.receive(head, relay, leader).await;
        }
        let origin = self.origin(&head);
        if origin.parts() == Parts::None {
            self.cache.remember_no_parts(self.key);
            // Useful by itself, though not together with other blocks.
            let first = number.saturating_mul(self.cache.block);
            let is_asked_for = range == (first..length.min(first.saturating_add(self.cache.block)));
            (head.status, head.headers) = part::as_part(head.headers, range, length);
            return match Inside::of(&self.request_headers, &head) {
                Some(_) if is_asked_for => self.receive(head, relay, leader).await,
                _ => leader.conclude(FetchOutcome::Unshared),
            };
        }
        let of = self.representation(head, Some(length));
        let version = new_version();
        let long = origin.clone().long(version);
        let body = BlockedBody::in_blocks(&self.cache.tiers, of, long, None);
        if range != body.span(number) {
            self.cache.remember_no_parts(self.key);
            return leader.conclude(FetchOutcome::Unshared);
        }
        self.put_blocked(&body.of.head, version, length);
        origin.first(body, number, relay, leader).await;
    }

    /// The origin's answer to the client's own range: a part to be stored, or an answer for this client.
    async fn receive_as_asked(
        self,
        range: RangeSpec,
        mut head: response::Parts,
        relay: Relay,
        verdict: Result<Storable, &'static str>,
        received: SystemTime,
        leader: FillLeader,
    ) {
        let told = named(&head.headers, &[header::CONTENT_RANGE]);
        let verdict = match verdict {
            Ok(_) if !part::settle(&mut head.headers, Some(range), self.cache.block) => {
                Err("range")
            }
            verdict => verdict,
        };
        match verdict {
            Ok(storable) => {
                // The client that asked gets the range as the origin stated it.
                let own = told.into_iter().chain(named(&head.headers, &storable.strip));
                leader.own().fields =
                    own.filter_map(|(name, value)| Some((name?, value))).collect();
                let head = self.stored_head(head, storable, received);
                self.receive(head, relay, leader).await;
            }
            Err(reason) => {
                let is_whole = !self.unkeyed.are_missed();
                leader.own().unshared = Some(UnsharedResponse { head, relay, reason, is_whole });
                leader.conclude(FetchOutcome::Unshared);
            }
        }
    }

    /// A 304: the stored response lives on under renewed fields (RFC 9111 Sec. 4.3.4).
    fn renew(
        self,
        stored: &Object,
        answer: &response::Parts,
        requested: SystemTime,
        received: SystemTime,
        leader: FillLeader,
    ) {
        let mut head = stored.head();
        update_stored(&mut head.headers, &answer.headers);
        let verdict = self.judge(head.status, &head.headers, requested, received);
        head.headers.remove(header::AGE);
        head.label = head.label.renewed(&head.headers, &self.identity, self.pending.born());
        self.cache.purges.strip(&mut head.headers);
        match verdict {
            Ok(storable) => {
                head.validators = Validators::of(&head.headers, received);
                head.freshness = storable.freshness;
                strip_fields(&mut head.headers, &storable.strip);
                self.prepare_for_copies(&mut head);
                let renewed = Arc::new(stored.renewed(head));
                self.keep(renewed.clone());
                leader.conclude(FetchOutcome::Renewed(renewed));
            }
            // It may be used this once, by the client that asked, but no longer be kept.
            Err(_) => {
                self.cache.store.remove(self.key);
                head.freshness = head.freshness.never_again();
                let renewed = stored.renewed(head);
                leader.conclude(FetchOutcome::Renewed(Arc::new(renewed)));
            }
        }
    }
}

/// Why a body was not received whole.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Incomplete {
    #[error("the origin's body broke off")]
    BrokenOff,
    #[error("the origin's body is longer than it said")]
    TooLong,
    #[error("the origin's body is shorter than it said")]
    TooShort,
    #[error("all clients have left a body that is not stored, or memory is short")]
    Unread,
}

/// Whether a response that may not be stored lets the same be expected of the next: not if that was up
/// to the request, nor in a failure that will pass.
fn speaks_for_others(status: StatusCode, reason: &str) -> bool {
    let by_request =
        [NoStore::RequestNoStore, NoStore::Authorization].map(NoStore::as_str).contains(&reason)
            || reason == UNKEYED;
    !by_request && !status.is_server_error()
}

/// The fields of these names.
fn named(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let values = |name| headers.get_all(name).iter().map(move |value| (name, value));
    names.iter().flat_map(values).map(|(name, value)| (name.clone(), value.clone())).collect()
}
