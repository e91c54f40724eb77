//! Runs a node: sockets, threads, signals, and an orderly end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use levada_types::format_duration;
use tokio::{net::TcpListener, runtime, signal::unix};
use tracing::field::display;

use levada_net::{
    admin_listener::StdAdminListener,
    stop::{self, Stop, Stopper},
};

use crate::{
    admin::{self, Pages},
    listener,
    listeners::{ListenerSockets, Listeners},
    members,
    node::{Node, hands_over},
    reload::Reloader,
    run_as,
    settings::{Runtime, Settings, SettingsReader},
    start_error::StartError,
    tend::tend,
};

/// The addresses of a running node.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// The client listeners, in the order of the settings, with the ports that were taken.
    pub clients: Vec<SocketAddr>,
    /// The peer listener.
    pub peers: Option<SocketAddr>,
    /// The admin listener, unless it is a Unix socket.
    pub admin: Option<SocketAddr>,
    /// The listener for metrics.
    pub metrics: Option<SocketAddr>,
}

/// Runs a node until TERM, INT or QUIT, then lets running requests end within the drain timeout. Calls
/// `ready` when the node has caught up with the purges of its cluster and every address is being
/// listened on. On HUP the node takes over the settings that `reader` reads, as far as they can change. On
/// HUP and USR1 it opens the access log anew.
///
/// # Errors
/// When an address, a certificate, a policy or the log cannot be used. Nothing is left half started.
pub fn run(
    settings: Settings,
    reader: SettingsReader,
    ready: impl FnOnce(&Addresses),
) -> Result<(), StartError> {
    let runtime = settings.runtime;
    raise_file_limit(settings.limits.connections as u64);
    let sockets = Sockets::open(&settings, runtime)?;
    run_as::become_user(&settings, &reader)?;
    let main = build_runtime(runtime)?;
    main.block_on(async move {
        let (listeners, node) = (Listeners::new(settings.limits.connections), Node::new(settings)?);
        let reloader = Arc::new(Reloader::new(node.clone(), listeners, Some(reader)));
        let (stopper, stop) = stop::channel();
        let addresses = sockets.addresses.clone();
        let doors = start(&reloader, sockets, &stop)?;
        let serving = async {
            open_doors(&node, doors, &stop).await?;
            ready(&addresses);
            let Addresses { clients, peers, admin, metrics } = &addresses;
            let clients = clients.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ");
            let [peers, admin, metrics] = [peers, admin, metrics].map(|one| one.map(display));
            tracing::info!(name = node.settings().name, %clients, peers, admin, metrics, "ready");
            std::future::pending().await
        };
        let ended = tokio::select! {
            failed = serving => failed,
            () = until_signalled(&reloader, &stop) => Ok(()),
        };
        end(&node, stopper, stop).await;
        ended
    })
}

/// Raises the limit of open files, and warns if clients and the connections for their requests could reach it.
fn raise_file_limit(connections: u64) {
    let needed = connections * 2;
    if let Some(limit) = levada_net::open_files::raise_limit().filter(|limit| *limit < needed) {
        tracing::warn!(
            limit,
            "`limits.connections` is {connections}, and each client may need a second connection to a server: allow {needed} open files (LimitNOFILE of systemd, or ulimit -n), or lower it"
        );
    }
}

/// A node within this process, for tests and for programs that embed one. Dropping it cuts everything
/// at once; [`stop`](Self::stop) lets requests end.
pub struct Running {
    /// Where it can be reached.
    pub addresses: Addresses,
    node: Arc<Node>,
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

