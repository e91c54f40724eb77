//! The routes of a site at work: `levada_config::routing` says which of them a request takes.

use std::sync::Arc;

use levada_rules::RouteAnswer;

use crate::sites::Site;
use levada_config::{Handling, SiteRoutes};

/// The routes of a site, in order.
pub(crate) struct Routes(Vec<ActiveRoute>);

/// A route and what its requests get.
pub(crate) struct ActiveRoute {
    pub(crate) name: Arc<str>,
    pub(crate) answer: Option<RouteAnswer>,
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
        (!all.is_empty()).then_some(Self(all))
    }

    /// The servers of all routes that have their own.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.0.iter().filter_map(|route| route.site.as_ref())
    }

    /// The route of this number.
    pub(crate) fn at(&self, number: usize) -> Option<&ActiveRoute> {
        self.0.get(number)
    }
}
