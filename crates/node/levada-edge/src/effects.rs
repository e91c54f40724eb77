//! The effects of an answer that passes the cache by on stored responses.
//!
//! A successful unsafe request invalidates its URI, the URIs of the same host that its answer names
//! (RFC 9111 Sec. 4.4), and the groups that it lists (RFC 9875 Sec. 3), on this node and at the peers.
//! The answer to a HEAD confirms a stored response, or shows that it is outdated (Sec. 4.3.5).

use std::{collections::BTreeSet, sync::Arc, time::SystemTime};

use http::{HeaderMap, Method, StatusCode, Uri};
use levada_cache::{
    OriginExchange, Validators, head_confirms, invalidated, is_safe, may_store, strip_fields,
    update_stored,
};
use levada_cluster::orders::Invalidated;
use levada_cluster::purge::{PurgeOrder, PurgeTarget};
use levada_rules::CacheUse;
use levada_store::identity::ResourceUrl;
use levada_types::Key;

use crate::{cache::Cache, request::RequestContext, resource::Resource};

/// The facts of a request that matter to stored responses.
pub(crate) struct Effects {
    method: Method,
    /// For a HEAD: the client's fields, which select a variant, and the time it was forwarded.
    compared: Option<Box<(HeaderMap, SystemTime)>>,
}

impl Effects {
    /// The effects of a request that is about to be forwarded. The answer to a HEAD says nothing of what is stored for
    /// all if its client alone has said something, or if it would not be stored itself.
    pub(crate) fn of(context: &RequestContext) -> Self {
        let RequestContext { parts, cache_use, .. } = context;
        let is_for_all = parts.method == Method::HEAD
            && *cache_use == CacheUse::Full
            && context.unkeyed().is_empty();
        let compared = is_for_all.then(|| Box::new((parts.headers.clone(), SystemTime::now())));
        Self { method: parts.method.clone(), compared }
    }

    /// Applies the effects of the answer. Returns what else is invalid from now on: groups here, and all
    /// of it at the peers.
    pub(crate) fn take(
        &self,
        cache: &Cache,
        resource: &Resource,
        status: StatusCode,
        answer: &HeaderMap,
    ) -> Invalidated {
        if !is_safe(&self.method) {
            return invalidate(cache, resource, &self.method, status, answer);
        }
        if let Some((request, requested)) = self.compared.as_deref()
            && status == StatusCode::OK
        {
            compare(cache, resource, request, *requested, answer);
        }
        Invalidated::default()
    }
}

/// Updates the stored response with the fields of a HEAD that confirms it, or makes it stale if the
/// HEAD contradicts it.
fn compare(
    cache: &Cache,
    resource: &Resource,
    request: &HeaderMap,
    requested: SystemTime,
    answer: &HeaderMap,
) {
    let pending = cache.purges.begin();
    let sought = cache.store.get(resource.key(), resource.identity(), request);
    let stored = cache.purges.without_purged(sought).object;
    let Some(stored) = stored.filter(|object| object.status() == StatusCode::OK) else {
        return;
    };
    let received = SystemTime::now();
    let mut head = stored.head();
    if head_confirms(&head.headers, answer) {
        update_stored(&mut head.headers, answer);
        let exchange = OriginExchange {
            method: &Method::GET,
            request,
            status: head.status,
            response: &head.headers,
            requested,
            received,
        };
        let rules = &resource.handling.rules;
        let storable = match resource.handling.deceives(resource.target(), &head.headers) {
            true => may_store(&exchange, &rules.of_http()),
            false => may_store(&exchange, rules),
        };
        let Ok(storable) = storable else { return cache.store.remove(resource.key()) };
        head.validators = Validators::of(&head.headers, received);
        head.freshness = storable.freshness;
        strip_fields(&mut head.headers, &storable.strip);
        head.headers.remove(http::header::AGE);
    } else {
        head.freshness = head.freshness.expired(received);
    }
    cache.purges.strip(&mut head.headers);
    if let Some(compress) = &resource.handling.compress {
        compress.prepare(&mut head, request);
    }
    cache.keep(resource.key(), Arc::new(stored.renewed(head)), &pending);
}

/// The responses that are invalid from now on. URLs are at this node already.
fn invalidate(
    cache: &Cache,
    resource: &Resource,
    method: &Method,
    status: StatusCode,
    answer: &HeaderMap,
) -> Invalidated {
    let failed = status.is_client_error() || status.is_server_error();
    let groups =
        if failed { None } else { levada_cluster::orders::groups(resource.stored_url(), answer) };
    let (forms, mut urls) = (&resource.site.settings.forms, Vec::new());
    // The answer may name URLs as the client writes them, or as the origin does.
    for url in BTreeSet::from([resource.stored_url(), resource.url.as_str()]) {
        let Ok(target) = url.parse::<Uri>() else { continue };
        for url in invalidated(method, status, &target, answer).iter().filter_map(ResourceUrl::of) {
            for identity in forms.identities(&url) {
                cache.invalidate(Key::of(identity.as_bytes()));
            }
            urls.push(url.as_str().to_owned());
        }
    }
    // Only a purge finds the variants of a key.
    let variants = (forms.have_variants() && !urls.is_empty())
        .then(|| PurgeOrder { target: PurgeTarget::Urls(urls.clone()), soft: false });
    Invalidated { urls, groups, variants }
}
