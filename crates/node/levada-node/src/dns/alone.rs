//! A process that is nothing but a name server, by the configuration of the nodes.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use levada_cluster::nodes::{PeerSources, Peers};
use levada_config::{Settings, SettingsReader, server_bounds};
use levada_discovery::{Discovery, DiscoveryMetrics};
use levada_net::{
    listening::ACCEPT_BACKOFF,
    signals::Signals,
    stop::{self, Stop},
};
use levada_observe::metrics::{PageFormat, Registry};
use levada_upstream::Clock;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::{DnsSockets, NameServer, watch};
use crate::{
    run::build_runtime,
    start_error::StartError,
    upgrade::{PassedSockets, become_user, systemd},
};

/// Runs a name server until TERM, INT or QUIT. On HUP it takes over the zones and nodes that `reader` reads. Serves its
/// metrics at the address `metrics`, if there is one.
///
/// # Errors
/// When the settings have no name server, or an address cannot be used.
pub fn run(
    settings: Settings,
    reader: SettingsReader,
    metrics: Option<SocketAddr>,
) -> Result<(), StartError> {
    let Some(dns) = settings.dns.clone() else { return Err(StartError::NoDns) };
    let sockets = DnsSockets::open(&dns, true, &mut PassedSockets::default())?;
    become_user(&settings, &reader)?;
    build_runtime(settings.runtime)?.block_on(async move {
        let (stopper, stop) = stop::channel();
        let mut signals = Signals::register();
        let peers = peers(&settings)?;
        let metrics_of_sources = DiscoveryMetrics::registered(&mut Registry::default());
        let discovery = Discovery::new(settings.discovery.resolver.clone(), metrics_of_sources);
        let sources = Mutex::new(sources(&settings, &discovery));
        let name_server = NameServer::start(&settings, &dns, sockets, &stop)?;
        let name_server = Arc::new(name_server);
        if let Some(peers) = &peers {
            let watching = watch(peers.clone(), name_server.server.clone(), None, false);
            tokio::spawn(watching);
        }
        if let Some(address) = metrics {
            let listener = TcpListener::bind(address).await.map_err(StartError::Runtime)?;
            tokio::spawn(serve_metrics(name_server.clone(), listener, stop.clone()));
        }
        systemd::ready();
        for address in &dns.listen {
            tracing::info!(%address, zones = dns.world.zones.len(), "ready for DNS queries");
        }
        let settings = Mutex::new(settings);
        let alone = Alone { settings, reader, name_server, peers, discovery, sources };
        let alone = Arc::new(alone);
        tokio::spawn(follow(alone.clone()));
        let reload = async || {
            systemd::reloading();
            // It reads files.
            let reloading = alone.clone();
            let result = tokio::task::spawn_blocking(move || reloading.reload()).await;
            match result.map_err(|error| error.to_string()).flatten() {
                Ok(zones) => tracing::info!(zones, "reloaded"),
                Err(reason) => {
                    tracing::error!("reload failed, the previous settings stay in use:\n{reason}");
                }
            }
            systemd::ready();
        };
        signals.until_stopped(reload, async || {}, async || {}).await;
        systemd::stopping();
        stopper.begin();
        alone.name_server.end();
        Ok(())
    })
}

/// A name server without a node.
struct Alone {
    settings: Mutex<Settings>,
    reader: SettingsReader,
    name_server: Arc<NameServer>,
    peers: Option<Arc<Peers>>,
    discovery: Discovery,
    sources: Mutex<PeerSources>,
}

impl Alone {
    /// Takes over other settings: all of them or none. Returns the number of zones.
    fn reload(&self) -> Result<usize, String> {
        let settings = (self.reader.0)()?;
        let mut before = self.settings.lock();
        levada_config::changes::between(&before, &settings)?;
        let Some(dns) = &settings.dns else { return Err(StartError::NoDns.to_string()) };
        if let Some((peers, peering)) = self.peers.as_ref().zip(settings.peering.as_ref()) {
            let sources = sources(&settings, &self.discovery);
            let nodes = sources.observed(&settings.name, peering);
            peers.change(&nodes).map_err(|error| error.to_string())?;
            *self.sources.lock() = sources;
        }
        self.name_server.change(&settings, dns);
        let zones = dns.world.zones.len();
        *before = settings;
        Ok(zones)
    }
}

/// The sources of the nodes.
fn sources(settings: &Settings, discovery: &Discovery) -> PeerSources {
    let Some(peering) = &settings.peering else { return PeerSources::default() };
    PeerSources::follow("", peering, &settings.discovery, discovery)
}

/// Goes on with the nodes that sources name, for ever.
async fn follow(alone: Arc<Alone>) {
    loop {
        let changed = alone.discovery.changed().await;
        let following = alone.clone();
        let change = move || {
            let settings = following.settings.lock();
            let sources = following.sources.lock();
            let both = following.peers.as_ref().zip(settings.peering.as_ref());
            let Some((peers, peering)) = both.filter(|_| sources.are_among(&changed)) else {
                return;
            };
            if let Err(error) = peers.change(&sources.observed(&settings.name, peering)) {
                tracing::error!("the nodes of the cluster stay as they are: {error}");
            }
        };
        // It reads certificates.
        let _ = tokio::task::spawn_blocking(change).await;
    }
}

/// The nodes of the cluster: this process is none of them, though the configuration may be that of one.
fn peers(settings: &Settings) -> Result<Option<Arc<Peers>>, StartError> {
    let Some(peering) = &settings.peering else { return Ok(None) };
    let nodes = PeerSources::default().observed(&settings.name, peering);
    let peers = Peers::observer(&nodes, server_bounds(&settings.limits), Clock::start());
    Ok(Some(peers.map_err(StartError::Peers)?))
}

async fn serve_metrics(name_server: Arc<NameServer>, listener: TcpListener, stop: Stop) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.begun() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let name_server = name_server.clone();
        tokio::spawn(async move {
            let page = service_fn(|request: Request<Incoming>| {
                let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
                let format = PageFormat::accepted(accept.unwrap_or_default());
                let page = format.page(&name_server.read_metrics());
                let mut response = Response::new(Full::new(Bytes::from(page)));
                let kind = HeaderValue::from_static(format.content_type());
                response.headers_mut().insert(CONTENT_TYPE, kind);
                async { Ok::<_, Infallible>(response) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), page)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "connection for metrics");
            }
        });
    }
}
