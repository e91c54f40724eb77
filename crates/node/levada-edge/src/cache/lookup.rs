//! Looks a request up in the store and judges whether the result may be used.

use std::{sync::Arc, time::SystemTime};

use http::Method;
use levada_body::{part, partial::first_byte};
use levada_cache::{
    ForwardReason, OriginFailure, RangeSpec, RequestCacheFields, RequestDirectives, ServeDecision,
    Staleness, Vary, has_precondition, serve, serve_instead_of_error, serve_missing,
};
use levada_rules::{CacheUse, SentFields};
use levada_store::{Object, Sought};
use levada_types::Key;

use super::Cache;
use crate::request::RequestContext;

/// The result of a look-up.
pub(crate) enum LookupResult {
    /// A stored response that may be used without asking the origin.
    Stored {
        object: Arc<Object>,
        age: u32,
        ttl: i64,
        /// It is stale, and is to be fetched again for later requests.
        refresh: Option<FillRequest>,
    },
    /// The response must be fetched; other requests may share the fetch.
    Fetch(FillRequest),
    /// The request bypasses the cache, with the reason for `Cache-Status`.
    Bypass(ForwardReason, &'static str),
    /// `only-if-cached`, and no stored response.
    Nothing,
    /// Not in memory, but perhaps on disk.
    OnDisk,
}

/// A fetch to begin.
#[derive(Clone)]
pub(crate) struct FillRequest {
    /// The key of the fetch: of the URI, or of the variant.
    pub(crate) key: Key,
    /// The stored object that needs validation.
    pub(crate) stored: Option<Arc<Object>>,
    pub(crate) why: ForwardReason,
    pub(crate) directives: RequestDirectives,
    /// The part to begin with, if the client wants a range.
    pub(crate) part: Option<PartRequest>,
    /// The sent ones of the fields that no list and no key has.
    pub(crate) fields: SentFields,
    /// It is not shared with other requests: the response is not expected to be storable.
    pub(crate) detached: bool,
}

/// The part of an object that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartRequest {
    /// A block.
    Block(u64),
    /// The client's own range.
    AsAsked(RangeSpec),
}

impl FillRequest {
    /// The fetch of a URI that no stored response answers.
    pub(crate) fn of(key: Key) -> Self {
        let (why, directives) = (ForwardReason::UriMiss, RequestDirectives::default());
        Self {
            key,
            stored: None,
            why,
            directives,
            part: None,
            fields: SentFields::Listed,
            detached: false,
        }
    }
}

/// How a stored response may be served while the origin does not answer.
pub(crate) fn may_stand_in(
    object: &Object,
    directives: &RequestDirectives,
) -> Option<ServeDecision> {
    let (freshness, now) = (object.freshness(), SystemTime::now());
    serve_instead_of_error(&freshness, directives, OriginFailure::Unreachable, now)
}

/// Looks a request up.
pub(crate) fn lookup(cache: &Cache, context: &RequestContext) -> LookupResult {
    let RequestContext { resource, parts, body, .. } = context;
    if !resource.handling.cache {
        return LookupResult::Bypass(ForwardReason::Bypass, "off");
    }
    if !levada_cache::is_cache_method(&parts.method) || body.is_some() {
        return LookupResult::Bypass(ForwardReason::Method, "method");
    }
    if let Some(found) = ruled(cache, context) {
        return found;
    }
    let sought = cache.store.get(resource.key(), resource.identity(), &parts.headers);
    let is_on_disk = || {
        cache.store.may_recall(sought.key)
            || (context.wants.range && part::may_recall(&cache.store, resource.key()))
    };
    if sought.object.is_none() && is_on_disk() {
        return LookupResult::OnDisk;
    }
    judge(cache, context, sought)
}

/// The result that the site's rules give without a look-up.
fn ruled(cache: &Cache, context: &RequestContext) -> Option<LookupResult> {
    let RequestContext { resource, parts, wants, .. } = context;
    let rules = resource.handling.caching.as_ref()?;
    if rules.min_uses > 1 {
        cache.uses().note(resource.key());
    }
    let plain = parts.method == Method::GET && !wants.range && !wants.conditional;
    match context.cache_use {
        CacheUse::StoreOnly if plain => {
            let order = FillRequest::of(resource.key());
            let (why, directives) = (ForwardReason::Bypass, wants.directives);
            Some(LookupResult::Fetch(FillRequest { why, directives, detached: true, ..order }))
        }
        CacheUse::StoreOnly | CacheUse::None => {
            Some(LookupResult::Bypass(ForwardReason::Bypass, "bypass"))
        }
        CacheUse::Full | CacheUse::ReadOnly => None,
    }
}

/// The stored response on disk for a request that the origin did not answer: a slow disk may have been passed by.
pub(crate) async fn recall_late(cache: &Cache, context: &RequestContext) -> Option<Arc<Object>> {
    match recall(cache, context, true).await {
        LookupResult::Stored { object, .. } => Some(object),
        LookupResult::Fetch(order) => order.stored,
        _ => None,
    }
}

/// Looks a request up on disk, after a miss in memory, unless the origin is faster and may be asked.
pub(crate) async fn recall(cache: &Cache, context: &RequestContext, late: bool) -> LookupResult {
    let RequestContext { resource, parts, wants, .. } = context;
    let Cache { store, purges, .. } = cache;
    if context.zero_copy.is_some()
        && let Some(sought) = store.in_file(resource.key(), resource.identity(), &parts.headers)
        // In all other cases this process needs the body.
        && let found @ LookupResult::Stored { refresh: None, .. } = judge(cache, context, sought)
    {
        return found;
    }
    let waits = late || wants.directives.only_if_cached;
    let time = &|| if waits { std::time::Duration::MAX } else { resource.site.usual_time() };
    // Purges wait until what is on its way into the memory is there.
    let _pending = purges.begin();
    let sought = store.recall(resource.key(), resource.identity(), &parts.headers, time).await;
    if sought.object.is_none() && context.wants.range {
        part::recall(store, resource.key(), resource.identity(), &parts.headers, time).await;
    }
    judge(cache, context, sought)
}

