//! Round trips to networks of clients, as the kernel has measured them for their connections.
//!
//! A connection is looked at when it has paused after a write, which the watch for dormant clients does anyway: a request
//! costs nothing for it.

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Smoothed round trips of at most 4,096 networks: IPv4 /24, IPv6 /48.
#[derive(Default)]
pub struct ClientRoundTrips(Mutex<HashMap<IpAddr, RoundTrip>>);

struct RoundTrip {
    smoothed: Duration,
    at: Instant,
}

/// The query of a probe of a peer that wants to know them.
pub const ROUND_TRIPS: &str = "round-trips";
/// The most networks that are remembered,
const MOST: usize = 4096;
/// and the ones that a peer gets: some 30 KB.
const TOLD: usize = 1024;
/// A network without a connection for so long is forgotten.
const KEPT: Duration = Duration::from_secs(3600);

impl ClientRoundTrips {
    /// Notes a round trip to a client. When there is no room, a network that is not known is left out.
    pub fn note(&self, client: IpAddr, trip: Duration) {
        let (network, at) = (network(client), Instant::now());
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(&network) {
            // As RFC 6298 smooths: one eighth of the difference.
            known.smoothed = (known.smoothed * 7 + trip) / 8;
            known.at = at;
            return;
        }
        if all.len() >= MOST {
            all.retain(|_, known| at - known.at < KEPT);
        }
        if all.len() < MOST {
            all.insert(network, RoundTrip { smoothed: trip, at });
        }
    }

    /// A line for each network that was seen last, if the query of a probe asks for them: the network, and its
    /// microseconds.
    pub fn told(&self, query: Option<&str>) -> String {
        let mut text = String::new();
        if query != Some(ROUND_TRIPS) {
            return text;
        }
        let now = Instant::now();
        let all = self.0.lock();
        let mut last: Vec<_> = all.iter().filter(|(_, known)| now - known.at < KEPT).collect();
        last.sort_by_key(|(_, known)| std::cmp::Reverse(known.at));
        for (network, RoundTrip { smoothed, .. }) in last.into_iter().take(TOLD) {
            let length = if network.is_ipv4() { 24 } else { 48 };
            let _ = writeln!(text, "{network}/{length} {}", smoothed.as_micros());
        }
        text
    }
}

fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn networks_are_smoothed_told_and_forgotten_within_bounds() {
        let trips = ClientRoundTrips::default();
        let note =
            |client: &str, ms| trips.note(client.parse().unwrap(), Duration::from_millis(ms));
        note("192.0.2.7", 80);
        tokio::time::advance(Duration::from_secs(1)).await;
        note("192.0.2.9", 160);
        note("::ffff:192.0.2.9", 90);
        tokio::time::advance(Duration::from_secs(1)).await;
        note("2001:db8:1:2::3", 20);
        let told = "2001:db8:1::/48 20000\n192.0.2.0/24 90000\n";
        assert_eq!(trips.told(Some(ROUND_TRIPS)), told);
        assert_eq!(trips.told(None), "");
        for at in 0..MOST as u32 {
            trips.note(Ipv4Addr::from_bits(at << 8).into(), Duration::from_millis(1));
        }
        assert_eq!(trips.0.lock().len(), MOST);
        assert_eq!(trips.told(Some(ROUND_TRIPS)).lines().count(), TOLD);
        tokio::time::advance(KEPT).await;
        assert_eq!(trips.told(Some(ROUND_TRIPS)), "");
        note("198.51.100.1", 5);
        assert_eq!(trips.0.lock().len(), 1);
    }
}
