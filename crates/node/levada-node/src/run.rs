//! Runs a node: sockets, threads, signals, and an orderly end.

use std::{sync::Arc, time::Duration};

use levada_edge::{handoff, node::Node};
use levada_fleet::{Follower, SharedTexts};
use levada_observe::metrics::Registry;
use levada_tls::acme::{CertificateMetrics, Certificates};
use levada_types::format_duration;
use tokio::runtime;

use levada_access::round_trips::ROUND_TRIPS;
use levada_cluster::{events::Events, nodes::Standing};
use levada_control::status::History;
use levada_net::{
    signals::Signals,
    stop::{self, Stop, Stopper, spawn_until},
};

use crate::{
    admin::{self, Pages},
    counts::Counts,
    dns::{self, DnsSockets, NameServer, Own},
    fleet::FleetNode,
    guard,
    listeners::Listeners,
    members,
    reload::Reloader,
    replace::{Inheritance, upgrade},
    start_error::StartError,
    tend::tend,
    upgrade::{
        Addresses, NodeSockets, PassedSockets, Predecessor, SocketError, UpgradePhase, systemd,
    },
    watched_files::{self, WatchedFiles},
};
use levada_config::{Runtime, Settings, SettingsReader};

/// Runs a node until TERM, INT or QUIT, then lets running requests end within the drain timeout. Calls
/// `ready` when the node has caught up with the purges of its cluster and every address is being
/// listened on. On HUP the node takes over the settings that `reader` reads, as far as they can change. On
/// HUP and USR1 it opens the access log again, and on USR2 it starts an upgrade. Takes over from its
/// `predecessor`, if there is one, and ends when another process has taken over from it. While it serves, a node of a
/// fleet follows that by `fleet`, and a change of `watched` files is a HUP.
///
/// # Errors
/// When an address, a certificate, a policy or the log cannot be used. Nothing is left half started.
pub fn run(
    settings: Settings,
    reader: SettingsReader,
    mut predecessor: Option<Predecessor>,
    fleet: Option<Follower>,
    watched: WatchedFiles,
    ready: impl FnOnce(&Addresses),
) -> Result<(), StartError> {
    let runtime = settings.runtime;
    crate::upgrade::raise_file_limit(settings.limits.connections as u64);
    let mut passed = match &mut predecessor {
        Some(predecessor) => std::mem::take(&mut predecessor.sockets),
        None => PassedSockets::from_systemd(),
    };
    let (sockets, dns) = open_sockets(&settings, &mut passed)?;
    crate::upgrade::become_user(&settings, &reader)?;
    let main = build_runtime(runtime)?;
    main.block_on(async move {
        settings.check()?;
        check(&settings)?;
        let connections = settings.limits.connections;
        let mut inherited = predecessor.map(|predecessor| Inheritance::of(predecessor, passed));
        let node = Node::new(settings, |settings| match &mut inherited {
            Some(inherited) => inherited.take(settings),
            None => Ok(None),
        })?;
        if let Some(follower) = &fleet {
            node.certificates.share(Arc::new(SharedTexts::new(follower.state())));
        }
        let listeners = Listeners::new(connections, &node.certificates);
        inherited.iter_mut().for_each(|inherited| inherited.ready(&node));
        let reloader = Arc::new(Reloader::new(node.clone(), listeners, Some(reader)));
        let (stopper, stop) = stop::channel();
        let addresses = sockets.addresses.clone();
        let doors = start(&reloader, (sockets, dns), &stop)?;
        let served = reloader.clone();
        let mut signals = Signals::register();
        let serving = async {
            let caught_up = inherited.as_ref().is_some_and(|inherited| inherited.is_complete);
            open_doors(&node, doors, (caught_up, &stop)).await?;
            if let Some(inherited) = inherited {
                inherited.serving(served);
            }
            systemd::ready();
            tokio::spawn(systemd::watch(reloader.listeners.workers()));
            if let Some(route) = &node.route {
                let workers = reloader.listeners.workers();
                tokio::spawn(guard::keep(route.clone(), workers, stop.clone()));
            }
            ready(&addresses);
            addresses.log(&node.settings().name);
            watched_files::follow(watched, &reloader, &stop);
            follow(&fleet, &reloader, &stop).await
        };
        let ended = tokio::select! {
            failed = serving => failed,
            () = until_signalled(&mut signals, &reloader, &stop) => Ok(()),
            () = reloader.upgrades.until(UpgradePhase::Succeeded) => {
                reloader.listeners.forget();
                leave(&mut signals, &reloader, &stop).await;
                Ok(())
            }
        };
        end(&reloader, stopper, stop).await;
        ended
    })
}

