//! Fleets of real processes: the state kept by a node, or in the real etcd.

mod api;
#[path = "../page/browser.rs"]
#[allow(dead_code)]
mod browser;
mod certificates;
#[path = "../acme/client.rs"]
#[allow(dead_code)]
mod client;
mod clocks;
#[path = "../members/etcd.rs"]
#[allow(dead_code)]
mod etcd;
mod orders;
mod page;
#[path = "../acme/pebble.rs"]
#[allow(dead_code)]
mod pebble;
mod trouble;
mod world;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::Child,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// A bound for everything that happens soon, on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait(what: &str, is_done: impl Fn() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !is_done() {
        assert!(Instant::now() < end, "waited for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// An address that is free. Outgoing connections are from 127.0.0.1, so none of them takes it before its server.
fn reserve() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let candidate = || {
        let next = std::process::id() * 97 + NEXT.fetch_add(1, Relaxed);
        SocketAddr::from((Ipv4Addr::new(127, 1, 2, 6), 10_000 + (next % 20_000) as u16))
    };
    let is_free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    std::iter::repeat_with(candidate).find(is_free).unwrap()
}
