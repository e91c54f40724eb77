//! Replaces the process of a running node: the part of the old process, and the part of the new one.
//! docs/operate/upgrade.md has the steps in order.

use std::{io, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use levada_cluster::orders::{self, ORDERS, OrderWay, PurgeEndpoint};
use levada_cluster::purge::PendingStore;
use levada_edge::node::Node;
use levada_net::stop::Stop;
use levada_upstream::{ClientBody, OtherBodyError};
use tokio::task::spawn_blocking;

use crate::{
    reload::Reloader,
    start_error::StartError,
    upgrade::{
        LetGo, NotUpgraded, PassedSockets, Predecessor, Successor, SuccessorFailed, UpgradePhase,
        Upgraded, entries, systemd,
    },
};
use levada_config::Settings;

/// Replaces this process. Goes on when the operator goes away.
pub(crate) async fn upgrade(
    reloader: &Arc<Reloader>,
    binary: Option<PathBuf>,
    stop: &Stop,
) -> Result<Upgraded, NotUpgraded> {
    let (reloader, stop) = (reloader.clone(), stop.clone());
    let upgrading = tokio::spawn(async move {
        let result = replaced(&reloader, binary, &stop).await;
        reloader.upgrades.starts(None);
        match &result {
            Ok(upgraded) => {
                tracing::info!(?upgraded, "another process has taken over");
                reloader.node.events.upgraded(upgraded.old, upgraded.new);
            }
            Err(error) => tracing::error!(%error, "not upgraded, this process goes on"),
        }
        result
    });
    upgrading.await.map_err(io::Error::from)?
}

async fn replaced(
    reloader: &Arc<Reloader>,
    binary: Option<PathBuf>,
    stop: &Stop,
) -> Result<Upgraded, NotUpgraded> {
    let Ok(_turn) = reloader.node.changing.try_lock() else { return Err(NotUpgraded::Busy) };
    let (node, upgrades) = (&reloader.node, &reloader.upgrades);
    if stop.has_begun() || upgrades.has_succeeded() {
        return Err(NotUpgraded::Busy);
    }
    let program = upgrades.program(binary.as_deref())?;
    tracing::info!("starting the process that is to take over");
    let (offered, sockets) = reloader.listeners.offered()?;
    let disk = node.settings().cache.disk.as_ref().map(|disk| disk.path.clone());
    let start = move || Successor::start(&program, offered, &sockets, disk);
    let successor = blocking(start).await?;
    upgrades.starts(Some(successor.process()));
    let new = successor.pid();
    let (successor, prepared) = step(successor, Successor::prepared).await?;
    let mut orders = node.purging.place.pause().await;
    let purges = node.cache.purges.let_go().await?;
    let store = node.cache.store.clone();
    blocking(move || store.close()).await;
    let opened = match step(successor, move |successor| successor.let_go(purges)).await {
        Ok((ready, ())) => {
            reloader.listeners.close(&prepared.taken);
            systemd::succeeded_by(new);
            step(ready, Successor::open).await
        }
        Err(error) => Err(error),
    };
    let mut successor = match opened {
        Ok((serving, ())) => serving,
        Err(error) => {
            take_back(reloader, stop).await;
            return Err(error.into());
        }
    };
    reloader.listeners.close_others();
    node.cache.purges.retire();
    let keys = node.cache.store.end_memory();
    if let Some(socket) = successor.orders.take() {
        *orders = Some(OrderWay::by(socket).await?);
    }
    drop(orders);
    node.drain.leave();
    upgrades.is_at(UpgradePhase::Succeeded);
    let moving = node.clone();
    let moved = step(successor, move |successor| {
        if prepared.memory {
            let store = &moving.cache.store;
            // Without a disk tier, running downloads find the rest of their bodies only here.
            let keeps_blocks = || !store.has_disk() && moving.drain.running() > 0;
            entries::send(store, &moving.cache.purges, &keys, keeps_blocks, &successor.entries);
        }
        successor.taken_over()
    });
    let moved = moved.await;
    upgrades.is_at(UpgradePhase::Over);
    Ok(Upgraded { old: std::process::id(), new, taken: moved?.1 })
}

/// Goes on when the new process has failed after this one had let go.
async fn take_back(reloader: &Arc<Reloader>, stop: &Stop) {
    let node = &reloader.node;
    systemd::succeeded_by(std::process::id());
    reloader.listeners.open_again(node, stop);
    let store = node.cache.store.clone();
    if let Err(error) = blocking(move || store.reopen()).await {
        tracing::error!(%error, "this node goes on without its disk cache");
    }
    node.cache.purges.take_back().await;
}

/// Runs a step on a thread for blocking calls.
async fn step<T: Send + 'static>(
    mut successor: Successor,
    act: impl FnOnce(&mut Successor) -> Result<T, SuccessorFailed> + Send + 'static,
) -> Result<(Successor, T), SuccessorFailed> {
    blocking(move || act(&mut successor).map(|result| (successor, result))).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The inheritance of a process from the one before it.
pub(crate) struct Inheritance {
    predecessor: Predecessor,
    /// The old process has let go in order, so that nothing was missed since.
    pub(crate) is_complete: bool,
    /// Keeps the rules that cover entries which are still on their way.
    pending: Option<PendingStore>,
}

impl Inheritance {
    /// `sockets` are those of the old process that this one has not taken.
    pub(crate) fn of(mut predecessor: Predecessor, sockets: PassedSockets) -> Self {
        predecessor.sockets = sockets;
        Self { predecessor, is_complete: false, pending: None }
    }

    /// Says that all is prepared that can fail, and waits until the old process lets go. Returns the state of
    /// its purges, if there is no disk tier that has it.
    pub(crate) fn take(&mut self, settings: &Settings) -> Result<Option<String>, StartError> {
        let disk = settings.cache.disk.as_ref().map(|disk| &disk.path);
        // Entries of another era would be dead.
        let memory = disk.is_none() || disk == self.predecessor.disk.as_ref();
        match self.predecessor.prepared(memory)? {
            LetGo::Now(purges) => {
                self.is_complete = true;
                Ok(purges)
            }
            LetGo::Gone => {
                tracing::warn!(
                    "the process that was to be replaced has ended: going on without it"
                );
                Ok(None)
            }
        }
    }

    /// Says that this node can accept connections, and waits until the old process accepts none.
    pub(crate) fn ready(&mut self, node: &Node) {
        self.pending = Some(node.cache.purges.begin());
        self.predecessor.ready();
    }

    /// Takes over what the old process still has, while this one serves.
    pub(crate) fn serving(mut self, reloader: Arc<Reloader>) {
        self.predecessor.serving();
        if let Some(socket) = self.predecessor.orders.take() {
            let purging = reloader.node.purging.clone();
            tokio::spawn(orders::serve(socket, move |request| order(purging.clone(), request)));
        }
        spawn_blocking(move || {
            // No upgrade of this process meanwhile.
            let _turn = reloader.node.changing.blocking_lock();
            let (cache, pending) = (&reloader.node.cache, self.pending.as_ref());
            let Some(way) = self.predecessor.entries.take() else { return };
            let taken = entries::receive(&cache.store, &cache.purges, pending, way);
            tracing::info!(objects = taken.objects, bytes = taken.bytes, "taken over");
            reloader.node.metrics.takeover_objects.set(taken.objects as i64);
            self.predecessor.took_over(&taken);
        });
    }
}

/// Carries out an order that the former process passes on.
async fn order(
    purging: Arc<PurgeEndpoint>,
    request: Request<Incoming>,
) -> http::Response<Full<Bytes>> {
    let is_order = request.method() == Method::POST && request.uri().path() == ORDERS;
    let answer = match is_order {
        true => purging.handle_operator(request, true).await,
        false => {
            let boxed =
                |body: Incoming| ClientBody::Other(Box::pin(body.map_err(OtherBodyError::from)));
            purging.handle_peer(request.map(boxed)).await
        }
    };
    answer.into_response(|text| Full::new(Bytes::from(text)))
}
