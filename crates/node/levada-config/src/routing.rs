//! The way of a request through the routes of its site: the first one that takes it, and from there by internal
//! redirects. A node that serves and one that explains go the same way.
//!
//! ```text
//! client ──► first that matches ──► reroute ──► a route by its name, or all again with another path ──► ...
//! peer ────► the route that the node took which met the client
//! a file that is not there, an error ──► SiteRoutes::go_on
//! ```

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, Method};
use levada_rules::{Destination, MOST_REDIRECTS, RequestFacts, RouteStep};
use levada_store::identity::ResourceUrl;

use crate::{SiteRoutes, identity};

/// A request, apart from its URL, as routes see it.
#[derive(Clone, Copy, Debug)]
pub struct RoutedBy<'a> {
    /// The client.
    pub client: IpAddr,
    /// The method.
    pub method: &'a Method,
    /// The header fields.
    pub headers: &'a HeaderMap,
}

/// The place of a request among the routes of its site.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePlace {
    /// The number of the route; `None`: the request is handled as the site says.
    pub number: Option<usize>,
    /// Its URL, which internal redirects may have changed.
    pub url: ResourceUrl,
    /// The internal redirects that led here.
    pub redirects: Redirects,
}

/// The internal redirects of a request so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redirects {
    /// Their number.
    pub count: u8,
    /// Whether routes that are internal take the request.
    pub internal: bool,
}

/// The routes of a site send a request on too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the routes of the site send the request on more than {MOST_REDIRECTS} times")]
pub struct TooManyRedirects;

impl SiteRoutes {
    /// The place of a request for `url`. A peer has `told` the route that the request took there; one of this name counts,
    /// whatever the request has become on the way.
    ///
    /// # Errors
    /// If the routes send it on too often.
    pub fn place(
        &self,
        by: &RoutedBy<'_>,
        url: ResourceUrl,
        told: Option<&HeaderValue>,
        note: &mut dyn FnMut(RouteStep),
    ) -> Result<RoutePlace, TooManyRedirects> {
        let first = |url| self.table.find(&by.facts(url, false));
        let number = match told {
            Some(name) if name.is_empty() => None,
            Some(name) => self.named(name.as_bytes()).or_else(|| first(&url)),
            None => first(&url),
        };
        let place = RoutePlace { number, url, redirects: Redirects::default() };
        if told.is_some() { Ok(place) } else { self.rerouted(by, place, note) }
    }

    /// The place of a request that goes on at `to` from another place.
    ///
    /// # Errors
    /// If it has gone on too often.
    pub fn go_on(
        &self,
        by: &RoutedBy<'_>,
        place: RoutePlace,
        (to, why): (&Destination, &'static str),
        note: &mut dyn FnMut(RouteStep),
    ) -> Result<RoutePlace, TooManyRedirects> {
        let place = self.step(by, place, (to, why), note)?;
        self.rerouted(by, place, note)
    }

    fn rerouted(
        &self,
        by: &RoutedBy<'_>,
        mut place: RoutePlace,
        note: &mut dyn FnMut(RouteStep),
    ) -> Result<RoutePlace, TooManyRedirects> {
        while let Some(to) = place.number.and_then(|number| self.all[number].reroute.as_ref()) {
            place = self.step(by, place, (to, "reroute"), note)?;
        }
        Ok(place)
    }

    fn step(
        &self,
        by: &RoutedBy<'_>,
        place: RoutePlace,
        (to, why): (&Destination, &'static str),
        note: &mut dyn FnMut(RouteStep),
    ) -> Result<RoutePlace, TooManyRedirects> {
        let RoutePlace { number: from, mut url, mut redirects } = place;
        if redirects.count >= MOST_REDIRECTS {
            return Err(TooManyRedirects);
        }
        redirects.count += 1;
        let number = match to {
            Destination::Next => {
                let start = from.map_or(0, |from| from as u32 + 1);
                self.table.find_from(start, &by.facts(&url, redirects.internal))
            }
            Destination::Route(name) => {
                redirects.internal = true;
                self.named(name.as_bytes())
            }
            Destination::Path(rewrite) => {
                redirects.internal = true;
                let target = rewrite.target(&by.facts(&url, true));
                url = ResourceUrl::new(url.scheme(), url.host(), &target);
                self.table.find(&by.facts(&url, true))
            }
        };
        let name = |number: usize| self.all[number].name.clone();
        note(RouteStep {
            from: from.map(name),
            why,
            target: url.target().to_owned(),
            to: number.map_or_else(|| "the site".to_owned(), |at| format!("route {}", name(at))),
        });
        Ok(RoutePlace { number, url, redirects })
    }

    /// The number of the route with this name.
    pub fn named(&self, name: &[u8]) -> Option<usize> {
        self.all.iter().position(|route| route.name.as_bytes() == name)
    }

    /// The names of all routes that lead to each other by `reroute` without end, from this one on.
    pub fn endless(&self, from: usize) -> Option<Vec<Arc<str>>> {
        let mut way = vec![from];
        loop {
            let Some(Destination::Route(name)) = &self.all[*way.last()?].reroute else {
                return None;
            };
            let next = self.named(name.as_bytes())?;
            if next == from {
                return Some(way.iter().map(|number| self.all[*number].name.clone()).collect());
            }
            if way.contains(&next) {
                return None;
            }
            way.push(next);
        }
    }
}

impl RoutedBy<'_> {
    /// The facts of the request for `url`.
    pub fn facts<'u>(&'u self, url: &'u ResourceUrl, internal: bool) -> RequestFacts<'u> {
        let facts = identity::facts(url, self.client, self.method, self.headers);
        RequestFacts { internal, ..facts }
    }
}
