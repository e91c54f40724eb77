//! Response rate limiting: a client network gets so many responses over UDP in a second, whatever they say. So a flood
//! of queries with a forged sender never becomes a flood of responses to that sender. Some of the refused queries get a
//! truncated response, so that a client that exists can ask again over TCP, or with a cookie.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Responses in a second to one network (IPv4: /24, IPv6: /56), and at once after a second of rest; 0: no limit.
    pub responses: u16,
    /// Of so many refused queries one gets a truncated response; 0: none.
    pub slip: u16,
    /// The signatures in a second for all senders over UDP without a cookie; 0: no limit.
    pub signatures: u32,
}

/// The response that a query gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Its answer.
    Answer,
    /// A truncated response.
    Truncated,
    /// Nothing.
    Nothing,
}

/// The shares of all networks, in a table that does not grow. Each place is one word: the upper 16 bits of the
/// network's hash, the time in milliseconds, and the responses that are left.
pub struct Shares {
    places: Box<[AtomicU64]>,
    seed: RandomState,
    refused: AtomicU64,
}

const PLACES: usize = 1 << 16;
/// A network may be in any of as many places.
const WAYS: usize = 4;
/// A place that has rested for so long has its full share, and may be given away.
const RESTED: u32 = 1000;

impl Default for Shares {
    fn default() -> Self {
        let unused = Place { tag: 0, time: 0u32.wrapping_sub(2 * RESTED), left: 0 };
        let places = (0..PLACES).map(|_| AtomicU64::new(unused.pack())).collect();
        Self { places, seed: RandomState::new(), refused: AtomicU64::new(0) }
    }
}

#[derive(Clone, Copy)]
struct Place {
    tag: u16,
    time: u32,
    left: u16,
}

impl Place {
    fn unpack(word: u64) -> Self {
        Self { tag: (word >> 48) as u16, time: (word >> 16) as u32, left: word as u16 }
    }

    fn pack(self) -> u64 {
        u64::from(self.tag) << 48 | u64::from(self.time) << 16 | u64::from(self.left)
    }
}

impl Shares {
    /// Takes a response from the share of a client's network. `now` is in milliseconds and may wrap.
    pub fn take(&self, limit: RateLimit, client: IpAddr, now: u32) -> Share {
        if limit.responses == 0 || self.has_left(limit, client, now) {
            return Share::Answer;
        }
        let refused = self.refused.fetch_add(1, Relaxed);
        match limit.slip {
            0 => Share::Nothing,
            slip if refused.is_multiple_of(u64::from(slip)) => Share::Truncated,
            _ => Share::Nothing,
        }
    }

    fn has_left(&self, limit: RateLimit, client: IpAddr, now: u32) -> bool {
        let hash = self.seed.hash_one(network(client));
        let tag = (hash >> 48) as u16;
        let first = (hash as usize % PLACES) & !(WAYS - 1);
        let ways = &self.places[first..first + WAYS];
        let own = |place: &Place| place.tag == tag;
        let rested = |place: &Place| now.wrapping_sub(place.time) > RESTED;
        let find = |is: &dyn Fn(&Place) -> bool| {
            ways.iter().position(|word| is(&Place::unpack(word.load(Relaxed))))
        };
        // In a full table networks share places: their limit is never passed.
        let at = find(&own).or_else(|| find(&rested)).unwrap_or(usize::from(tag) % WAYS);
        let take = |word: u64| {
            let place = Place::unpack(word);
            if place.tag != tag && rested(&place) {
                return Some(Place { tag, time: now, left: limit.responses - 1 }.pack());
            }
            let place = refilled(place, limit.responses, now);
            let left = place.left.checked_sub(1)?;
            Some(Place { left, ..place }.pack())
        };
        ways[at].fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

/// The place with the responses that the time since its last change has brought.
fn refilled(place: Place, rate: u16, now: u32) -> Place {
    let (rate, passed) = (u64::from(rate), u64::from(now.wrapping_sub(place.time)));
    // Another thread's clock may be behind.
    if passed > u64::from(u32::MAX / 2) {
        return place;
    }
    let more = passed * rate / 1000;
    if more >= rate {
        return Place { time: now, left: rate as u16, ..place };
    }
    // Time that has brought nothing yet is not lost.
    let time = place.time.wrapping_add((more * 1000 / rate) as u32);
    Place { time, left: (u64::from(place.left) + more).min(rate) as u16, ..place }
}

/// The network of a client, as one number.
pub(crate) fn network(client: IpAddr) -> u128 {
    match client.to_canonical() {
        IpAddr::V4(v4) => u128::from(u32::from(v4) >> 8),
        IpAddr::V6(v6) => u128::from(v6) >> 72 | 1 << 127,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_gets_its_rate_and_no_more() {
        let (shares, limit) =
            (Shares::default(), RateLimit { responses: 10, slip: 0, signatures: 0 });
        let answers = |client: &str, times: std::ops::Range<u32>| {
            let client = client.parse().unwrap();
            times.filter(|now| shares.take(limit, client, *now) == Share::Answer).count()
        };
        assert_eq!(answers("192.0.2.1", 5000..5010), 10);
        assert_eq!(answers("192.0.2.99", 5010..5090), 0);
        assert_eq!(answers("192.0.3.1", 5010..5090), 10);
        assert_eq!(answers("2001:db8::1", 5010..5020), 10);
        assert_eq!(answers("2001:db8:0:0:1::1", 5020..5080), 0);
        // A flood of three seconds gets what three seconds bring.
        let flood = answers("192.0.2.1", 5090..8090);
        assert!((29..=31).contains(&flood), "{flood}");
    }

    #[test]
    fn one_of_some_refused_queries_gets_a_truncated_response() {
        let (shares, limit) =
            (Shares::default(), RateLimit { responses: 1, slip: 2, signatures: 0 });
        let client = "192.0.2.1".parse().unwrap();
        let got: Vec<_> = (0..5).map(|_| shares.take(limit, client, 5000)).collect();
        assert_eq!(
            got,
            [Share::Answer, Share::Truncated, Share::Nothing, Share::Truncated, Share::Nothing]
        );
        let off = RateLimit { responses: 0, ..limit };
        assert_eq!(shares.take(off, client, 5000), Share::Answer);
    }
}
