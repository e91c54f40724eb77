//! Certificates by themselves: real nodes, a real server of ACME (pebble), and what goes wrong.
//!
//! Without pebble the tests say that they are left out.

mod client;
mod files;
mod node;
mod orders;
mod pebble;
mod trouble;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use pebble::{Pebble, PebbleSettings};

/// A bound for everything that happens soon, on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "waited for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Addresses that no other test and no other process has, so that ports can be the usual ones.
fn addresses<const N: usize>() -> [IpAddr; N] {
    static NEXT: AtomicU8 = AtomicU8::new(100);
    let [.., high, low] = std::process::id().to_be_bytes();
    std::array::from_fn(|_| {
        IpAddr::V4(Ipv4Addr::new(127, NEXT.fetch_add(1, Relaxed), high, low.max(1)))
    })
}

/// A server whose certificates live so many seconds, and which asks `node` about names.
fn pebble(node: IpAddr, life: u64) -> Option<Pebble> {
    let [at] = addresses();
    Pebble::start(at, node, PebbleSettings { life, external: false })
}

const DAY: u64 = 86_400;