    /// Starts a node on the current runtime, whose settings can be read anew.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn start_with(
        settings: Settings,
        reader: Option<SettingsReader>,
    ) -> Result<Self, StartError> {
        let sockets = Sockets::open(&settings, Runtime::Shared(1))?;
        let (listeners, node) = (Listeners::new(settings.limits.connections), Node::new(settings)?);
        let reloader = Arc::new(Reloader::new(node.clone(), listeners, reader));
        let (stopper, stop) = stop::channel();
        let addresses = sockets.addresses.clone();
        let doors = start(&reloader, sockets, &stop)?;
        open_doors(&node, doors, &stop).await?;
        Ok(Self { addresses, node, stopper: Some(stopper), stop: Some(stop) })
    }

    /// The requests and connections at this moment: all zero when the node is idle.
    pub fn counts(&self) -> Counts {
        let outstanding = self.node.peers.as_ref().map_or(0, |peers| peers.outstanding());
        let sites = self.node.sites.load();
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
        let (misses, misses_waiting) = self.node.misses();
        Counts {
            misses,
            misses_waiting,
            switched,
            switch_waiting,
            in_flight: self.node.metrics.in_flight.get(),
            in_service: self.node.capacity.held(),
            outstanding,
            origin_connections_busy: busy,
            waiting,
            fills: self.node.cache.flights(),
            filling_bytes: self.node.cache.tiers.memory.bytes(),
            lent_bytes: self.node.cache.tiers.loans.bytes(),
            sending_files: self.node.cache.store.sending(),
        }
    }

    /// Ends the node in order, as a signal would.
    pub async fn stop(mut self) {
        if let (Some(stopper), Some(stop)) = (self.stopper.take(), self.stop.take()) {
            end(&self.node, stopper, stop).await;
        }
    }
}

/// The counts of a node at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests from their heads to the ends of their responses.
    pub in_flight: i64,
    /// Requests that this node serves itself.
    pub in_service: u32,
    /// Requests counted as outstanding at any node of the cluster.
    pub outstanding: u32,
    /// Connections to origins in use.
    pub origin_connections_busy: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Requests at origins, or about to be sent.
    pub misses: usize,
    /// Requests that wait to be sent to an origin.
    pub misses_waiting: usize,
    /// Requests at the servers of switches.
    pub switched: usize,
    /// Requests that wait for a server of a switch.
    pub switch_waiting: usize,
    /// Objects being fetched.
    pub fills: usize,
    /// Bytes of these objects received so far.
    pub filling_bytes: u64,
    /// Bytes of long bodies that readers hold.
    pub lent_bytes: u64,
    /// Sends from files of the disk tier, in mebibytes, rounded up.
    pub sending_files: usize,
}

/// Every socket of a node, opened before anything else so that a taken port is found at once.
struct Sockets {
    listeners: Vec<ListenerSockets>,
    admin: Option<StdAdminListener>,
    metrics: Option<StdAdminListener>,
    /// The listener for front-ends.
    control: Option<std::net::TcpListener>,
    addresses: Addresses,
    doors: Doors,
}

/// The listeners for clients and front-ends, which take no connections yet.
type Doors = Vec<std::net::TcpListener>;

impl Sockets {
    fn open(settings: &Settings, runtime: Runtime) -> Result<Self, StartError> {
        let workers = match runtime {
            Runtime::Shared(_) => 1,
            Runtime::PerCore(cores) => cores.max(1),
        };
        let mut sockets = Self {
            listeners: Vec::new(),
            admin: None,
            metrics: None,
            control: None,
            addresses: Addresses::default(),
            doors: Vec::new(),
        };
        let hands_over = hands_over(settings);
        for address in settings.listeners.iter().map(|listener| listener.address) {
            let opened = ListenerSockets::bind(address, workers, hands_over)?;
            sockets.addresses.clients.push(opened.address);
            sockets.doors.extend(opened.cloned()?);
            sockets.listeners.push(opened);
        }
        if let Some(peering) = &settings.peering {
            let opened = ListenerSockets::bind(peering.listen, workers, false)?;
            sockets.addresses.peers = Some(opened.address);
            opened.listen()?;
            sockets.listeners.push(opened);
        }
        if let Some(admin) = &settings.admin {
            let listener = listener::open_admin(admin)?;
            sockets.addresses.admin = listener.address();
            sockets.admin = Some(listener);
        }
        if let Some(address) = settings.metrics {
            let listener = listener::open(address)?;
            sockets.addresses.metrics = Some(local(&listener, address)?);
            sockets.metrics = Some(listener.into());
        }
        if let Some(backend) = settings.handoff.as_ref().and_then(|h| h.backend.as_ref()) {
            let listener = listener::bind(backend.listen, false)?;
            sockets.doors.push(cloned(&listener, backend.listen)?);
            sockets.control = Some(listener);
        }
        Ok(sockets)
    }
}

fn local(listener: &std::net::TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|why| StartError::Listen { address, why })
}