/// Whether a node could serve at the listeners of these settings. It reads certificates. What other programs have or do
/// is not looked at: a node may run during a check of its next settings.
///
/// # Errors
/// With the first reason why it could not, as [`run`] would have it.
pub fn check(settings: &Settings) -> Result<(), StartError> {
    Listeners::new(0, &Certificates::new(CertificateMetrics::registered(&mut Registry::default())))
        .check(settings)
}

/// Follows the node's fleet, if it is of one. Never returns.
async fn follow<T>(fleet: &Option<Follower>, reloader: &Arc<Reloader>, stop: &Stop) -> T {
    if let Some(follower) = fleet {
        let _ = reloader.fleet.set((follower.status(), follower.look_at_fleet()));
        follower.follow(&FleetNode::new(reloader, stop)).await;
    }
    std::future::pending().await
}

/// Opens the sockets of a node that were not passed to this process.
fn open_sockets(
    settings: &Settings,
    passed: &mut PassedSockets,
) -> Result<(NodeSockets, Option<DnsSockets>), SocketError> {
    let workers = match settings.runtime {
        Runtime::Shared(_) => 1,
        Runtime::PerCore(cores) => cores.max(1),
    };
    open_all(settings, workers, passed)
}

/// All sockets for so many workers. Those for queries come first: no one takes what is left then.
fn open_all(
    settings: &Settings,
    workers: usize,
    passed: &mut PassedSockets,
) -> Result<(NodeSockets, Option<DnsSockets>), SocketError> {
    let dns = settings.dns.as_ref();
    let dns_sockets = dns.map(|dns| DnsSockets::open(dns, false, passed)).transpose()?;
    let mut sockets = NodeSockets::open(settings, workers, settings.hands_over(), passed)?;
    if let Some((of_dns, dns)) = dns_sockets.as_ref().zip(dns) {
        let address = dns.listen[0];
        let offered = of_dns.offer(dns, &mut sockets.others);
        offered.map_err(|why| SocketError::Dns { address, why })?;
    }
    Ok((sockets, dns_sockets))
}

/// A node within this process, for tests and for programs that embed one. Dropping it cuts everything
/// at once; [`stop`](Self::stop) lets requests end.
pub struct Running {
    /// Where it can be reached.
    pub addresses: Addresses,
    reloader: Arc<Reloader>,
    stopper: Option<Stopper>,
    stop: Option<Stop>,
}