/// Decides how to answer with the result of a look-up.
fn judge(cache: &Cache, context: &RequestContext, sought: Sought) -> LookupResult {
    let RequestContext { resource, wants, parts, .. } = context;
    let RequestCacheFields { directives, range: ranged, conditional } = *wants;
    let sought = cache.purges.without_purged(sought);
    let first = if ranged { first_byte(parts) } else { None };
    let part = first.map(|first| PartRequest::Block(first / cache.block));
    let order = |stored: Option<Arc<Object>>, why| {
        let (key, detached) = (sought.key, false);
        let vary = stored.as_ref().map_or_else(|| sought.vary.clone(), |object| object.vary());
        let varying = |vary: Vary| SentFields::Varying(vary.fields().into());
        let fields = vary.map_or(SentFields::Listed, varying);
        FillRequest { key, stored, why, directives, part, fields, detached }
    };
    // Only the origin may judge them (RFC 9111 Sec. 4.3.2).
    let for_origin = conditional && has_precondition(&parts.headers);
    let missing =
        if sought.vary.is_some() { ForwardReason::VaryMiss } else { ForwardReason::UriMiss };
    let Some(object) = sought.object else {
        let as_asked = if ranged { as_asked(cache, context, sought.key) } else { None };
        if ranged && let Some(found) = stored_part(cache, context) {
            return found;
        }
        return match serve_missing(&directives) {
            ServeDecision::GatewayTimeout => LookupResult::Nothing,
            _ if for_origin => LookupResult::Bypass(missing, "precondition"),
            _ if ranged && as_asked.is_none() && cache.has_no_parts(resource.key()) => {
                LookupResult::Bypass(missing, "range")
            }
            _ if parts.method == Method::HEAD => LookupResult::Bypass(missing, "head"),
            _ => {
                let asked = as_asked.map(PartRequest::AsAsked);
                let key = as_asked.map_or(sought.key, |range| part::fetch_key(sought.key, range));
                let order = FillRequest { key, part: asked.or(part), ..order(None, missing) };
                let now = cache.clock.now();
                match directives.no_store || cache.unstorable.holds(order.key, now) {
                    true => {
                        let fields = SentFields::All;
                        LookupResult::Fetch(FillRequest { fields, detached: true, ..order })
                    }
                    false => LookupResult::Fetch(order),
                }
            }
        };
    };
    if for_origin && !directives.only_if_cached {
        return LookupResult::Bypass(ForwardReason::Request, "precondition");
    }
    if resource.piece.is_some() && object.validators().is_strong() {
        // A piece's name has its version: it never becomes stale.
        let freshness = object.freshness();
        let (age, ttl) = (freshness.age(SystemTime::now()), i64::from(u32::MAX));
        return LookupResult::Stored { object, age, ttl, refresh: None };
    }
    let mut decision = serve(&object.freshness(), &directives, SystemTime::now());
    if decision == ServeDecision::GatewayTimeout && context.is_for_stored() {
        let may = may_stand_in(&object, &directives);
        decision = may.unwrap_or(decision);
    }
    match decision {
        ServeDecision::Fresh { age, ttl }
        | ServeDecision::Stale { age, ttl, why: Staleness::Unreachable } => {
            LookupResult::Stored { object, age, ttl, refresh: None }
        }
        ServeDecision::Stale { age, ttl, .. } => {
            let refresh = Some(order(Some(object.clone()), ForwardReason::Stale));
            LookupResult::Stored { object, age, ttl, refresh }
        }
        ServeDecision::GatewayTimeout => LookupResult::Nothing,
        ServeDecision::Validate if parts.method == Method::HEAD => {
            LookupResult::Bypass(ForwardReason::Stale, "head")
        }
        ServeDecision::Validate => {
            let fresh = object.freshness().is_fresh(SystemTime::now());
            let why = if fresh { ForwardReason::Request } else { ForwardReason::Stale };
            LookupResult::Fetch(order(Some(object), why))
        }
    }
}

/// The client's range, where asking for blocks gains nothing: the end of an object of unknown length, and
/// any range of one without usable blocks.
fn as_asked(cache: &Cache, context: &RequestContext, key: Key) -> Option<RangeSpec> {
    let resource = &context.resource;
    // A fetch of the whole brings the range as well.
    if resource.site.serves_large_files().is_some() || cache.fills.is_under_way(key) {
        return None;
    }
    let range = part::as_asked(&context.parts, cache.block)?;
    (matches!(range, RangeSpec::Last(_)) || cache.has_no_parts(resource.key())).then_some(range)
}

/// A fresh stored part that has what the request asks for.
fn stored_part(cache: &Cache, context: &RequestContext) -> Option<LookupResult> {
    let RequestContext { resource, wants, parts, .. } = context;
    let found = part::stored(&cache.store, resource.key(), resource.identity(), parts);
    let mut found = found.filter_map(|sought| cache.purges.without_purged(sought).object);
    found.find_map(|object| {
        match serve(&object.freshness(), &wants.directives, SystemTime::now()) {
            ServeDecision::Fresh { age, ttl } => {
                Some(LookupResult::Stored { object, age, ttl, refresh: None })
            }
            _ => None,
        }
    })
}
