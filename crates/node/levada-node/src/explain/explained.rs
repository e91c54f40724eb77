//! A request that an operator asks about, and the route of a site that it takes.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use levada_body::files::FileDirectory;
use levada_rules::{RequestFacts, RouteStep};
use levada_store::identity::ResourceUrl;
use serde::{Deserialize, Serialize};

use levada_config::{
    Handling, Redirects, RoutePlace, RoutedBy, SiteRoutes, SiteSettings, identity,
};

/// The request that is explained: a GET.
#[derive(Clone, Debug)]
pub struct ExplainedRequest {
    /// The absolute URL.
    pub url: String,
    /// The value that the site takes its key from, if that is not the URL.
    pub key: Option<String>,
    /// The client's address.
    pub client: IpAddr,
    /// The header fields.
    pub headers: HeaderMap,
}

impl ExplainedRequest {
    /// A request from this machine, without header fields.
    pub fn new(url: &str) -> Self {
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self { url: url.to_owned(), key: None, client, headers: HeaderMap::new() }
    }

    /// Adds a field, written as `Name: value`; whether it is one.
    pub fn add_header(&mut self, line: &str) -> bool {
        let field = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::try_from(name.trim()).ok()?;
            Some((name, HeaderValue::try_from(value.trim()).ok()?))
        });
        field.map(|(name, value)| self.headers.append(name, value)).is_some()
    }

    /// The fields that take part in keys: those that the origin may get.
    pub fn end_to_end(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        levada_cache::strip_request(&mut headers);
        headers
    }

    /// The URL in normal form; `None` if it is not absolute.
    pub fn resource(&self) -> Option<ResourceUrl> {
        ResourceUrl::of(&self.url.parse().ok()?)
    }

    /// The facts of a GET with these fields.
    pub fn facts<'a>(&self, url: &'a ResourceUrl, headers: &'a HeaderMap) -> RequestFacts<'a> {
        identity::facts(url, self.client, &Method::GET, headers)
    }

    /// The expressions that the request meets: those of the routes up to the one that takes it, and those of
    /// its handling.
    pub fn expressions(
        &self,
        routes: &SiteRoutes,
        taken: Option<usize>,
        handling: &Handling,
        url: &ResourceUrl,
    ) -> Vec<EvaluatedExpression> {
        let facts = self.facts(url, &self.headers);
        let tried = routes.table.routes().iter().take(taken.map_or(usize::MAX, |at| at + 1));
        let matchers = tried.filter_map(|route| route.when.as_ref());
        let all = matchers.chain(handling.expressions());
        all.map(|expression| {
            let result = expression.explain(&facts);
            EvaluatedExpression {
                place: expression.place().to_owned(),
                expression: expression.source().to_owned(),
                failure: result.as_ref().err().map(ToString::to_string),
                value: result.ok(),
            }
        })
        .collect()
    }

    /// The place of the request among the routes of a site, and the way to it.
    pub fn place(&self, site: &SiteSettings, url: &ResourceUrl) -> (RoutePlace, Vec<RouteStep>) {
        let by = RoutedBy { client: self.client, method: &Method::GET, headers: &self.headers };
        let (routes, mut steps) = (&site.routes, Vec::new());
        let start = RoutePlace { number: None, url: url.clone(), redirects: Redirects::default() };
        let first = routes.place(&by, url.clone(), None, &mut |step| steps.push(step));
        let mut place = first.unwrap_or(start);
        loop {
            let route = place.number.map(|number| &routes.all[number]);
            let handling = route.map_or(&site.handling, |route| &route.handling);
            let servers = route.and_then(|route| route.servers.as_ref()).unwrap_or(&site.servers);
            let lacking =
                servers.files.as_ref().zip(handling.without_file()).filter(|(files, _)| {
                    let facts = by.facts(&place.url, place.redirects.internal);
                    !FileDirectory::new(files).has_now(&handling.file_target(&facts))
                });
            let Some((_, to)) = lacking else { break };
            let note = &mut |step| steps.push(step);
            match routes.go_on(&by, place.clone(), (to, "no file"), note) {
                Ok(next) => place = next,
                Err(_) => break,
            }
        }
        (place, steps)
    }

    /// The route that takes the request, how it is handled, and why the routes before it do not take it.
    pub fn routed(
        &self,
        routes: &SiteRoutes,
        of_site: &Handling,
        (place, steps): (&RoutePlace, Vec<RouteStep>),
    ) -> Option<TakenRoute> {
        let words = of_site.in_words();
        if routes.all.is_empty() && words.is_empty() {
            return None;
        }
        let (taken, internal) = (place.number, place.redirects.internal);
        let facts = RequestFacts { internal, ..self.facts(&place.url, &self.headers) };
        let tried = routes.table.routes().iter().zip(&routes.all);
        let tried = tried.take(taken.unwrap_or(routes.all.len()));
        let not_taken = tried.filter_map(|(conditions, route)| {
            let failed = conditions.first_that_fails(&facts)?;
            Some(RouteNotTaken { name: route.name.to_string(), because: failed.as_str().into() })
        });
        let words_of = |RouteStep { from, why, target, to }: RouteStep| {
            let from = from.map_or_else(|| "the site".to_owned(), |name| format!("route {name}"));
            format!("{from}: {why}, on with {target} at {to}")
        };
        Some(TakenRoute {
            number: taken,
            name: taken.map(|number| routes.all[number].name.to_string()),
            way: steps.into_iter().map(words_of).collect(),
            handling: match taken {
                Some(number) => routes.all[number].handling.in_words(),
                None => words,
            },
            before: not_taken.collect(),
        })
    }
}

/// The route that a request takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakenRoute {
    /// Its number, from 0.
    #[serde(skip)]
    pub number: Option<usize>,
    /// Its name; `None` if no route takes the request.
    pub name: Option<String>,
    /// The internal redirects that lead to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub way: Vec<String>,
    /// How it handles requests.
    pub handling: Vec<String>,
    /// The routes before it, or all of them.
    pub before: Vec<RouteNotTaken>,
}

/// An expression that a request meets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvaluatedExpression {
    /// The key of the configuration that has it.
    pub place: String,
    /// The expression.
    pub expression: String,
    /// Its value as a text.
    pub value: Option<String>,
    /// The reason why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A route that does not take a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteNotTaken {
    /// Its name.
    pub name: String,
    /// The matcher that does not hold.
    pub because: Cow<'static, str>,
}
