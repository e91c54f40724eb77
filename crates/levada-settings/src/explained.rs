//! A request that an operator asks about, and the route of a site that it takes.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use levada_rules::{RequestFacts, Scheme};
use serde::{Deserialize, Serialize};

use crate::{Handling, SiteRoutes};

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

    /// The text of the key under this handling.
    pub fn keyed(&self, handling: &Handling, identity: String) -> String {
        let host_at = identity.find("://").map_or(0, |at| at + 3);
        let path_at = identity[host_at..].find('/').map_or(identity.len(), |at| host_at + at);
        let rewrite = handling.adjustments.as_ref().and_then(|with| with.rewrite.as_ref());
        let rewritten = rewrite.map(|rewrite| {
            format!("{}{}", &identity[..path_at], rewrite.target(&self.facts(&identity)))
        });
        let Some(rules) = &handling.caching else { return rewritten.unwrap_or(identity) };
        // Expressions are about the URL of the client.
        let facts = || self.facts(&identity);
        rules.keyed(rewritten.as_ref().unwrap_or(&identity), path_at, &self.headers, facts).0
    }

    /// The facts of a GET of `identity`, an absolute URL.
    fn facts<'a>(&'a self, identity: &'a str) -> RequestFacts<'a> {
        let (scheme, rest) = identity.split_once("://").unwrap_or(("http", identity));
        let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
        let (host, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        RequestFacts::new(self.client, (scheme, host), (&Method::GET, target), &self.headers)
    }

    /// The expressions that the request meets: those of the routes up to the one that takes it, and those of
    /// its handling.
    pub fn expressions(
        &self,
        routes: &SiteRoutes,
        taken: Option<usize>,
        handling: &Handling,
        identity: &str,
    ) -> Vec<EvaluatedExpression> {
        let facts = self.facts(identity);
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
        identity: &str,
    ) -> Option<TakenRoute> {
        let words = of_site.in_words();
        if routes.all.is_empty() && words.is_empty() {
            return None;
        }
        let facts = self.facts(identity);
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
