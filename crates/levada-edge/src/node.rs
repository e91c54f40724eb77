//! A node at work: everything that its connections share, and the tasks that keep it.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use http::HeaderValue;
use levada_cache::CacheName;
use levada_net::bpf::BpfError;
use levada_policy::BuildError;
use levada_types::Key;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::{
    admission::Capacity,
    blocks::Loans,
    clock::{self, Clock},
    dormant::GivenUpClients,
    drain::Drain,
    fill::Fills,
    handoff::{Front, HandoffBackend},
    large::Agency,
    log::Log,
    metrics::Metrics,
    pace::{Paced, Pacer},
    peers::{Peers, WatchedPeer},
    purge::{self, PendingStore, Purges},
    redirect::Prepared,
    remembered::Remembered,
    route::{self, Route},
    settings::{Origin, PolicyChoice, Runtime, Settings, SettingsReader, SiteSettings},
    sites::{Site, SiteParts, Sites, WatchedOrigin},
    sizes::Sizes,
    stop::Stop,
    store::disk::DiskError,
    store::{Object, Store},
    switch::{self, Switch},
    tls::TlsError,
    upstream::{self, Server},
};

/// How often a peer in slow start gets more of its keys.
const RAMP_STEP: Duration = Duration::from_millis(250);
/// How long a response that could not be stored speaks for those that follow.
const UNSTORABLE: Duration = Duration::from_secs(120);

/// How long a URI without parts stays known as one.
const NO_PARTS: Duration = Duration::from_secs(600);

/// A node at work.
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// As the last reload left them.
    pub(crate) sites: ArcSwap<Sites>,
    /// Where new settings come from.
    pub(crate) reader: Option<SettingsReader>,
    /// Held while settings change.
    pub(crate) reloading: tokio::sync::Mutex<()>,
    workers: usize,
    pub(crate) peers: Option<Arc<Peers>>,
    /// Hands connections to back-ends.
    pub(crate) front: Option<Front>,
    /// Takes connections from front-ends.
    pub(crate) backend: Option<Arc<HandoffBackend>>,
    pub(crate) store: Store,
    pub(crate) fills: Arc<Fills>,
    /// What readers hold on to, beside the tiers.
    pub(crate) loans: Arc<Loans>,
    pub(crate) purges: Arc<Purges>,
    /// What transfers in pieces have in common.
    pub(crate) large: Agency,
    pub(crate) sizes: Sizes,
    /// URIs whose parts the origin does not send, or not so that they could be kept.
    pub(crate) no_parts: Remembered,
    /// Keys whose responses turned out not to be storable: their requests do not wait for each other.
    pub(crate) unstorable: Remembered,
    /// Clients whose connections were given up as dormant.
    pub(crate) lost: GivenUpClients,
    pub(crate) drain: Arc<Drain>,
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: Option<Log>,
    pacer: Option<Arc<Pacer>>,
    /// This node as a member of `Via`.
    pub(crate) via: HeaderValue,
    /// This node as `Cache-Status` names it.
    pub(crate) cache_name: CacheName,
    /// This node as `Proxy-Status` names it.
    pub(crate) token: String,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {why}; is another program using it?")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system says.
        why: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A policy cannot be built.
    #[error("site {site}: {why}")]
    Policy {
        /// The site's first host.
        site: String,
        /// What is wrong.
        why: BuildError,
    },
    /// The disk cache could never be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No connections can be taken over.
    #[error("connections cannot be taken over: {0}")]
    Taker(BpfError),
    /// The access log cannot be opened.
    #[error("the access log cannot be opened: {0}; check the path and its rights")]
    Log(io::Error),
    /// The system refuses threads or timers.
    #[error("the runtime cannot start: {0}")]
    Runtime(io::Error),
}

/// Whether connections are to be handed to anybody.
pub(crate) fn hands_over(settings: &Settings) -> bool {
    let switches = settings.sites.iter().filter_map(|site| site.switch.as_ref());
    let mut servers = switches.flat_map(|switch| &switch.servers);
    servers.any(|server| server.handoff.is_some())
}

/// What hands connections over, where the settings want it and the system lets us; elsewhere they are
/// proxied.
fn front(settings: &Settings) -> Option<Front> {
    let handoff = settings.handoff.as_ref().filter(|_| hands_over(settings))?;
    match Front::start(handoff, settings.limits.connections) {
        Ok(front) => Some(front),
        Err(error) => {
            tracing::warn!(%error, "proxying: no connection can be handed off");
            None
        }
    }
}