impl Running {
    /// Starts a node on the current runtime.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        Self::start_with(settings, None).await
    }

    /// Starts a node on the current runtime, whose settings can be read again.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn start_with(
        settings: Settings,
        reader: Option<SettingsReader>,
    ) -> Result<Self, StartError> {
        let workers = 1;
        let (sockets, dns) = open_all(&settings, workers, &mut PassedSockets::default())?;
        let connections = settings.limits.connections;
        let node = Node::new(settings, |_| Ok::<_, StartError>(None))?;
        let listeners = Listeners::new(connections, &node.certificates);
        let reloader = Arc::new(Reloader::new(node.clone(), listeners, reader));
        let (stopper, stop) = stop::channel();
        let addresses = sockets.addresses.clone();
        let doors = start(&reloader, (sockets, dns), &stop)?;
        open_doors(&node, doors, (false, &stop)).await?;
        Ok(Self { addresses, reloader, stopper: Some(stopper), stop: Some(stop) })
    }

    /// The requests and connections at this moment: all zero when the node is idle.
    pub fn counts(&self) -> Counts {
        let node = &self.reloader.node;
        let outstanding = node.peers.as_ref().map_or(0, |peers| peers.outstanding());
        let sites = node.sites.load();
        let lists: Vec<_> = sites.iter().map(|site| site.origins.list().clone()).collect();
        let origins = lists.iter().flat_map(|list| list.all());
        let (busy, waiting) = origins
            .map(|origin| origin.server.counts())
            .fold((0, 0), |(b, w), one| (b + one.admitted, w + one.waiting));
        let switches = sites.iter().filter_map(|site| site.switch.as_ref());
        let (switched, switch_waiting) = switches.fold((0, 0), |(s, w), switch| {
            let counts = switch.counts();
            let held: u32 = switch.view().members.iter().map(|member| member.held()).sum();
            (s + counts.admitted.max(held as usize), w + counts.waiting)
        });
        let (misses, misses_waiting) = node.misses();
        Counts {
            misses,
            misses_waiting,
            switched,
            switch_waiting,
            in_flight: node.metrics.requests.in_flight.get(),
            in_service: node.in_service(),
            outstanding,
            origin_connections_busy: busy,
            waiting,
            fills: node.cache.flights(),
            filling_bytes: node.cache.tiers.memory.bytes(),
            lent_bytes: node.cache.tiers.loans.bytes(),
            sending_files: node.cache.store.sending(),
        }
    }

    /// The events of the node.
    pub fn events(&self) -> &Arc<Events> {
        &self.reloader.node.events
    }

    /// The last 15 minutes of the node.
    pub fn history(&self) -> &Arc<History> {
        &self.reloader.node.history
    }

    /// Ends the node in order, as a signal would.
    pub async fn stop(mut self) {
        if let (Some(stopper), Some(stop)) = (self.stopper.take(), self.stop.take()) {
            end(&self.reloader, stopper, stop).await;
        }
    }
}

pub(crate) fn build_runtime(runtime: Runtime) -> Result<runtime::Runtime, StartError> {
    let built = match runtime {
        Runtime::Shared(threads) if threads > 1 => {
            runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
        }
        _ => runtime::Builder::new_current_thread().enable_all().build(),
    };
    built.map_err(StartError::Runtime)
}

/// Starts the node's tasks: the first worker on this runtime, the others on threads of their own. Peers
/// and operators can connect from now on.
fn start(
    reloader: &Arc<Reloader>,
    (mut sockets, dns): (NodeSockets, Option<DnsSockets>),
    stop: &Stop,
) -> Result<Vec<std::net::TcpListener>, StartError> {
    let doors = sockets.doors();
    let mut accepting = Vec::new();
    let node = &reloader.node;
    let mut runtimes = vec![runtime::Handle::current()];
    for index in 1..node.workers {
        runtimes.push(worker(index, stop)?);
    }
    reloader.listeners.start(node, runtimes, sockets.listeners, stop)?;
    for (pages, listener) in [(Pages::All, sockets.admin), (Pages::Metrics, sockets.metrics)] {
        let Some(listener) = listener else { continue };
        let listener = listener.start().map_err(StartError::Runtime)?;
        let serving = admin::serve(reloader.clone(), pages, listener, stop.clone());
        accepting.push(tokio::spawn(serving).abort_handle());
    }
    accepting.extend(sockets.control.and_then(|listener| handoff::accept(node, listener, stop)));
    reloader.listeners.add(sockets.others, accepting);
    if let Some(sockets) = dns {
        start_dns(reloader, sockets, stop)?;
    }
    tend(reloader, stop);
    let (keeping, stop) = (reloader.clone(), stop.clone());
    tokio::spawn(async move {
        let Reloader { node, registrar, upgrades, .. } = &*keeping;
        registrar.keep(node, upgrades, &stop).await;
    });
    Ok(doors)
}

/// Answers DNS queries from now on, with the nodes of the cluster.
fn start_dns(reloader: &Reloader, sockets: DnsSockets, stop: &Stop) -> Result<(), StartError> {
    let settings = reloader.node.settings();
    let Some(dns) = &settings.dns else { return Ok(()) };
    let name_server = NameServer::start(&settings, dns, sockets, stop)?;
    if let Some(peers) = &reloader.node.peers {
        let node = Arc::downgrade(&reloader.node);
        let standing = move || {
            let node = node.upgrade()?;
            let (held, capacity) = (node.capacity.held(), node.settings().limits.capacity);
            Some((node.purging.serves(), Standing::new(node.drain.is_on(), held, capacity)))
        };
        let given_up = reloader.node.given_up.clone();
        let round_trips = move || given_up.round_trips.told(Some(ROUND_TRIPS));
        let own = Own { standing: Box::new(standing), round_trips: Box::new(round_trips) };
        let watch = dns::watch(peers.clone(), name_server.server.clone(), Some(own), true);
        spawn_until(stop, Box::pin(watch));
    }
    // Only this sets it.
    let _ = reloader.dns.set(name_server);
    Ok(())
}

