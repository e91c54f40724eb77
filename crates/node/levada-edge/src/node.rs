//! A node: everything that its connections share.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use levada_access::{
    client_shares::ClientShares,
    given_up::GivenUpClients,
    memory_bound::MemoryBound,
    pace::{Paced, Pacer},
    process::watch_memory,
    trust::TrustBoundary,
};
use levada_cluster::announce::{Route, drain::Drain};
use levada_cluster::awaited::Awaited;
use levada_cluster::events::Events;
use levada_cluster::nodes::{PeerSources, Peers};
use levada_cluster::orders::OrderPlace;
use levada_cluster::orders::{LastAwake, MissedInvalidations, PurgeEndpoint};
use levada_cluster::purge::KeptValues;
use levada_control::status::{History, PopularObjects, SetSizes};
use levada_discovery::Discovery;
use levada_net::{bpf::BpfError, resting::RestingConnections, stop::Stop};
use levada_redirector::handoff::{FrontEnd, HandoffBackend};
use levada_rules::Page;
use levada_tls::acme::Certificates;
use levada_upstream::{Clock, SharedProbes};
use tokio::sync::watch;

use crate::{
    access_record::Telemetry,
    cache::Cache,
    forward::{ForwardPatience, Forwarder},
    identify::Identifier,
    large::Transfers,
    metrics::Metrics,
    node_error::NodeError,
    site_builder::{SiteBuilder, plan_sites},
    sites::{Site, Sites, SitesNow},
};
use levada_config::{Runtime, Settings, server_bounds};
use levada_store::NodeName;

/// A node.
pub struct Node {
    /// The settings, replaced by each reload.
    pub settings: ArcSwap<Settings>,
    /// Its clock.
    pub clock: Clock,
    /// The sites, replaced by each reload.
    pub sites: Arc<ArcSwap<Sites>>,
    /// The number of its threads that serve.
    pub workers: usize,
    /// The sources of members.
    pub discovery: Discovery,
    /// The sources of the cluster's nodes.
    pub peer_sources: ArcSwap<PeerSources>,
    /// Held while settings or members change.
    pub changing: tokio::sync::Mutex<()>,
    /// The nodes of its cluster.
    pub peers: Option<Arc<Peers>>,
    /// The front-end of TCP handoff.
    pub front: FrontEnd<Node>,
    /// The back-end of TCP handoff.
    pub backend: Option<Arc<HandoffBackend>>,
    /// Stored responses, and the fetches into them.
    pub cache: Arc<Cache>,
    /// Carries out purge orders.
    pub purging: Arc<PurgeEndpoint>,
    /// Finds the site and the route of a request.
    pub identifier: ArcSwap<Identifier>,
    /// The senders whose statements about clients are believed.
    pub trust: ArcSwap<TrustBoundary>,
    /// The probes that servers share.
    pub probes: SharedProbes,
    /// The way to origins and peers.
    pub forwarder: Arc<Forwarder>,
    /// The shared state of transfers in pieces.
    pub large: Arc<Transfers>,
    /// Error pages of origins.
    pub(crate) pages: KeptValues<Page>,
    /// Clients whose connections were given up as dormant.
    pub given_up: Arc<GivenUpClients>,
    /// The state of a drain.
    pub drain: Arc<Drain>,
    /// The anycast route that it announces.
    pub route: Option<Arc<Route>>,
    /// The things that are missing before the node serves clients.
    pub awaited: Awaited,
    /// Another node of its name that wants to register, in words.
    pub claimed: ArcSwapOption<String>,
    /// The certificates that it shows.
    pub certificates: Arc<Certificates>,
    /// The requests that may be in service.
    pub capacity: Arc<ClientShares>,
    /// The same for those with a body, which may be slow.
    pub(crate) uploads: Arc<ClientShares>,
    /// The tunnels that may be open.
    pub(crate) tunnels: Arc<ClientShares>,
    /// The connections that rest, and give way to new ones.
    pub(crate) resting: Arc<RestingConnections>,
    /// The bound on its memory.
    pub memory: Arc<MemoryBound>,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// Its logs and traces.
    pub telemetry: Arc<Telemetry>,
    /// Its events.
    pub events: Arc<Events>,
    /// The last 15 minutes.
    pub history: Arc<History>,
    /// The objects that clients request most.
    pub popular: PopularObjects,
    /// The sizes of their sets.
    pub set_sizes: SetSizes,
    pacer: ArcSwapOption<Pacer>,
    pub(crate) name: Arc<NodeName>,
}

/// The back-end, if the settings want one.
fn backend(settings: &Settings) -> Result<Option<HandoffBackend>, BpfError> {
    let Some(handoff) = &settings.handoff else { return Ok(None) };
    let start = |own| HandoffBackend::start(handoff, own, settings.limits.connections);
    handoff.backend.as_ref().map(start).transpose()
}

