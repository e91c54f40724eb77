//! Makes sites from settings, at the start and at every reload.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use http::HeaderValue;
use levada_policy::BuildError;
use levada_redirector::{PreparedDecider, Switch, SwitchPlan};
use levada_upstream::Server;
use parking_lot::Mutex;

use crate::{
    clock::Clock,
    metrics::Metrics,
    origin,
    routes::Routes,
    settings::{Origin, PolicyChoice, Settings, SiteRoute, SiteSettings, SwitchSettings},
    sites::{Site, SiteParts, Sites, WatchedOrigin},
    start_error::StartError,
};

/// The parts of the node that sites need.
pub(crate) struct SiteBuilder<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) clock: Clock,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) workers: usize,
}

/// Makes sites from settings. A site with the same first host as a former one takes over its state.
/// Sites of one policy share its state per object, unless they have servers of their own.
///
/// # Errors
/// When a policy cannot be built; nothing has changed then.
pub(crate) fn make_sites(
    builder: &SiteBuilder<'_>,
    settings: &[SiteSettings],
    before: &Sites,
) -> Result<Sites, StartError> {
    let before: HashMap<_, &Site> = before.iter().map(|old| (old.place(), &**old)).collect();
    let plans: Vec<SitePlan> = settings.iter().flat_map(SitePlan::of).collect();
    let former = |plan: &SitePlan| before.get(&plan.place()).copied();
    let mut prepared: Vec<SitePolicies> = Vec::new();
    // The sites with the first use of each policy.
    let mut distinct: Vec<usize> = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let site = &plan.settings;
        let is_alike =
            |other: &&usize| plans[**other].settings.servers.policy == site.servers.policy;
        let alike = distinct.iter().find(is_alike).filter(|_| site.servers.switch.is_none());
        let shared = alike.and_then(|other| prepared[*other].whole.for_another_site());
        if alike.is_none() && site.servers.switch.is_none() {
            distinct.push(number);
        }
        let policies = prepare(builder, site, former(plan), shared);
        prepared
            .push(policies.map_err(|why| StartError::Policy { site: site.hosts.join(", "), why })?);
    }
    // A site follows those of its routes.
    let (mut sites, mut of_routes) = (Vec::new(), Vec::new());
    for (plan, prepared) in plans.iter().zip(prepared) {
        let is_of_route = plan.route.is_some();
        let routes = if is_of_route { Vec::new() } else { std::mem::take(&mut of_routes) };
        let site = Arc::new(make_site(builder, plan, prepared, (former(plan), routes)));
        if is_of_route {
            of_routes.push(site.clone());
        }
        sites.push(site);
    }
    Ok(Sites::new(sites))
}

/// A site to be made: one of the file, or that of a route with servers of its own.
struct SitePlan {
    settings: SiteSettings,
    route: Option<Arc<str>>,
}

impl SitePlan {
    /// Those of the routes first, then that of the site itself.
    fn of(site: &SiteSettings) -> Vec<Self> {
        let of_route = |route: &SiteRoute| {
            let settings = site.of_route(route)?;
            Some(Self { settings, route: Some(route.name.clone()) })
        };
        let routes = site.routes.all.iter().filter_map(of_route);
        routes.chain([Self { settings: site.clone(), route: None }]).collect()
    }

    fn place(&self) -> (u64, Option<Arc<str>>) {
        (Site::id_of(&self.settings), self.route.clone())
    }
}

fn prepare(
    builder: &SiteBuilder<'_>,
    site: &SiteSettings,
    before: Option<&Site>,
    shared: Option<PreparedDecider>,
) -> Result<SitePolicies, BuildError> {
    let Settings { peering, limits, .. } = builder.settings;
    let redirectors = peering.as_ref().map_or(1, |p| p.peers.len()).max(1) as u32;
    let capacity = site.servers.switch.as_ref().map_or(limits.capacity, SwitchSettings::capacity);
    let seed = seed(builder.settings);
    let whole = match shared {
        Some(shared) => shared,
        None => {
            let former = before.map(|site| &site.decider);
            PreparedDecider::new(&site.servers.policy, redirectors, capacity, seed, former)?
        }
    };
    // A replica is chosen at random, as in the paper (WORLDS'04, Sec. 3).
    let pieces = site.large.and_then(|large| large.replicas).map(|replicas| {
        let parameters =
            [("replicas".to_owned(), levada_policy::ParameterValue::Integer(replicas.into()))];
        let choice = PolicyChoice { name: "r-hrw".to_owned(), parameters: parameters.into() };
        let before = before.and_then(|site| site.pieces.as_ref());
        PreparedDecider::new(&choice, redirectors, limits.capacity, seed, before)
    });
    Ok(SitePolicies { whole, pieces: pieces.transpose()? })
}

