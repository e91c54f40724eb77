//! A node: everything that its connections share.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use http::HeaderValue;
use levada_body::{BlockMemory, BlockTiers};
use levada_cache::CacheName;
use levada_handoff::{Front, HandoffBackend};
use levada_net::bpf::BpfError;
use levada_purge::{PendingStore, Purges};
use levada_redirector::Sizes;
use levada_route::Route;
use levada_store::{Loans, Object, Store};
use levada_types::Key;

use crate::{
    access_record::Telemetry,
    admission::Capacity,
    clock::{self, Clock},
    drain::Drain,
    fill::Fills,
    given_up::GivenUpClients,
    large::Agency,
    log::Log,
    metrics::Metrics,
    pace::{Paced, Pacer},
    part_origin::BlockFlights,
    peers::Peers,
    remembered::Remembered,
    settings::{Runtime, Settings, SettingsReader},
    site_builder::{SiteBuilder, make_sites},
    sites::Sites,
    start_error::StartError,
};

/// How long requests for a URI do not wait for each other after a response that could not be stored.
const UNSTORABLE: Duration = Duration::from_secs(120);

/// How long a URI stays known as one without ranges.
const NO_PARTS: Duration = Duration::from_secs(600);

/// A node.
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// The sites, replaced by each reload.
    pub(crate) sites: ArcSwap<Sites>,
    /// The source of new settings.
    pub(crate) reader: Option<SettingsReader>,
    /// Held while settings change.
    pub(crate) reloading: tokio::sync::Mutex<()>,
    pub(crate) workers: usize,
    pub(crate) peers: Option<Arc<Peers>>,
    /// The front-end of TCP handoff.
    pub(crate) front: Option<Front<Node>>,
    /// The back-end of TCP handoff.
    pub(crate) backend: Option<Arc<HandoffBackend>>,
    pub(crate) store: Arc<Store>,
    pub(crate) fills: Arc<Fills>,
    pub(crate) block_flights: Arc<BlockFlights>,
    /// Where bodies are kept in blocks: in the store, and beside it.
    pub(crate) tiers: Arc<BlockTiers>,
    pub(crate) purges: Arc<Purges>,
    /// The shared state of transfers in pieces.
    pub(crate) large: Agency,
    pub(crate) sizes: Sizes,
    /// URIs for which the origin does not send ranges, or not ones that could be stored.
    pub(crate) no_parts: Remembered,
    /// Keys whose responses turned out not to be storable: their requests do not wait for each other.
    pub(crate) unstorable: Remembered,
    /// Clients whose connections were given up as dormant.
    pub(crate) given_up: GivenUpClients,
    pub(crate) drain: Arc<Drain>,
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) telemetry: Arc<Telemetry>,
    pacer: Option<Arc<Pacer>>,
    /// This node as a member of `Via`.
    pub(crate) via: HeaderValue,
    /// This node as `Cache-Status` names it.
    pub(crate) cache_name: CacheName,
    /// This node as `Proxy-Status` names it.
    pub(crate) token: String,
}

/// Whether any server of a switch takes connections by handoff.
pub(crate) fn hands_over(settings: &Settings) -> bool {
    let switches = settings.sites.iter().filter_map(|site| site.switch.as_ref());
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
    let taking = handoff.taking.as_ref();
    taking
        .map(|taking| HandoffBackend::start(handoff, taking, settings.limits.connections))
        .transpose()
}

