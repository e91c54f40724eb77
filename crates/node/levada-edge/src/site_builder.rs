//! Makes sites from settings, at the start and at every reload.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use http::HeaderValue;
use levada_cluster::nodes::Peers;
use levada_discovery::Discovery;
use levada_observe::log::access_log::Log;
use levada_policy::BuildError;
use levada_redirector::{
    DeciderDeployment, Origins, PreparedDecider, ServerPlan, SharedDecider, SharedDeciders,
    Sources, Switch, SwitchPlan,
};

use crate::{
    access_record::Telemetry,
    metrics::Metrics,
    node_error::NodeError,
    routes::Routes,
    sites::{Shield, Site, SiteParts, Sites},
};
use levada_config::{
    PolicyChoice, Settings, SiteLog, SiteRoute, SiteServers, SiteSettings, SwitchSettings, Way,
    server_bounds,
};
use levada_upstream::{Clock, PacedQueue};

/// The parts of the node that sites need.
pub struct SiteBuilder<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) clock: Clock,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) telemetry: &'a Telemetry,
    pub(crate) workers: usize,
    pub(crate) discovery: &'a Discovery,
    /// The nodes that policies choose among.
    pub(crate) peers: Option<&'a Peers>,
}

/// Plans the sites of the builder's settings. A site with the same first host as a former one takes over its state;
/// it is the former one if nothing has changed that it depends on.
///
/// # Errors
/// When a policy cannot be built, or a log cannot be opened.
pub fn plan_sites(
    builder: &SiteBuilder<'_>,
    before: Option<(&Settings, &Sites)>,
) -> Result<PlannedSites, NodeError> {
    let stays = before.is_some_and(|(settings, _)| surround_alike(settings, builder.settings));
    let all = || before.iter().flat_map(|(_, sites)| sites.iter());
    let former: HashMap<_, &Arc<Site>> = all().map(|old| (old.place(), old)).collect();
    let known = all().filter(|old| old.switch.is_none()).flat_map(|old| old.deciders());
    let mut deciders = SharedDeciders::new(known);
    let mut plans = Vec::with_capacity(former.len());
    for site in &builder.settings.sites {
        let old = former.get(&(Site::id_of(site), None));
        let stays = stays && !site.has_tls_files();
        if let Some(old) = old.filter(|old| stays && old.settings == *site) {
            plans.extend(old.routes.iter().flat_map(Routes::sites).cloned().map(SitePlan::Same));
            plans.push(SitePlan::Same((*old).clone()));
            continue;
        }
        for (settings, route) in with_routes(site) {
            let before = former.get(&(Site::id_of(&settings), route.clone())).copied();
            let policies = prepare(builder, &mut deciders, &settings, before);
            let policies =
                policies.map_err(|why| NodeError::Policy { site: site.hosts.join(", "), why })?;
            let log = match &settings.log {
                SiteLog::OfNode => None,
                SiteLog::Own(log) => Some(builder.telemetry.open(log.as_deref())?),
            };
            let site = NewSite { settings, route, policies, log, before: before.cloned() };
            plans.push(SitePlan::New(Box::new(site)));
        }
    }
    Ok(PlannedSites(plans))
}

/// The sites of settings. Former ones have not changed before [`PlannedSites::make`].
pub struct PlannedSites(Vec<SitePlan>);

impl PlannedSites {
    /// Makes the sites, by a builder with the settings by which they were planned. Origins and switches that stay go
    /// on with what is new for them.
    pub fn make(self, builder: &SiteBuilder<'_>) -> Sites {
        // A site follows those of its routes.
        let (mut sites, mut of_routes) = (Vec::with_capacity(self.0.len()), Vec::new());
        for plan in self.0 {
            let (is_of_route, site) = match plan {
                SitePlan::Same(site) => (false, site),
                SitePlan::New(site) if site.route.is_some() => {
                    (true, Arc::new(make_site(builder, *site, Vec::new())))
                }
                SitePlan::New(site) => {
                    (false, Arc::new(make_site(builder, *site, std::mem::take(&mut of_routes))))
                }
            };
            if is_of_route {
                of_routes.push(site.clone());
            }
            sites.push(site);
        }
        Sites::new(sites)
    }
}