/// Lets clients and front-ends in, when the node has learned what was purged while it was away. With
/// `caught_up` it was not away.
async fn open_doors(
    node: &Arc<Node>,
    doors: Vec<std::net::TcpListener>,
    (caught_up, stop): (bool, &Stop),
) -> Result<(), StartError> {
    members::settle(node, stop).await;
    if !caught_up {
        let patience = node.settings().peering.as_ref().map_or(Duration::ZERO, |p| p.catch_up);
        node.purging.catch_up(patience).await;
    }
    doors.iter().try_for_each(crate::upgrade::listen)?;
    node.purging.serve();
    Ok(())
}

/// Starts a worker with a scheduler, sockets and pools of its own.
fn worker(index: usize, stop: &Stop) -> Result<runtime::Handle, StartError> {
    let stop = stop.clone();
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Runtime)?;
    let handle = runtime.handle().clone();
    let work = move || {
        levada_upstream::set_worker(index);
        runtime.block_on(async move {
            stop.begun().await;
            drop(stop);
            // The connections of this worker go on until the process ends.
            std::future::pending::<()>().await;
        });
    };
    let named = std::thread::Builder::new().name(format!("worker-{index}"));
    named.spawn(work).map_err(StartError::Runtime)?;
    Ok(handle)
}

/// Returns on a signal to stop. Until then it reloads on each HUP, opens the access log again on each USR1, and
/// upgrades on each USR2.
async fn until_signalled(signals: &mut Signals, reloader: &Arc<Reloader>, stop: &Stop) {
    // The results are in the log and in the metrics.
    let reload = async || drop(reloader.reload(stop).await);
    let reopen = async || reloader.node.telemetry.logs.reopen();
    let upgrade = async || drop(upgrade(reloader, None, stop).await);
    signals.until_stopped(reload, reopen, upgrade).await;
}

/// The interval of checks whether connections are left.
const LEAVE_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until no connections are left after another process has taken over, at most for half of the drain
/// timeout, or until a signal.
async fn leave(signals: &mut Signals, reloader: &Arc<Reloader>, stop: &Stop) {
    let node = &reloader.node;
    let patience = node.settings().limits.drain_timeout / 2;
    let gone = async {
        reloader.upgrades.until(UpgradePhase::Over).await;
        while node.metrics.connections.open.get() > 0 {
            tokio::time::sleep(LEAVE_INTERVAL).await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(patience, gone) => {}
        () = until_signalled(signals, reloader, stop) => {}
    }
}

/// Lets running requests end, within the drain timeout.
async fn end(reloader: &Arc<Reloader>, stopper: Stopper, stop: Stop) {
    let node = &reloader.node;
    let mut limit = node.settings().limits.drain_timeout;
    if reloader.upgrades.has_succeeded() {
        limit /= 2;
        reloader.upgrades.until(UpgradePhase::Over).await;
    } else {
        reloader.upgrades.give_up();
        systemd::stopping();
        node.cache.store.is_to_end();
        if let Some(route) = &node.route {
            route.end(node.clock.uptime()).await;
        }
    }
    reloader.listeners.forget();
    tracing::info!(limit = %format_duration(limit), "stopping: no new connections, waiting for running requests");
    node.drain.end_connections();
    stopper.begin();
    node.drain.rouse();
    drop(stop);
    if tokio::time::timeout(limit, stopper.done()).await.is_err() {
        tracing::warn!("the drain timeout is over: cutting the remaining connections");
    }
    node.telemetry.close().await;
    let (closing, dns) = (node.clone(), reloader.clone());
    let _ = tokio::task::spawn_blocking(move || dns.dns.get().map(NameServer::end)).await;
    let _ = tokio::task::spawn_blocking(move || closing.cache.store.close()).await;
}