/// The policies of a site: one for requests, one for the pieces of large files.
struct SitePolicies {
    whole: PreparedDecider,
    pieces: Option<PreparedDecider>,
}

/// The seed of random choices. The system chooses it, so that clients cannot know it.
fn seed(settings: &Settings) -> u64 {
    settings.seed.unwrap_or_else(|| RandomState::new().hash_one(&settings.name))
}

fn make_site(
    builder: &SiteBuilder<'_>,
    plan: &SitePlan,
    prepared: SitePolicies,
    (before, routes): (Option<&Site>, Vec<Arc<Site>>),
) -> Site {
    let site = &plan.settings;
    let servers = &site.servers;
    let SiteBuilder { settings, clock, metrics, workers } = *builder;
    let decider = prepared.whole.commit();
    let pieces = prepared.pieces.map(PreparedDecider::commit);
    let host: Option<HeaderValue> = servers
        .origin_host
        .as_deref()
        .or_else(|| site.hosts.first().map(String::as_str).filter(|h| !h.contains('*')))
        .and_then(|h| h.parse().ok());
    let known = |origin: &Origin| {
        let before = before?;
        let all = before.settings.servers.origins.iter().zip(&before.origins);
        let alike = |old: &WatchedOrigin| {
            let states_client = old.server.states_client();
            old.check == servers.health
                && old.host == host
                && states_client == servers.proxy_protocol
        };
        let same = all.filter(|(_, old)| alike(old));
        same.clone().find(|(old, _)| *old == origin).map(|(_, old)| old.clone())
    };
    let make = |origin: &Origin| {
        Arc::new(WatchedOrigin {
            server: origin_server(origin, site, settings, workers),
            check: servers.health.clone(),
            host: host.clone(),
            metrics: metrics.clone(),
            watch: Mutex::default(),
        })
    };
    let origins = servers
        .origins
        .iter()
        .map(|origin| match known(origin) {
            Some(known) => {
                known.server.set_bounds(origin::server_bounds(&settings.limits));
                known
            }
            None => make(origin),
        })
        .collect();
    let switch = servers.switch.as_ref().map(|switch| {
        let plan = SwitchPlan {
            settings: switch,
            check: &servers.health,
            policy: &servers.policy,
            host: host.clone(),
            connect: &|origin| origin::way_to(origin, servers.proxy_protocol),
            bounds: origin::server_bounds(&settings.limits),
            workers,
            decider: &decider,
        };
        match before.and_then(|before| before.switch.clone()) {
            Some(before) => {
                before.change(&plan);
                before
            }
            None => Switch::new(&plan, clock, metrics.clone()),
        }
    });
    let (fallbacks, retry_budget) = (metrics.fallbacks.clone(), settings.limits.retry_budget);
    Site::new(
        site.clone(),
        SiteParts {
            decider,
            pieces,
            origins,
            switch,
            fallbacks,
            metrics: metrics.site(site.hosts.first().map_or("", String::as_str)),
            retry_budget,
            workers,
            route: plan.route.clone(),
            routes: Routes::new(&site.routes, routes),
        },
        before,
    )
}

fn origin_server(
    origin: &Origin,
    site: &SiteSettings,
    settings: &Settings,
    workers: usize,
) -> Arc<Server> {
    let (address, wire) = origin::way_to(origin, site.servers.proxy_protocol);
    let name = address.to_string().into();
    Server::new(name, address, wire, origin::server_bounds(&settings.limits), workers)
}
