//! A node: everything that its connections share.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use levada_access::{
    client_shares::ClientShares,
    given_up::GivenUpClients,
    memory_bound::MemoryBound,
    pace::{Paced, Pacer},
    trust::TrustBoundary,
};
use levada_announce::{Route, drain::Drain};
use levada_discovery::Discovery;
use levada_handoff::{Front, HandoffBackend};
use levada_net::bpf::BpfError;
use levada_peers::{PeerSources, Peers};
use levada_redirector::Sizes;
use levada_upgrade::{Awaited, OrderPlace};
use tokio::sync::watch;

use crate::{
    access_record::Telemetry,
    cache::Cache,
    clock::Clock,
    error_page::KeptPages,
    forward::{ForwardPatience, Forwarder},
    identify::Identifier,
    large::Transfers,
    metrics::Metrics,
    origin, process_memory,
    purge::{endpoint::PurgeEndpoint, invalidation::MissedInvalidations, wake::LastAwake},
    settings::{Runtime, Settings},
    site_builder::{SiteBuilder, make_sites},
    sites::{Site, Sites},
    start_error::StartError,
};
use levada_store::NodeName;

/// A node.
pub(crate) struct Node {
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) clock: Clock,
    /// The sites, replaced by each reload.
    pub(crate) sites: Arc<ArcSwap<Sites>>,
    pub(crate) workers: usize,
    /// The sources of members.
    pub(crate) discovery: Discovery,
    /// The sources of the cluster's nodes.
    pub(crate) peer_sources: ArcSwap<PeerSources>,
    /// Held while settings or members change.
    pub(crate) changing: tokio::sync::Mutex<()>,
    pub(crate) peers: Option<Arc<Peers>>,
    /// The front-end of TCP handoff.
    pub(crate) front: Option<Front<Node>>,
    /// The back-end of TCP handoff.
    pub(crate) backend: Option<Arc<HandoffBackend>>,
    /// Stored responses, and the fetches into them.
    pub(crate) cache: Arc<Cache>,
    /// Carries out purge orders.
    pub(crate) purging: Arc<PurgeEndpoint>,
    pub(crate) identifier: ArcSwap<Identifier>,
    pub(crate) trust: ArcSwap<TrustBoundary>,
    /// The way to origins and peers.
    pub(crate) forwarder: Arc<Forwarder>,
    /// The shared state of transfers in pieces.
    pub(crate) large: Arc<Transfers>,
    /// Error pages of origins.
    pub(crate) pages: KeptPages,
    /// Clients whose connections were given up as dormant.
    pub(crate) given_up: Arc<GivenUpClients>,
    pub(crate) drain: Arc<Drain>,
    pub(crate) route: Option<Arc<Route>>,
    /// The things that are missing before the node serves clients.
    pub(crate) awaited: Awaited,
    pub(crate) capacity: Arc<ClientShares>,
    pub(crate) memory: Arc<MemoryBound>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) telemetry: Arc<Telemetry>,
    pacer: ArcSwapOption<Pacer>,
    pub(crate) name: Arc<NodeName>,
}

/// Whether any server of a switch takes connections by handoff.
pub(crate) fn hands_over(settings: &Settings) -> bool {
    let switches = settings.sites.iter().filter_map(|site| site.servers.switch.as_ref());
    let mut servers = switches.flat_map(|switch| &switch.servers);
    servers.any(|server| server.handoff.is_some())
}

/// The front-end, if the settings want one and the kernel allows it; otherwise connections are proxied.
fn front(settings: &Settings) -> Option<Front<Node>> {
    let handoff = settings.handoff.as_ref().filter(|_| hands_over(settings))?;
    match Front::start(handoff, settings.limits.connections) {
        Ok(front) => Some(front),
        Err(error) => {
            tracing::warn!(%error, "proxying: no connection can be handed off");
            None
        }
    }
}

/// The back-end, if the settings want one.
fn backend(settings: &Settings) -> Result<Option<HandoffBackend>, BpfError> {
    let Some(handoff) = &settings.handoff else { return Ok(None) };
    let start = |own| HandoffBackend::start(handoff, own, settings.limits.connections);
    handoff.backend.as_ref().map(start).transpose()
}

/// Follows the sources of the cluster's nodes.
pub(crate) fn follow_peers(settings: &Settings, discovery: &Discovery) -> PeerSources {
    let Some(peering) = &settings.peering else { return PeerSources::default() };
    PeerSources::follow(&settings.name, peering, &settings.discovery, discovery)
}