fn cloned(
    listener: &std::net::TcpListener,
    address: SocketAddr,
) -> Result<std::net::TcpListener, StartError> {
    listener.try_clone().map_err(|why| StartError::Listen { address, why })
}

fn build_runtime(runtime: Runtime) -> Result<runtime::Runtime, StartError> {
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
fn start(reloader: &Arc<Reloader>, sockets: Sockets, stop: &Stop) -> Result<Doors, StartError> {
    let node = &reloader.node;
    let mut runtimes = vec![runtime::Handle::current()];
    for index in 1..node.workers {
        runtimes.push(worker(index, stop)?);
    }
    reloader.listeners.start(node, runtimes, sockets.listeners, stop)?;
    for (pages, listener) in [(Pages::All, sockets.admin), (Pages::Metrics, sockets.metrics)] {
        let Some(listener) = listener else { continue };
        let listener = listener.start().map_err(StartError::Runtime)?;
        tokio::spawn(admin::serve(reloader.clone(), pages, listener, stop.clone()));
    }
    if let (Some(listener), Some(backend)) = (sockets.control, &node.backend) {
        let (node, backend, stop) = (node.clone(), backend.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = node.purging.until_serving() => {}
                () = stop.begun() => return,
            }
            if let Ok(listener) = TcpListener::from_std(listener) {
                levada_handoff::accept(node, backend, listener, stop).await;
            }
        });
    }
    tend(node, stop);
    Ok(sockets.doors)
}

/// Lets clients and front-ends in, when the node has learned what was purged while it was away.
async fn open_doors(node: &Arc<Node>, doors: Doors, stop: &Stop) -> Result<(), StartError> {
    let patience = node.settings().peering.as_ref().map_or(Duration::ZERO, |p| p.catch_up);
    members::settle(node, stop).await;
    node.purging.catch_up(patience).await;
    doors.iter().try_for_each(listener::listen)?;
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

/// Returns on a signal to stop. Until then it reloads on each HUP, and opens the access log anew on each
/// USR1.
async fn until_signalled(reloader: &Arc<Reloader>, stop: &Stop) {
    use unix::SignalKind;
    // The result is in the log and in the metrics.
    let reload = async || drop(reloader.reload(stop).await);
    let reopen = async || reloader.node.telemetry.log.load().iter().for_each(|log| log.reopen());
    tokio::select! {
        () = until_stopped() => {}
        () = on_each(SignalKind::hangup(), reload) => {}
        () = on_each(SignalKind::user_defined1(), reopen) => {}
    }
}

/// Never returns.
async fn on_each(kind: unix::SignalKind, act: impl AsyncFn()) {
    let Ok(mut signal) = unix::signal(kind) else { return std::future::pending().await };
    while signal.recv().await.is_some() {
        act().await;
    }
}

async fn until_stopped() {
    let mut signals: Vec<unix::Signal> =
        [unix::SignalKind::terminate(), unix::SignalKind::interrupt(), unix::SignalKind::quit()]
            .into_iter()
            .filter_map(|kind| unix::signal(kind).ok())
            .collect();
    std::future::poll_fn(|cx| match signals.iter_mut().any(|s| s.poll_recv(cx).is_ready()) {
        true => std::task::Poll::Ready(()),
        false => std::task::Poll::Pending,
    })
    .await;
}

/// How long the disk cache may take to write its queue and its index.
const DISK_TIMEOUT: Duration = Duration::from_secs(10);

/// Lets running requests end, within the drain timeout.
async fn end(node: &Arc<Node>, stopper: Stopper, stop: Stop) {
    let limit = node.settings().limits.drain_timeout;
    if let Some(route) = &node.route {
        route.end(node.clock.uptime()).await;
    }
    tracing::info!(limit = %format_duration(limit), "stopping: no new connections, waiting for running requests");
    stopper.begin();
    node.drain.rouse();
    drop(stop);
    if tokio::time::timeout(limit, stopper.done()).await.is_err() {
        tracing::warn!("the drain timeout is over: cutting the remaining connections");
    }
    if let Some(log) = node.telemetry.log.load_full() {
        log.close().await;
    }
    let closing = node.clone();
    let _ = tokio::task::spawn_blocking(move || closing.cache.store.close(DISK_TIMEOUT)).await;
}
