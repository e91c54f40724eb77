//! A small world: scripted origins, clients that send exact bytes, nodes on loopback.

pub(crate) mod client;
pub(crate) mod dns;
pub(crate) mod nodes;
pub(crate) mod origin;
pub(crate) mod quic;
pub(crate) mod secure;

use std::{future::Future, time::Duration};

use levada_node::{Counts, Running};

pub(crate) use client::{Answer, Wire, connect_from, get, get_with, head_of};
pub(crate) use nodes::{alone, single, start};
pub(crate) use origin::{Gate, Origin, Piece, Reply, SlowLink};

/// The host of the site that every test node serves.
pub(crate) const HOST: &str = "a.test";

/// Long, so that a busy machine does not fail a test; no test waits for all of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The result of `future`, which must be ready in time.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("done in time")
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn eventually(
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !condition() {
            assert!(tokio::time::Instant::now() < deadline, "never: {what} ({caller})");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits until all counts of a node are zero.
#[track_caller]
pub(crate) fn settled(node: &Running) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while node.counts() != Counts::default() {
            let counts = node.counts();
            assert!(tokio::time::Instant::now() < deadline, "left over: {counts:?} ({caller})");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