/// Follows the sources of the cluster's nodes.
pub fn follow_peers(settings: &Settings, discovery: &Discovery) -> PeerSources {
    let Some(peering) = &settings.peering else { return PeerSources::default() };
    PeerSources::follow(&settings.name, peering, &settings.discovery, discovery)
}

impl Node {
    /// Builds a node. `former` is called when all that can fail is done, but for the disk tier and what follows
    /// it, and gives the state of the purges of a former process.
    pub fn new<E: From<NodeError>>(
        settings: Settings,
        former: impl FnOnce(&Settings) -> Result<Option<String>, E>,
    ) -> Result<Arc<Self>, E> {
        let clock = Clock::start();
        let metrics = Arc::new(Metrics::new());
        let certificates = Certificates::new(metrics.certificates.clone());
        certificates.set(settings.acme.as_ref(), &settings.certificate_files());
        let workers = match settings.runtime {
            Runtime::Shared(_) => 1,
            Runtime::PerCore(cores) => cores,
        };
        let peers = settings
            .peering
            .as_ref()
            .map(|peering| {
                let bounds = server_bounds(&settings.limits);
                Peers::new(&settings.name, peering, bounds, clock, workers)
            })
            .transpose()
            .map_err(NodeError::from)?;
        let resolver = settings.discovery.resolver.clone();
        let discovery = Discovery::new(resolver, metrics.discovery.clone());
        let telemetry = Telemetry::new(clock, metrics.clone(), settings.telemetry.as_ref());
        let telemetry = Arc::new(telemetry);
        telemetry.log.store(telemetry.open(settings.access_log.as_ref())?);
        telemetry.redact.store(Arc::new(settings.redact.clone()));
        let around = SiteBuilder {
            settings: &settings,
            clock,
            metrics: &metrics,
            telemetry: &telemetry,
            workers,
            discovery: &discovery,
            peers: peers.as_deref(),
        };
        let sites = plan_sites(&around, None)?.make(&around);
        let sites = Arc::new(ArcSwap::from_pointee(sites));
        let events = Arc::new(Events::default());
        let name = Arc::new(NodeName::new(&settings.name));
        let forwarder = Arc::new(Forwarder {
            name: name.clone(),
            clock,
            metrics: metrics.clone(),
            sizes: Arc::default(),
            patience: ArcSwap::from_pointee(ForwardPatience::of(&settings.limits)),
        });
        let backend = backend(&settings).map_err(NodeError::Handoff)?.map(Arc::new);
        let former = former(&settings)?;
        let cache =
            Cache::open(&settings, clock, &metrics, &forwarder, peers.as_ref(), former.as_deref());
        let cache = cache.map_err(NodeError::from)?;
        let cache = Arc::new(cache);
        let capacity = ClientShares::new(settings.limits.capacity);
        let tier = settings.cache.memory;
        let limit = metrics.memory.bound(settings.limits.memory, tier);
        let memory = watch_memory(limit, (&cache.store, tier), &capacity, &metrics.memory);
        let windows = settings.cache.memory / 4;
        let large = Transfers::new(windows, &name, &telemetry, peers.as_ref(), &cache.purges);
        large.bound(&settings.limits);
        let identifier = Identifier::new(&settings, &sites);
        let awaited = Awaited::default();
        let handoff = settings.handoff.as_ref().filter(|_| settings.hands_over());
        let purging = Arc::new(PurgeEndpoint {
            node: settings.name.clone(),
            access: ArcSwap::from_pointee(settings.purge.access.clone()),
            sites: Arc::new(SitesNow(sites.clone())),
            invalidate: {
                let cache = cache.clone();
                Box::new(move |key| cache.invalidate(key))
            },
            purges: cache.purges.clone(),
            metrics: metrics.purges.clone(),
            peers: peers.clone(),
            missed: MissedInvalidations::default(),
            serving: watch::Sender::new(false),
            place: OrderPlace::default(),
            awaited: awaited.clone(),
            last_awake: LastAwake::new(clock),
            events: events.clone(),
        });
        Ok(Arc::new(Self {
            clock,
            sites,
            workers,
            peer_sources: ArcSwap::from_pointee(follow_peers(&settings, &discovery)),
            discovery,
            changing: tokio::sync::Mutex::default(),
            peers,
            front: FrontEnd::start(handoff, settings.limits.connections),
            backend,
            cache,
            purging,
            identifier: ArcSwap::from_pointee(identifier),
            trust: ArcSwap::from_pointee(TrustBoundary::new(&settings.trusted)),
            probes: SharedProbes::default(),
            forwarder,
            large,
            pages: KeptValues::default(),
            given_up: Arc::default(),
            drain: Drain::new(metrics.drain.clone()),
            route: settings
                .route
                .clone()
                .map(|route| Arc::new(Route::new(route, metrics.route.clone()))),
            awaited,
            claimed: ArcSwapOption::empty(),
            certificates,
            capacity,
            uploads: ClientShares::new(settings.limits.capacity),
            tunnels: ClientShares::new(settings.limits.tunnels),
            resting: Arc::default(),
            memory,
            metrics,
            telemetry,
            events,
            history: Arc::default(),
            popular: PopularObjects::default(),
            set_sizes: SetSizes::default(),
            pacer: ArcSwapOption::new(settings.limits.serve_rate.map(Pacer::new)),
            name,
            settings: ArcSwap::from_pointee(settings),
        }))
    }

