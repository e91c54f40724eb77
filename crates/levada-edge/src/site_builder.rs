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
    settings::{Origin, PolicyChoice, Settings, SiteSettings, SwitchSettings},
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
    let before: HashMap<u64, &Site> = before.iter().map(|old| (old.id, &**old)).collect();
    let former = |site: &SiteSettings| before.get(&Site::id_of(site)).copied();
    let mut prepared: Vec<SitePolicies> = Vec::new();
    // The sites with the first use of each policy.
    let mut distinct: Vec<usize> = Vec::new();
    for (number, site) in settings.iter().enumerate() {
        let is_alike = |other: &&usize| settings[**other].policy == site.policy;
        let alike = distinct.iter().find(is_alike).filter(|_| site.switch.is_none());
        let shared = alike.and_then(|other| prepared[*other].whole.for_another_site());
        if alike.is_none() && site.switch.is_none() {
            distinct.push(number);
        }
        let policies = prepare(builder, site, former(site), shared);
        prepared
            .push(policies.map_err(|why| StartError::Policy { site: site.hosts.join(", "), why })?);
    }
    let sites = settings
        .iter()
        .zip(prepared)
        .map(|(site, prepared)| Arc::new(make_site(builder, site, prepared, former(site))));
    Ok(Sites::new(sites.collect()))
}

fn prepare(
    builder: &SiteBuilder<'_>,
    site: &SiteSettings,
    before: Option<&Site>,
    shared: Option<PreparedDecider>,
) -> Result<SitePolicies, BuildError> {
    let Settings { peering, limits, .. } = builder.settings;
    let redirectors = peering.as_ref().map_or(1, |p| p.peers.len()).max(1) as u32;
    let capacity = site.switch.as_ref().map_or(limits.capacity, SwitchSettings::capacity);
    let seed = seed(builder.settings);
    let whole = match shared {
        Some(shared) => shared,
        None => {
            let former = before.map(|site| &site.decider);
            PreparedDecider::new(&site.policy, redirectors, capacity, seed, former)?
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
    site: &SiteSettings,
    prepared: SitePolicies,
    before: Option<&Site>,
) -> Site {
    let SiteBuilder { settings, clock, metrics, workers } = *builder;
    let decider = prepared.whole.commit();
    let pieces = prepared.pieces.map(PreparedDecider::commit);
    let host: Option<HeaderValue> = site
        .origin_host
        .as_deref()
        .or_else(|| site.hosts.first().map(String::as_str).filter(|h| !h.contains('*')))
        .and_then(|h| h.parse().ok());
    let known = |origin: &Origin| {
        let before = before?;
        let all = before.settings.origins.iter().zip(&before.origins);
        let alike = |old: &WatchedOrigin| {
            let states_client = old.server.states_client();
            old.check == site.health && old.host == host && states_client == site.proxy_protocol
        };
        let same = all.filter(|(_, old)| alike(old));
        same.clone().find(|(old, _)| *old == origin).map(|(_, old)| old.clone())
    };
    let make = |origin: &Origin| {
        Arc::new(WatchedOrigin {
            server: origin_server(origin, site, settings, workers),
            check: site.health.clone(),
            host: host.clone(),
            metrics: metrics.clone(),
            watch: Mutex::default(),
        })
    };
    let origins =
        site.origins.iter().map(|origin| known(origin).unwrap_or_else(|| make(origin))).collect();
    let switch = site.switch.as_ref().map(|switch| {
        let plan = SwitchPlan {
            settings: switch,
            check: &site.health,
            policy: &site.policy,
            host: host.clone(),
            connect: &|origin| origin::way_to(origin, site.proxy_protocol),
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
        SiteParts { decider, pieces, origins, switch, fallbacks, retry_budget },
        before,
    )
}

fn origin_server(
    origin: &Origin,
    site: &SiteSettings,
    settings: &Settings,
    workers: usize,
) -> Arc<Server> {
    let (address, wire) = origin::way_to(origin, site.proxy_protocol);
    let name = address.to_string().into();
    Server::new(name, address, wire, origin::server_bounds(&settings.limits), workers)
}