/// What takes connections over, where the settings want it.
fn backend(settings: &Settings) -> Result<Option<HandoffBackend>, BpfError> {
    let Some(handoff) = &settings.handoff else { return Ok(None) };
    let taking = handoff.taking.as_ref();
    taking
        .map(|taking| HandoffBackend::start(handoff, taking, settings.limits.connections))
        .transpose()
}

/// Starts a task that ends with the node, or when it is aborted.
pub(crate) type Spawn<'a> = dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) -> AbortHandle + 'a;

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
        let access_log =
            settings.access_log.as_ref().map(Log::open).transpose().map_err(StartError::Log)?;
        let via = HeaderValue::try_from(format!("1.1 {}", settings.name))
            .unwrap_or_else(|_| HeaderValue::from_static("1.1 levada"));
        let store = Store::open(&settings.cache, via.clone(), &metrics.disk)?;
        // Behind the tier, which makes the directory and sees to it that no other node has it.
        let directory = settings.cache.disk.as_ref().map(|disk| &*disk.path);
        let purges = Purges::new(clock::wall(), directory, settings.purge.expose_tags);
        let purges = Arc::new(purges);
        Ok(Arc::new(Self {
            clock,
            sites: ArcSwap::from_pointee(sites),
            reader,
            reloading: tokio::sync::Mutex::new(()),
            workers,
            peers,
            front: front(&settings),
            backend: backend(&settings).map_err(StartError::Taker)?.map(Arc::new),
            store,
            fills: Fills::new(settings.cache.memory / 4, purges.clone()),
            loans: Loans::new(settings.cache.memory / 4),
            large: Agency::new(settings.cache.memory / 4, peer_count),
            purges,
            sizes: Sizes::default(),
            no_parts: Remembered::new(NO_PARTS),
            unstorable: Remembered::new(UNSTORABLE),
            lost: GivenUpClients::default(),
            drain: Drain::new(settings.limits.drain_rate, metrics.moved.clone()),
            route: settings.route.clone().map(|route| Arc::new(Route::new(route))),
            capacity: Capacity::new(settings.limits.capacity),
            metrics,
            access_log,
            pacer: settings.limits.serve_rate.map(Pacer::new),
            via,
            cache_name: CacheName::new(&settings.name),
            token: token(&settings.name),
            settings,
        }))
    }

    /// A body's place at the serving rate, if there is one.
    pub(crate) fn pace(&self) -> Option<Paced> {
        self.pacer.as_ref().map(Paced::new)
    }

    pub(crate) fn remember_no_parts(&self, key: Key) {
        self.no_parts.remember(key, self.clock.now());
    }

    /// Stores an object, unless it was purged or invalidated while it was fetched.
    pub(crate) fn keep(&self, key: Key, object: Arc<Object>, flight: &PendingStore) {
        if self.purges.may_keep(&object) && !flight.is_outdated(key) {
            self.store.put(key, object);
            // Whoever invalidates notes it first, and then removes what is stored.
            if flight.is_outdated(key) {
                self.store.remove(key);
            }
        }
    }

    /// What is stored for a URI, or on its way, is not for those who ask from now on.
    pub(crate) fn invalidate(&self, key: Key) {
        self.purges.invalidate(key);
        self.store.remove(key);
    }

    /// Drops what is stored for these URLs, whichever scheme they were asked by.
    pub(crate) fn forget(&self, identities: &[String]) {
        for identity in identities {
            let rest = identity.split_once("://").map_or(&**identity, |(_, rest)| rest);
            for scheme in ["http", "https"] {
                self.invalidate(Key::of(format!("{scheme}://{rest}").as_bytes()));
            }
        }
    }

    /// Requests at origins, and those that wait for their turn.
    pub(crate) fn misses(&self) -> (usize, usize) {
        let sites = self.sites.load();
        let sites = sites.iter().map(|site| &site.misses);
        sites.fold((0, 0), |(taken, waiting), misses| {
            (taken + misses.taken(), waiting + misses.waiting())
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

    /// Starts what a node does besides answering: watching servers, ramping peers up, flushing logs.
    /// All of it ends when the node stops.
    pub(crate) fn tend(self: &Arc<Self>, stop: &Stop) {
        let until_stopped = |task| spawn_until(stop, task);
        self.tend_sites(&until_stopped);
        if let Some(peers) = &self.peers {
            for (node, _) in peers.servers().filter(|(node, _)| *node != peers.me()) {
                let watched = Arc::new(WatchedPeer { peers: peers.clone(), node });
                let check = peers.settings().health.clone();
                until_stopped(Box::pin(upstream::watch(watched, check, self.clock)));
            }
            if peers.settings().health.interval.is_zero() {
                until_stopped(Box::pin(purge::deliver_all(peers.clone())));
            }
        }
        if let Some(route) = &self.route {
            until_stopped(Box::pin(route::tend(self.clone(), route.clone())));
        }
        until_stopped(Box::pin(ramp(self.clone())));
        until_stopped(Box::pin(purge::sweep(self.clone())));
        if self.access_log.is_some() {
            until_stopped(Box::pin(flush(self.clone())));
        }
        if let Some(front) = &self.front {
            let sites = self.sites.load();
            let switches = sites.iter().filter_map(|site| site.switch.as_ref());
            switches.for_each(|switch| front.reach(self, &switch.controls()));
            let (node, stop) = (Arc::downgrade(self), stop.clone());
            tokio::spawn(async move {
                stop.begun().await;
                drop(stop);
                if let Some(front) = node.upgrade().as_ref().and_then(|node| node.front.as_ref()) {
                    front.end();
                }
            });
        }
    }
}

impl Node {
    /// Watches the servers of all sites that nobody watches yet.
    fn tend_sites(&self, spawn: &Spawn<'_>) {
        let sites = self.sites.load_full();
        for site in sites.iter() {
            for origin in &site.origins {
                let mut watching = origin.watch.lock();
                if watching.is_none() {
                    let check = origin.check.clone();
                    let task = upstream::watch(origin.clone(), check, self.clock);
                    *watching = Some(spawn(Box::pin(task)));
                }
            }
            if let Some(switch) = &site.switch {
                switch.tend(spawn);
            }
        }
    }

    /// Serves other sites from now on; requests that run end as they began.
    ///
    /// # Errors
    /// When a policy cannot be built; nothing has changed then.
    pub(crate) fn change_sites(
        &self,
        settings: &[SiteSettings],
        stop: &Stop,
    ) -> Result<(), StartError> {
        let before = self.sites.load_full();
        let (clock, metrics, workers) = (self.clock, &self.metrics, self.workers);
        let around = SiteBuilder { settings: &self.settings, clock, metrics, workers };
        let after = Arc::new(make_sites(&around, settings, &before)?);
        self.sites.store(after.clone());
        for old in before.iter() {
            let new = || after.iter().filter(|new| new.id == old.id);
            let stays = |one: &Arc<WatchedOrigin>| {
                new().any(|site| site.origins.iter().any(|other| Arc::ptr_eq(one, other)))
            };
            for gone in old.origins.iter().filter(|origin| !stays(origin)) {
                if let Some(watch) = gone.watch.lock().take() {
                    watch.abort();
                }
            }
            if let Some(switch) = &old.switch
                && !new().any(|site| site.switch.is_some())
            {
                switch.retire();
            }
        }
        self.tend_sites(&|task| spawn_until(stop, task));
        Ok(())
    }
}

/// Starts a task that ends with the node.
fn spawn_until(stop: &Stop, task: Pin<Box<dyn Future<Output = ()> + Send>>) -> AbortHandle {
    let stop = stop.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            () = task => {}
            () = stop.begun() => {}
        }
    });
    task.abort_handle()
}