impl Node {
    /// Builds a node. `former` is called when all that can fail is done, but for the disk tier and what follows
    /// it, and gives the state of the purges of a former process.
    pub(crate) fn new(
        settings: Settings,
        former: impl FnOnce(&Settings) -> Result<Option<String>, StartError>,
    ) -> Result<Arc<Self>, StartError> {
        let clock = Clock::start();
        let metrics = Arc::new(Metrics::default());
        let workers = match settings.runtime {
            Runtime::Shared(_) => 1,
            Runtime::PerCore(cores) => cores,
        };
        let peers = settings
            .peering
            .as_ref()
            .map(|peering| {
                let bounds = origin::server_bounds(&settings.limits);
                Peers::new(&settings.name, peering, bounds, clock, &metrics, workers)
            })
            .transpose()?;
        let resolver = settings.discovery.resolver.clone();
        let discovery = Discovery::new(resolver, metrics.discovery.clone());
        let around = SiteBuilder {
            settings: &settings,
            clock,
            metrics: &metrics,
            workers,
            discovery: &discovery,
        };
        let sites = make_sites(&around, None)?;
        let sites = Arc::new(ArcSwap::from_pointee(sites));
        let telemetry = Telemetry { clock, metrics: metrics.clone(), log: ArcSwapOption::empty() };
        telemetry.log.store(telemetry.open(settings.access_log.as_ref())?);
        let telemetry = Arc::new(telemetry);
        let name = Arc::new(NodeName::new(&settings.name));
        let forwarder = Arc::new(Forwarder {
            name: name.clone(),
            clock,
            metrics: metrics.clone(),
            sizes: Sizes::default(),
            patience: ArcSwap::from_pointee(ForwardPatience::of(&settings.limits)),
        });
        let backend = backend(&settings).map_err(StartError::Handoff)?.map(Arc::new);
        let former = former(&settings)?;
        let cache = Cache::open(&settings, clock, &metrics, &forwarder, former.as_deref())?;
        let cache = Arc::new(cache);
        let capacity = ClientShares::new(settings.limits.capacity);
        let memory = process_memory::watch(&settings, &cache, &capacity, &metrics);
        let windows = settings.cache.memory / 4;
        let large = Transfers::new(windows, &name, &telemetry, peers.as_ref(), &cache.purges);
        let identifier = Identifier::new(&settings, &sites, peers.as_deref());
        let awaited = Awaited::default();
        let purging = Arc::new(PurgeEndpoint {
            node: settings.name.clone(),
            token: ArcSwapOption::new(settings.purge.token.clone().map(Arc::new)),
            sites: sites.clone(),
            cache: cache.clone(),
            metrics: metrics.clone(),
            peers: peers.clone(),
            missed: MissedInvalidations::default(),
            serving: watch::Sender::new(false),
            place: OrderPlace::default(),
            awaited: awaited.clone(),
            last_awake: LastAwake::new(clock),
        });
        Ok(Arc::new(Self {
            clock,
            sites,
            workers,
            peer_sources: ArcSwap::from_pointee(follow_peers(&settings, &discovery)),
            discovery,
            changing: tokio::sync::Mutex::default(),
            peers,
            front: front(&settings),
            backend,
            cache,
            purging,
            identifier: ArcSwap::from_pointee(identifier),
            trust: ArcSwap::from_pointee(TrustBoundary::new(&settings.trusted)),
            forwarder,
            large,
            pages: KeptPages::default(),
            given_up: Arc::default(),
            drain: Drain::new(metrics.moved.clone()),
            route: settings
                .route
                .clone()
                .map(|route| Arc::new(Route::new(route, metrics.route.clone()))),
            awaited,
            capacity,
            memory,
            metrics,
            telemetry,
            pacer: ArcSwapOption::new(settings.limits.serve_rate.map(Pacer::new)),
            name,
            settings: ArcSwap::from_pointee(settings),
        }))
    }

    /// The settings at this moment.
    pub(crate) fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Takes over settings that can change while the node runs, except for sites, the list of peers and listeners.
    /// Returns the former ones.
    pub(crate) fn set(&self, settings: Settings) -> Arc<Settings> {
        let limits = &settings.limits;
        self.identifier.store(Arc::new(self.identifier.load().with_hops(limits.max_hops)));
        self.trust.store(Arc::new(TrustBoundary::new(&settings.trusted)));
        self.forwarder.set_patience(limits);
        self.capacity.set_bound(limits.capacity);
        self.memory.set_limit(process_memory::limit(&settings, &self.metrics));
        self.cache.store.resize(settings.cache.memory);
        self.purging.token.store(settings.purge.token.clone().map(Arc::new));
        if let Some(peers) = &self.peers {
            peers.set_bounds(origin::server_bounds(limits));
        }
        if limits.serve_rate != self.settings().limits.serve_rate {
            self.pacer.store(limits.serve_rate.map(Pacer::new));
        }
        self.settings.swap(Arc::new(settings))
    }

    /// What sites with these settings are built from.
    pub(crate) fn site_builder<'a>(&'a self, settings: &'a Settings) -> SiteBuilder<'a> {
        let (clock, metrics, workers) = (self.clock, &self.metrics, self.workers);
        SiteBuilder { settings, clock, metrics, workers, discovery: &self.discovery }
    }

    /// The pacing of one body, if the node has a serving rate.
    pub(crate) fn pace(&self) -> Option<Paced> {
        self.pacer.load().as_ref().map(Paced::new)
    }

    /// Requests at origins, and requests that wait for admission.
    pub(crate) fn misses(&self) -> (usize, usize) {
        let sites = self.sites.load();
        let counts = sites.iter().map(|site| site.misses.counts());
        counts.fold((0, 0), |(admitted, waiting), one| {
            (admitted + one.admitted, waiting + one.waiting)
        })
    }

    /// Why a site cannot be served, if there is one: its servers are all down, or none is known.
    pub(crate) fn cut_off(&self) -> Option<String> {
        let sites = self.sites.load();
        let of_site = |site: &Arc<Site>| {
            let (servers, hosts) = (site.servers(), site.settings.hosts.join(", "));
            if servers.iter().any(|server| server.health.is_up()) {
                return None;
            }
            if servers.is_empty() {
                let (source, failure) = site.sources.silent().next()?;
                let failure = failure.unwrap_or_else(|| "it has not answered yet".to_owned());
                return Some(format!("no member of {hosts} is known: {source}: {failure}"));
            }
            Some(format!("every origin of {hosts} is down"))
        };
        let mut sites = sites.iter().filter(|site| site.route.is_none());
        self.peer_sources.load().silence().or_else(|| sites.find_map(of_site))
    }
}
