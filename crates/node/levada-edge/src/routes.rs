//! The routes of a site at work.

use std::sync::Arc;

use http::HeaderValue;
use levada_rules::{RequestFacts, RouteAnswer, RouteTable};

use crate::sites::Site;
use levada_config::{Handling, SiteRoutes};

/// The routes of a site, of which the first one that matches a request counts.
pub(crate) struct Routes {
    table: Arc<RouteTable>,
    all: Vec<ActiveRoute>,
}

/// The answer of a route, and the URL that it sends the client to.
pub(crate) type Answer = Arc<(RouteAnswer, Option<HeaderValue>)>;

/// A route and what its requests get.
pub(crate) struct ActiveRoute {
    pub(crate) name: Arc<str>,
    answer: Option<RouteAnswer>,
    pub(crate) handling: Arc<Handling>,
    /// The route's own servers at work; `None`: those of the site.
    pub(crate) site: Option<Arc<Site>>,
}

impl Routes {
    /// `None` for a site without routes. `sites` are the routes with servers of their own, in order.
    pub(crate) fn new(settings: &SiteRoutes, sites: Vec<Arc<Site>>) -> Option<Self> {
        let mut sites = sites.into_iter();
        let routes = settings.all.iter().map(|route| {
            let site = route.servers.as_ref().and_then(|_| sites.next());
            let handling = match &site {
                Some(site) => site.handling.clone(),
                None => Arc::new(route.handling.clone()),
            };
            ActiveRoute { name: route.name.clone(), answer: route.answer.clone(), handling, site }
        });
        let all: Vec<ActiveRoute> = routes.collect();
        (!all.is_empty()).then(|| Self { table: settings.table.clone(), all })
    }

    /// The servers of all routes that have their own.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.all.iter().filter_map(|route| route.site.as_ref())
    }

    /// The route that a request takes, with its number, and its answer if it asks no server. A peer has `told` the
    /// one that the request took there; one of this name counts, whatever the request has become on the way.
    pub(crate) fn find(
        &self,
        facts: &RequestFacts<'_>,
        told: Option<&HeaderValue>,
    ) -> Option<(usize, &ActiveRoute, Option<Answer>)> {
        let named = |name: &HeaderValue| {
            self.all.iter().position(|route| route.name.as_bytes() == name.as_bytes())
        };
        let number = match told {
            Some(name) if name.is_empty() => return None,
            Some(name) => named(name).or_else(|| self.table.find(facts))?,
            None => self.table.find(facts)?,
        };
        let route = &self.all[number];
        let answer = route.answer.as_ref();
        let answer = answer.map(|answer| Arc::new((answer.clone(), answer.location(facts))));
        Some((number, route, answer))
    }
}