async fn ramp(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(RAMP_STEP);
    loop {
        ticks.tick().await;
        if let Some(peers) = node.peers.as_ref().filter(|peers| peers.ramping()) {
            peers.refresh(node.clock.now());
        }
        let sites = node.sites.load_full();
        for switch in sites.iter().filter_map(|site| site.switch.as_ref()) {
            if switch.ramping() {
                switch.refresh();
            }
        }
    }
}

async fn flush(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        if let Some(log) = &node.access_log {
            log.flush();
        }
    }
}

/// What sites are made in.
struct SiteBuilder<'a> {
    settings: &'a Settings,
    clock: Clock,
    metrics: &'a Arc<Metrics>,
    workers: usize,
}

/// Sites from settings. What was there before goes on: a site is the same when its first host is.
///
/// # Errors
/// When a policy cannot be built; nothing has changed then.
fn make_sites(
    around: &SiteBuilder<'_>,
    settings: &[SiteSettings],
    before: &Sites,
) -> Result<Sites, StartError> {
    let former = |site: &SiteSettings| before.iter().find(|old| old.id == Site::id_of(site));
    let prepare = |site| {
        let prepared = prepare(around, site, former(site).map(Arc::as_ref));
        prepared.map_err(|why| StartError::Policy { site: site.hosts.join(", "), why })
    };
    let prepared = settings.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
    let sites = settings.iter().zip(prepared).map(|(site, prepared)| {
        Arc::new(make_site(around, site, prepared, former(site).map(Arc::as_ref)))
    });
    Ok(Sites::new(sites.collect()))
}