/// Whether all that sites depend on outside their own settings is the same.
fn surround_alike(old: &Settings, new: &Settings) -> bool {
    old.limits == new.limits && old.discovery.sources == new.discovery.sources
}

/// A site to be made, or a former one that stays.
enum SitePlan {
    Same(Arc<Site>),
    New(Box<NewSite>),
}

/// A site of the file, or that of a route with servers of its own.
struct NewSite {
    settings: SiteSettings,
    route: Option<Arc<str>>,
    policies: SitePolicies,
    log: Option<Option<Arc<Log>>>,
    before: Option<Arc<Site>>,
}

/// The settings of the routes with servers of their own first, then those of the site itself.
fn with_routes(site: &SiteSettings) -> Vec<(SiteSettings, Option<Arc<str>>)> {
    let of_route = |route: &SiteRoute| Some((site.of_route(route)?, Some(route.name.clone())));
    let routes = site.routes.all.iter().filter_map(of_route);
    routes.chain([(site.clone(), None)]).collect()
}

impl SiteBuilder<'_> {
    /// The node as policies see it that choose among the nodes of a region; `""` is that of this node.
    fn deployment(&self, region: &str) -> DeciderDeployment {
        let Settings { limits, seed, name, .. } = self.settings;
        // The system chooses the seed of random choices, so that clients cannot know it.
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(name));
        let redirectors = self.peers.map_or(1, |peers| peers.redirectors(region));
        DeciderDeployment { redirectors, capacity: limits.capacity, seed }
    }
}

fn prepare(
    builder: &SiteBuilder<'_>,
    deciders: &mut SharedDeciders<'_>,
    site: &SiteSettings,
    before: Option<&Arc<Site>>,
) -> Result<SitePolicies, BuildError> {
    let (policy, former) = (&site.servers.policy, before.map(|site| &site.decider));
    let near = builder.deployment("");
    let whole = match &site.servers.switch {
        Some(switch) => {
            let deployment = DeciderDeployment { capacity: switch.capacity(), ..near };
            PreparedDecider::new(policy, &deployment, former)?
        }
        None => deciders.prepare(("", policy), &near, former)?,
    };
    // A replica is chosen at random, as in the paper (WORLDS'04, Sec. 3).
    let pieces = site.large.and_then(|large| large.replicas).map(|replicas| {
        let parameters =
            [("replicas".to_owned(), levada_policy::ParameterValue::Integer(replicas.into()))];
        let choice = PolicyChoice { name: "r-hrw".to_owned(), parameters: parameters.into() };
        let before = before.and_then(|site| site.pieces.as_ref());
        deciders.prepare(("", &choice), &near, before)
    });
    let shield = site.servers.shield.as_ref().map(|shield| {
        let (region, before) = (&*shield.region, before.and_then(|site| site.shield.as_ref()));
        let before = before.filter(|before| *before.region == *region);
        let (choice, all) = ((region, &shield.policy), builder.deployment(region));
        deciders.prepare(choice, &all, before.map(|before| &before.decider))
    });
    Ok(SitePolicies { whole, pieces: pieces.transpose()?, shield: shield.transpose()? })
}

/// The policies of a site: one for requests, one for the pieces of large files, one for the nodes of its shield.
struct SitePolicies {
    whole: PreparedDecider,
    pieces: Option<PreparedDecider>,
    shield: Option<PreparedDecider>,
}

