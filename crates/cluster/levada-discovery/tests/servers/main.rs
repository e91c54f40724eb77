//! Sources at real servers: three servers of etcd, and an API server of Kubernetes.
//!
//! etcd is taken from the PATH (Debian: etcd-server). The tests of Kubernetes need a `kube-apiserver`, by the PATH
//! or by `LEVADA_KUBE_APISERVER`; without one they say that they are left out.

mod api_server;
mod certificates;
mod etcd;
mod etcd_servers;
mod kubernetes;
mod request;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use levada_discovery::{Discovery, DiscoveryMetrics, Followed, ResolverSettings, Source};
use levada_observe::metrics::Registry;

/// A bound for everything that happens soon, on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Follows one source.
fn follow(source: Source) -> (Discovery, Arc<Followed>) {
    let metrics = DiscoveryMetrics::registered(&mut Registry::default());
    let discovery = Discovery::new(ResolverSettings::default(), metrics);
    let followed = discovery.follow(&source, "source");
    (discovery, followed)
}

/// Waits until the members are these, each `NAME ADDRESS` or `NAME ADDRESS WEIGHT`.
async fn members_become(followed: &Followed, expected: &[&str]) {
    wait(&format!("members {expected:?}"), || {
        let members = members(followed);
        if members == expected {
            Ok(())
        } else {
            Err(format!("{members:?}, {:?}", followed.failure()))
        }
    })
    .await;
}

fn members(followed: &Followed) -> Vec<String> {
    let members = followed.members();
    let shown = members.iter().map(|member| match member.weight {
        1.0 => format!("{} {}", member.name, member.address),
        weight => format!("{} {} {weight}", member.name, member.address),
    });
    shown.collect()
}

/// Waits until the source fails for a reason with this text.
async fn failure_becomes(followed: &Followed, text: &str) {
    wait(&format!("failure {text:?}"), || match followed.failure() {
        Some(failure) if failure.contains(text) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Waits until the source does not fail.
async fn success_returns(followed: &Followed) {
    wait("no failure", || followed.failure().map_or(Ok(()), Err)).await;
}

async fn wait(what: &str, is_done: impl Fn() -> Result<(), String>) {
    let end = Instant::now() + TEST_TIMEOUT;
    while let Err(state) = is_done() {
        assert!(Instant::now() < end, "waited for {what}, there is {state}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Addresses that are free. Outgoing connections are from 127.0.0.1, so none of them takes such an address before
/// its server does.
fn reserve(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let candidate = || {
        let next = std::process::id() * 97 + NEXT.fetch_add(1, Relaxed);
        SocketAddr::from((Ipv4Addr::new(127, 1, 2, 4), 10_000 + (next % 20_000) as u16))
    };
    let free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    std::iter::repeat_with(candidate).filter(free).take(count).collect()
}