fn prepare(
    around: &SiteBuilder<'_>,
    site: &SiteSettings,
    before: Option<&Site>,
) -> Result<SitePolicies, BuildError> {
    let Settings { peering, limits, .. } = around.settings;
    let redirectors = peering.as_ref().map_or(1, |p| p.peers.len()).max(1) as u32;
    let capacity = site.switch.as_ref().map_or(limits.capacity, switch::capacity);
    let seed = seed(around.settings);
    let whole = before.map(|site| &site.decider);
    let whole = Prepared::new(&site.policy, redirectors, capacity, seed, whole)?;
    // Which replica is asked is left to chance, as in the paper (WORLDS'04, Sec. 3).
    let pieces = site.large.and_then(|large| large.replicas).map(|replicas| {
        let parameters =
            [("replicas".to_owned(), levada_policy::ParameterValue::Integer(replicas.into()))];
        let choice = PolicyChoice { name: "r-hrw".to_owned(), parameters: parameters.into() };
        let before = before.and_then(|site| site.pieces.as_ref());
        Prepared::new(&choice, redirectors, limits.capacity, seed, before)
    });
    Ok(SitePolicies { whole, pieces: pieces.transpose()? })
}

/// Who is to choose for a site, and for the pieces of its large files.
struct SitePolicies {
    whole: Prepared,
    pieces: Option<Prepared>,
}

fn seed(settings: &Settings) -> u64 {
    settings.seed.unwrap_or_else(|| levada_types::hash64(settings.name.as_bytes()))
}

fn make_site(
    around: &SiteBuilder<'_>,
    site: &SiteSettings,
    prepared: SitePolicies,
    before: Option<&Site>,
) -> Site {
    let SiteBuilder { settings, clock, metrics, workers } = *around;
    let decider = prepared.whole.commit();
    let pieces = prepared.pieces.map(Prepared::commit);
    let host: Option<HeaderValue> = site
        .origin_host
        .as_deref()
        .or_else(|| site.hosts.first().map(String::as_str).filter(|h| !h.contains('*')))
        .and_then(|h| h.parse().ok());
    let known = |origin: &Origin| {
        let before = before?;
        let all = before.settings.origins.iter().zip(&before.origins);
        let same = all.filter(|(_, old)| old.check == site.health && old.host == host);
        same.clone().find(|(old, _)| *old == origin).map(|(_, old)| old.clone())
    };
    let make = |origin: &Origin| {
        Arc::new(WatchedOrigin {
            server: origin_server(origin, settings, workers),
            check: site.health.clone(),
            host: host.clone(),
            clock,
            metrics: metrics.clone(),
            watch: Mutex::default(),
        })
    };
    let origins =
        site.origins.iter().map(|origin| known(origin).unwrap_or_else(|| make(origin))).collect();
    let switch = site.switch.as_ref().map(|switch| {
        let plan = switch::Plan {
            settings: switch,
            check: &site.health,
            policy: &site.policy,
            host: host.clone(),
            limits: &settings.limits,
            workers,
            decider: &decider,
        };
        match before.and_then(|before| before.switch.clone()) {
            Some(before) => {
                before.change(&plan);
                before
            }
            None => Switch::new(&plan, clock, metrics),
        }
    });
    let (fallbacks, retry_budget) = (metrics.fallbacks.clone(), settings.limits.retry_budget);
    Site::new(
        site.clone(),
        SiteParts { decider, pieces, origins, switch, fallbacks, retry_budget },
        before,
    )
}

fn origin_server(origin: &Origin, settings: &Settings, workers: usize) -> Arc<Server> {
    let (address, wire) = upstream::way_to(origin);
    let name = address.to_string().into();
    Server::new(name, address, wire, &settings.limits, workers)
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