impl Node {
    pub(crate) fn new(
        settings: Settings,
        reader: Option<SettingsReader>,
    ) -> Result<Arc<Self>, StartError> {
        let clock = Clock::start();
        let metrics = Arc::new(Metrics::new());
        let workers = match settings.runtime {
            Runtime::Shared(_) => 1,
            Runtime::PerCore(cores) => cores,
        };
        let peers = settings
            .peering
            .as_ref()
            .map(|peering| Peers::new(&settings, peering, clock, &metrics, workers))
            .transpose()?
            .map(Arc::new);
        let peer_count = settings.peering.as_ref().map_or(1, |peering| peering.peers.len());
        let around = SiteBuilder { settings: &settings, clock, metrics: &metrics, workers };
        let sites = make_sites(&around, &settings.sites, &Sites::new(Vec::new()))?;
        let log =
            settings.access_log.as_ref().map(Log::open).transpose().map_err(StartError::Log)?;
        let telemetry = Arc::new(Telemetry { clock, metrics: metrics.clone(), log });
        let via = HeaderValue::try_from(format!("1.1 {}", settings.name))
            .unwrap_or_else(|_| HeaderValue::from_static("1.1 levada"));
        let store = Arc::new(Store::open(&settings.cache, via.clone(), &metrics.disk)?);
        // After the tier, which creates the directory and locks it against other nodes.
        let directory = settings.cache.disk.as_ref().map(|disk| &*disk.path);
        let purges = Purges::new(clock::wall(), directory, settings.purge.expose_tags);
        let purges = Arc::new(purges);
        let tiers = Arc::new(BlockTiers {
            store: store.clone(),
            loans: Loans::new(settings.cache.memory / 4),
            memory: BlockMemory::new(settings.cache.memory / 4),
            max_object: settings.cache.max_object,
        });
        Ok(Arc::new(Self {
            clock,
            sites: ArcSwap::from_pointee(sites),
            reader,
            reloading: tokio::sync::Mutex::new(()),
            workers,
            peers,
            front: front(&settings),
            backend: backend(&settings).map_err(StartError::Handoff)?.map(Arc::new),
            store,
            fills: Fills::new(),
            block_flights: BlockFlights::new(),
            tiers,
            large: Agency::new(settings.cache.memory / 4, peer_count),
            purges,
            sizes: Sizes::default(),
            no_parts: Remembered::new(NO_PARTS),
            unstorable: Remembered::new(UNSTORABLE),
            given_up: GivenUpClients::default(),
            drain: Drain::new(settings.limits.drain_rate, metrics.moved.clone()),
            route: settings
                .route
                .clone()
                .map(|route| Arc::new(Route::new(route, metrics.route.clone()))),
            capacity: Capacity::new(settings.limits.capacity),
            metrics,
            telemetry,
            pacer: settings.limits.serve_rate.map(Pacer::new),
            via,
            cache_name: CacheName::new(&settings.name),
            token: token(&settings.name),
            settings,
        }))
    }

    /// The pacing of one body, if the node has a serving rate.
    pub(crate) fn pace(&self) -> Option<Paced> {
        self.pacer.as_ref().map(Paced::new)
    }

    pub(crate) fn remember_no_parts(&self, key: Key) {
        self.no_parts.remember(key, self.clock.now());
    }

    /// Stores an object, unless it was purged or invalidated while it was fetched.
    pub(crate) fn keep(&self, key: Key, object: Arc<Object>, pending: &PendingStore) {
        if self.purges.may_keep(&object) && !pending.is_outdated(key) {
            self.store.put(key, object);
            // An invalidation notes the URI first, then removes the stored response.
            if pending.is_outdated(key) {
                self.store.remove(key);
            }
        }
    }

    /// Invalidates a URI: stored responses, and fetches that run, are not for later requests.
    pub(crate) fn invalidate(&self, key: Key) {
        self.purges.invalidate(key);
        self.store.remove(key);
    }

    /// Drops the stored responses of these URLs, for HTTP and HTTPS.
    pub(crate) fn forget(&self, identities: &[String]) {
        for identity in identities {
            let rest = identity.split_once("://").map_or(&**identity, |(_, rest)| rest);
            for scheme in ["http", "https"] {
                self.invalidate(Key::of(format!("{scheme}://{rest}").as_bytes()));
            }
        }
    }

    /// Requests at origins, and requests that wait for admission.
    pub(crate) fn misses(&self) -> (usize, usize) {
        let sites = self.sites.load();
        let counts = sites.iter().map(|site| site.misses.counts());
        counts.fold((0, 0), |(admitted, waiting), one| {
            (admitted + one.admitted, waiting + one.waiting)
        })
    }

    /// The hosts of a site whose servers are all down, if there is one.
    pub(crate) fn cut_off(&self) -> Option<String> {
        let sites = self.sites.load();
        let cut_off = sites.iter().find(|site| {
            let switch = site.switch.as_ref().map(|switch| switch.view().members.clone());
            let switched = switch.iter().flatten().map(|member| &member.server);
            let mut servers = site.origins.iter().map(|o| &o.server).chain(switched).peekable();
            servers.peek().is_some() && servers.all(|server| !server.health.is_up())
        });
        cut_off.map(|site| site.settings.hosts.join(", "))
    }

    pub(crate) fn unix_time(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs())
    }
}

/// A name as a structured field's token or string (RFC 8941).
fn token(name: &str) -> String {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:/*".contains(c));
    if starts && plain {
        return name.to_owned();
    }
    let safe: String = name.chars().filter(|c| matches!(c, ' '..='~')).collect();
    format!("\"{}\"", safe.replace('\\', "\\\\").replace('"', "\\\""))
}
