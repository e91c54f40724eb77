//! A request that an operator asks about, and the route of a site that it takes.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use levada_rules::RequestFacts;
use levada_store::identity::ResourceUrl;
use serde::{Deserialize, Serialize};

use levada_config::{Handling, SiteRoutes, identity};

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

    /// The first route of the site that takes the request, and how it is handled.
    pub fn routed(
        &self,
        routes: &SiteRoutes,
        of_site: &Handling,
        url: &ResourceUrl,
    ) -> Option<TakenRoute> {
        let words = of_site.in_words();
        if routes.all.is_empty() && words.is_empty() {
            return None;
        }
        let facts = self.facts(url, &self.headers);
        let taken = routes.table.find(&facts);
        let tried = routes.table.routes().iter().zip(&routes.all);
        let tried = tried.take(taken.unwrap_or(routes.all.len()));
        let not_taken = tried.filter_map(|(conditions, route)| {
            let failed = conditions.first_that_fails(&facts)?;
            Some(RouteNotTaken { name: route.name.to_string(), because: failed.as_str().into() })
        });
        Some(TakenRoute {
            number: taken,
            name: taken.map(|number| routes.all[number].name.to_string()),
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