fn make_site(
    builder: &SiteBuilder<'_>,
    NewSite { settings: site, route, policies, log, before }: NewSite,
    routes: Vec<Arc<Site>>,
) -> Site {
    let before = before.as_deref();
    let servers = &site.servers;
    let SiteBuilder { settings, clock, metrics, workers, .. } = *builder;
    let decider = policies.whole.commit();
    let pieces = policies.pieces.map(PreparedDecider::commit);
    let shield = policies.shield.zip(servers.shield.as_ref());
    let shield = shield
        .map(|(policy, shield)| Shield { region: shield.region.clone(), decider: policy.commit() });
    let sources = follow(servers, settings, builder.discovery);
    let origins = before.map_or_else(Origins::new, |before| before.origins.clone());
    change_origins(builder, &site, &origins, &sources);
    let switch = servers.switch.as_ref().map(|switch| {
        let settings = sources.servers(switch);
        let plan = switch_plan(builder, &site, &decider, &settings);
        match before.and_then(|before| before.switch.clone()) {
            Some(before) => {
                before.change(&plan);
                before
            }
            None => Switch::new(&plan, clock, metrics.policies.clone()),
        }
    });
    let (fallbacks, retry_budget) =
        (metrics.servers.fallbacks.clone(), settings.limits.retry_budget);
    let nodes = settings.peering.as_ref().map_or(1, |peering| peering.peers.len());
    let piece_turns =
        before.map_or_else(|| PacedQueue::new(nodes), |before| before.piece_turns.clone());
    let routes = Routes::new(&site.routes, routes);
    let counted = metrics.requests.site(site.name());
    Site::new(
        site,
        SiteParts {
            decider,
            pieces,
            shield,
            origins,
            sources,
            switch,
            fallbacks,
            metrics: counted,
            retry_budget,
            workers,
            piece_turns,
            route,
            routes,
            log,
        },
        before,
    )
}

/// Follows all sources of these settings.
pub fn follow_all(settings: &Settings, discovery: &Discovery) -> Vec<Sources> {
    let of_site = |site: &SiteSettings| {
        let routes = site.routes.all.iter().filter_map(|route| route.servers.as_ref());
        let all = routes.chain([&site.servers]);
        all.map(|servers| follow(servers, settings, discovery)).collect::<Vec<_>>()
    };
    settings.sites.iter().flat_map(of_site).filter(Sources::any).collect()
}

fn follow(servers: &SiteServers, settings: &Settings, discovery: &Discovery) -> Sources {
    let switched = servers.switch.iter().flat_map(|switch| &switch.servers);
    let all = servers.origins.iter().chain(switched.map(|server| &server.origin));
    Sources::follow(all, &settings.discovery, discovery)
}

/// Goes on with the members that the sources of a site name now.
pub fn change_members(builder: &SiteBuilder<'_>, site: &Site) {
    match (&site.switch, &site.settings.servers.switch) {
        (Some(switch), Some(settings)) => {
            let settings = site.sources.servers(settings);
            switch.change(&switch_plan(builder, &site.settings, &site.decider, &settings));
        }
        _ => change_origins(builder, &site.settings, &site.origins, &site.sources),
    }
}

fn change_origins(
    builder: &SiteBuilder<'_>,
    site: &SiteSettings,
    origins: &Origins,
    sources: &Sources,
) {
    let plan = server_plan(builder, site);
    origins.change(&plan, sources.found(site.servers.origins.iter()));
}

fn switch_plan<'a>(
    builder: &SiteBuilder<'_>,
    site: &'a SiteSettings,
    decider: &'a SharedDecider,
    settings: &'a SwitchSettings,
) -> SwitchPlan<'a> {
    let mut servers = server_plan(builder, site);
    servers.bounds.connections = SwitchPlan::CONNECTIONS;
    SwitchPlan { settings, policy: &site.servers.policy, decider, servers }
}

fn server_plan<'a>(builder: &SiteBuilder<'_>, site: &'a SiteSettings) -> ServerPlan<'a> {
    let servers = &site.servers;
    let way = Way::of(servers);
    ServerPlan {
        check: &servers.health,
        host: probed_host(site),
        protocols: servers.protocols,
        server_name: way.server_name(),
        connect: Box::new(move |origin, protocols| way.to(origin, protocols)),
        bounds: server_bounds(&builder.settings.limits),
        workers: builder.workers,
    }
}

/// The host of health checks.
fn probed_host(site: &SiteSettings) -> Option<HeaderValue> {
    let first = || site.hosts.first().map(String::as_str).filter(|host| !host.contains('*'));
    site.servers.origin_host.as_deref().or_else(first)?.parse().ok()
}
