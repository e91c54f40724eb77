//! The identity of what is stored, and the one place that makes it.
//!
//! ```text
//! client ── URL, fields ──► route ── Handling ──► Identity::of ──► text, key, target for the origin
//! ```
//!
//! A cache, a peer, a fetch that requests share, a purge and `levada explain` all go by it. It has whatever
//! changes what a server is asked for: a rewritten path and query, the variant of the key rules, and the
//! [space](Handling::space) of the route.

use std::{collections::BTreeSet, fmt, net::IpAddr, net::Ipv4Addr, sync::Arc};

use http::{HeaderMap, Method, Uri};
use levada_rules::{
    Conditions, Destination, KeyRules, MOST_REDIRECTS, RequestFacts, Rewrite, Scheme,
};
use levada_store::identity::{ResourceUrl, SPACE};
use levada_types::{Key, hash64};

use crate::settings::{Handling, SiteServers, SiteSettings};

/// A request for `url` as rules see it.
pub fn facts<'a>(
    url: &'a ResourceUrl,
    client: IpAddr,
    method: &'a Method,
    headers: &'a HeaderMap,
) -> RequestFacts<'a> {
    let scheme = if url.scheme() == "https" { Scheme::Https } else { Scheme::Http };
    RequestFacts::new(client, (scheme, url.host()), (method, url.target()), headers)
}

/// The identity of the response to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The text, where it is not the URL itself.
    text: Option<Box<str>>,
    key: Key,
    rewritten: Option<Arc<Uri>>,
}

impl Identity {
    /// The identity of a request for `url` with these fields, which its route or site handles. `part` is the
    /// piece of a file, or the digest that the client requires. `facts` are those of the request.
    pub fn of<'f>(
        url: &ResourceUrl,
        handling: &Handling,
        part: Option<&dyn fmt::Display>,
        headers: &HeaderMap,
        facts: impl Fn() -> RequestFacts<'f>,
    ) -> Self {
        let rewrite = handling.adjustments.as_ref().and_then(|with| with.rewrite.as_ref());
        let target = rewrite.map(|rewrite| rewrite.target(&facts()));
        let rewritten: Option<Arc<Uri>> =
            target.as_ref().and_then(|target| target.parse().ok()).map(Arc::new);
        let target = target.filter(|_| rewritten.is_some());
        let rules = handling.caching.as_ref().map(|rules| &rules.key);
        if target.is_none() && rules.is_none() && part.is_none() && handling.space.is_none() {
            return Self { text: None, key: Key::of(url.as_str().as_bytes()), rewritten };
        }
        let mut text = rules.map(|rules| rules.variant(headers, facts)).unwrap_or_default();
        if !text.is_empty() {
            text.push(' ');
        }
        text.extend(part.map(|part| format!("{part} ")));
        push(url, target.as_deref(), handling.space.as_deref(), rules, &mut text);
        Self { key: Key::of(text.as_bytes()), text: Some(text.into()), rewritten }
    }

    /// Its text: `url` is the one that it was made of.
    pub fn text<'a>(&'a self, url: &'a ResourceUrl) -> &'a str {
        self.text.as_deref().unwrap_or(url.as_str())
    }

    /// The hash of its text.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Path and query that the origin is asked with, where they are not the client's.
    pub fn rewritten(&self) -> Option<&Arc<Uri>> {
        self.rewritten.as_ref()
    }
}

/// Appends the space, and the URL with the part of its path and query that counts.
fn push(
    url: &ResourceUrl,
    target: Option<&str>,
    space: Option<&str>,
    rules: Option<&KeyRules>,
    text: &mut String,
) {
    if let Some(space) = space {
        text.push_str(space);
        text.push(' ');
    }
    match rules.and_then(|rules| rules.host.as_ref()) {
        Some(host) => text.extend([url.scheme(), "://", host]),
        None => text.push_str(url.root()),
    }
    let target = target.unwrap_or(url.target());
    match rules {
        Some(rules) => text.push_str(&rules.target(target)),
        None => text.push_str(target),
    }
}

/// The forms in which the URLs of a site stand in identities: one for each way in which the site and its routes
/// make them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyForms {
    forms: Arc<[KeyForm]>,
    /// The paths that internal redirects go on with, each with the matchers of the path that lead to it.
    onward: Arc<[(Conditions, Rewrite)]>,
    /// Whether a key has more than the URL.
    has_variants: bool,
}

#[derive(Debug, PartialEq)]
struct KeyForm {
    /// The matchers of the path alone: a purge knows no more of the requests.
    paths: Conditions,
    space: Option<Arc<str>>,
    rewrite: Option<Rewrite>,
    rules: KeyRules,
}