    /// Waits until the node serves clients. `false`: it stops before.
    pub(crate) async fn serves(&self, stop: &Stop) -> bool {
        tokio::select! {
            () = self.purging.until_serving() => true,
            () = stop.begun() => false,
        }
    }

    /// The settings at this moment.
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    /// Takes over settings that can change while the node runs, except for sites, the list of peers and listeners.
    /// Returns the former ones.
    pub fn set(&self, settings: Settings) -> Arc<Settings> {
        let limits = &settings.limits;
        self.certificates.set(settings.acme.as_ref(), &settings.certificate_files());
        self.identifier.store(Arc::new(self.identifier.load().changed(&settings)));
        self.trust.store(Arc::new(TrustBoundary::new(&settings.trusted)));
        self.forwarder.set_patience(limits);
        self.large.bound(limits);
        self.capacity.set_bound(limits.capacity);
        self.uploads.set_bound(limits.capacity);
        self.tunnels.set_bound(limits.tunnels);
        self.memory.set_limit(self.metrics.memory.bound(limits.memory, settings.cache.memory));
        self.cache.store.resize(settings.cache.memory);
        self.purging.access.store(Arc::new(settings.purge.access.clone()));
        if let Some(peers) = &self.peers {
            peers.set_bounds(server_bounds(limits));
        }
        if limits.serve_rate != self.settings().limits.serve_rate {
            self.pacer.store(limits.serve_rate.map(Pacer::new));
        }
        self.settings.swap(Arc::new(settings))
    }

    /// The parts that sites with these settings are built from.
    pub fn site_builder<'a>(&'a self, settings: &'a Settings) -> SiteBuilder<'a> {
        let (clock, metrics, workers) = (self.clock, &self.metrics, self.workers);
        let (telemetry, discovery) = (&self.telemetry, &self.discovery);
        let peers = self.peers.as_deref();
        SiteBuilder { settings, clock, metrics, telemetry, workers, discovery, peers }
    }

    /// Lets the policies of all sites go on with the number of nodes that there are now.
    pub fn follow_redirectors(&self) {
        let Some(peers) = &self.peers else { return };
        for site in self.sites.load().iter() {
            for (region, decider) in site.deciders() {
                if let Err(error) = decider.follow(peers.redirectors(region)) {
                    tracing::error!(%error, site = site.name(), "the policy keeps its thresholds");
                }
            }
        }
    }

    /// The pacing of one body, if the node has a serving rate.
    pub(crate) fn pace(&self) -> Option<Paced> {
        self.pacer.load().as_ref().map(Paced::new)
    }

    /// Requests that are in service.
    pub fn in_service(&self) -> u32 {
        self.capacity.held() + self.uploads.held()
    }

    /// Requests at origins, and requests that wait for admission.
    pub fn misses(&self) -> (usize, usize) {
        let sites = self.sites.load();
        sites.iter().fold((0, 0), |(admitted, waiting), site| {
            let (at_origins, queued) = site.misses.counts();
            (admitted + at_origins, waiting + queued + site.piece_turns.waiting())
        })
    }

    /// Why a site cannot be served, if there is one: its servers are all down, or none is known.
    pub fn cut_off(&self) -> Option<String> {
        let sites = self.sites.load();
        let of_site = |site: &Arc<Site>| {
            let (servers, hosts) = (site.servers(), site.settings.hosts.join(", "));
            if servers.iter().any(|server| server.health.is_up()) {
                return None;
            }
            if servers.is_empty() {
                return Some(format!("no member of {hosts} is known: {}", site.sources.silence()?));
            }
            Some(format!("every origin of {hosts} is down"))
        };
        let mut sites = sites.iter().filter(|site| site.route.is_none());
        self.peer_sources.load().silence().or_else(|| sites.find_map(of_site))
    }
}