impl KeyForms {
    fn of(settings: &SiteSettings) -> Self {
        let own = (Conditions::default(), &settings.handling);
        let routes = settings.routes.table.routes().iter().zip(&settings.routes.all);
        let routes = routes.map(|(matchers, route)| {
            let Conditions { paths, path_regex, .. } = matchers.clone();
            (Conditions { paths, path_regex, ..Conditions::default() }, &route.handling)
        });
        let (mut forms, mut has_variants) = (Vec::<KeyForm>::new(), false);
        let mut onward = Vec::new();
        let reroutes = settings.routes.all.iter().map(|route| route.reroute.as_ref());
        let reroutes = reroutes.chain([None]);
        for ((paths, handling), reroute) in routes.chain([own]).zip(reroutes) {
            for to in handling.destinations().chain(reroute) {
                if let Destination::Path(rewrite) = to {
                    onward.push((paths.clone(), rewrite.clone()));
                }
            }
            let rules = handling.caching.as_ref().map(|rules| &rules.key);
            has_variants |= rules.is_some_and(KeyRules::has_variants);
            let rules = rules.map(KeyRules::of_url);
            let rewrite = handling.adjustments.as_ref().and_then(|with| with.rewrite.clone());
            let (space, rules) = (handling.space.clone(), rules.unwrap_or_default());
            let form = KeyForm { paths, space, rewrite, rules };
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        Self { forms: forms.into(), onward: onward.into(), has_variants }
    }

    /// Whether a URL may have more identities than [`identities`](Self::identities) lists, which a purge finds.
    pub fn have_variants(&self) -> bool {
        self.has_variants
    }

    /// The identities, without variants, of what may be stored for a URL: as clients write it, or as a rewrite
    /// has made it. Rewrites by fields or by the client's address are not foreseen.
    pub fn identities(&self, url: &ResourceUrl) -> BTreeSet<String> {
        let mut urls = vec![url.clone()];
        let (mut at, mut all) = (0, BTreeSet::new());
        while let Some(url) = urls.get(at).cloned() {
            self.add_identities(&url, &mut all);
            for to in self.led_on(&url).filter(|_| at < usize::from(MOST_REDIRECTS)) {
                if !urls.contains(&to) {
                    urls.push(to);
                }
            }
            at += 1;
        }
        all
    }

    /// The URLs that an internal redirect may go on with.
    fn led_on(&self, url: &ResourceUrl) -> impl Iterator<Item = ResourceUrl> {
        let none = HeaderMap::new();
        let facts = facts(url, IpAddr::V4(Ipv4Addr::UNSPECIFIED), &Method::GET, &none);
        let taken = self.onward.iter().filter(|(paths, _)| paths.hold(&facts));
        let targets = taken.map(|(_, rewrite)| rewrite.target(&facts));
        let urls = targets.map(|target| ResourceUrl::new(url.scheme(), url.host(), &target));
        urls.collect::<Vec<_>>().into_iter()
    }

    fn add_identities(&self, url: &ResourceUrl, all: &mut BTreeSet<String>) {
        let (client, none) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), HeaderMap::new());
        let facts = facts(url, client, &Method::GET, &none);
        all.insert(url.as_str().to_owned());
        for KeyForm { paths, space, rewrite, rules } in &*self.forms {
            let rewritten = rewrite.as_ref().filter(|_| paths.hold(&facts));
            let rewritten = rewritten.map(|rewrite| rewrite.target(&facts));
            for target in [None, rewritten.as_deref()] {
                let mut text = String::new();
                push(url, target, space.as_deref(), Some(rules), &mut text);
                all.insert(text);
            }
        }
    }
}

impl SiteSettings {
    /// The site whose routes have spaces of their own, where they ask something else than the site does.
    pub fn with_spaces(mut self) -> Self {
        let own = question(&self.servers, &self.handling);
        for route in &mut self.routes.all {
            let asked = question(route.servers.as_ref().unwrap_or(&self.servers), &route.handling);
            if asked != own {
                route.handling.space =
                    Some(format!("{SPACE}{:016x}", hash64(asked.as_bytes())).into());
            }
        }
        let routes = self.routes.all.iter_mut().map(|route| &mut route.handling);
        for handling in routes.chain([&mut self.handling]) {
            let word = handling.caching.as_ref().and_then(|rules| rules.key.share_word());
            if let Some(word) = word {
                handling.space = Some(format!("{SPACE}={word}").into());
            }
        }
        self.forms = KeyForms::of(&self);
        self
    }
}

/// Everything that changes the answer of a server apart from the URL: which servers are asked, by which protocol, under which
/// name, and with which fields of the client and of the operator.
fn question(servers: &SiteServers, handling: &Handling) -> String {
    let SiteServers { origins, switch, origin_host, protocols, tls, .. } = servers;
    let switched = switch.iter().flat_map(|switch| &switch.servers).map(|server| &server.origin);
    let mut text = String::new();
    for origin in origins.iter().chain(switched) {
        text.push_str(&format!("{origin}\n"));
    }
    text.push_str(&format!("h2: {}\n", protocols.h2));
    text.push_str(&format!("host: {origin_host:?}\n"));
    if let Some(tls) = tls {
        let certificate = tls.identity.as_ref().map(|identity| &identity.certificate);
        text.push_str(&format!("tls: {:?} {certificate:?}\n", tls.server_name));
    }
    text.push_str(&format!("fields: {:?}\n", handling.fetch_fields));
    text.extend(handling.adjustments.as_ref().map(|with| with.request.as_text()));
    text
}
