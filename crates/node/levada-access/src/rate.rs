//! Limits of request rates, with the meaning of nginx's `limit_req`: a leaky bucket for each key.
//!
//! A bucket is one instant, the time at which it is empty: the Generic Cell Rate Algorithm (ITU-T I.371,
//! Annex A), which decides as nginx does, with nanoseconds in place of milliseconds.
//!
//! ```text
//!   excess = time until the bucket is empty / time between two requests at the rate
//!   excess > burst      the request is refused
//!   otherwise           it waits until its turn (or not, by `nodelay`), and fills the bucket by one
//! ```
//!
//! An empty bucket is as good as none, so the table forgets it without a change of any decision. A table
//! with no empty bucket left in the set of a new key forgets the bucket that is empty soonest. A client
//! that uses many keys to fill the table therefore frees the keys that are nearest to freedom, and the keys with
//! the most excess stay limited.

use std::{fmt, str::FromStr, time::Duration};

use parking_lot::Mutex;

/// A rate in nginx's words: `10r/s`, or `30r/m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    requests: u32,
    /// A minute rather than a second.
    per_minute: bool,
}

/// The text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected requests per second or minute, such as 10r/s or 30r/m")]
pub struct NoRate;

/// The bounds of one key's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateBounds {
    /// Requests per time.
    pub rate: RequestRate,
    /// Requests that may come sooner than the rate allows.
    pub burst: u32,
    /// Whether requests within the burst go on at once, instead of at the rate.
    pub nodelay: bool,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// It goes on after this time, which is mostly zero.
    Pass {
        /// The time until its turn.
        wait: Duration,
    },
    /// It is refused.
    Refused {
        /// The time after which a request of this key passes.
        retry: Duration,
    },
}

/// The buckets of the keys of one limit. Its size is fixed.
pub struct RateTable {
    sets: Box<[Mutex<[Bucket; WAYS]>]>,
}

/// The buckets of one set: the places that a key may have.
const WAYS: usize = 8;

#[derive(Clone, Copy, Default)]
struct Bucket {
    key: u64,
    /// The time at which it is empty, in nanoseconds. 0 marks a place that was never used.
    empty_at: u64,
}

impl RequestRate {
    /// The time between two requests at the rate, where `nodes` nodes share it.
    fn interval(self, nodes: u32) -> u64 {
        self.period().as_nanos() as u64 / u64::from(self.requests) * u64::from(nodes.max(1))
    }

    fn period(self) -> Duration {
        Duration::from_secs(if self.per_minute { 60 } else { 1 })
    }
}

impl RateBounds {
    /// The burst of one of `nodes` nodes.
    fn burst_of(&self, nodes: u32) -> u64 {
        u64::from(self.burst.div_ceil(nodes.max(1)))
    }

    /// The requests that pass at once after a pause, and the time of that pause in whole seconds.
    pub fn quota(&self, nodes: u32) -> (u64, u64) {
        let quota = self.burst_of(nodes) + 1;
        let window = quota.saturating_mul(self.rate.interval(nodes));
        (quota, window.div_ceil(SECOND).max(1))
    }
}

const SECOND: u64 = 1_000_000_000;

impl RateTable {
    /// A table with room for at least `keys` keys.
    pub fn new(keys: usize) -> Self {
        let sets = keys.div_ceil(WAYS).max(1);
        Self { sets: (0..sets).map(|_| Mutex::default()).collect() }
    }

    /// Decides about a request of `key` at the time `now`, and counts it if it passes. `key` is a hash that
    /// clients cannot predict; `nodes` share the rate and the burst.
    pub fn admit(&self, key: u64, now: u64, bounds: &RateBounds, nodes: u32) -> RateVerdict {
        let interval = bounds.rate.interval(nodes);
        let most = bounds.burst_of(nodes).saturating_mul(interval);
        let mut set = self.sets[(key % self.sets.len() as u64) as usize].lock();
        let bucket = place(&mut set, key);
        let excess = bucket.empty_at.saturating_sub(now);
        if excess > most {
            return RateVerdict::Refused { retry: Duration::from_nanos(excess - most) };
        }
        bucket.empty_at = now + excess + interval;
        let wait = if bounds.nodelay { 0 } else { excess };
        RateVerdict::Pass { wait: Duration::from_nanos(wait) }
    }
}

/// The bucket of `key`: its own, or else the one that is empty soonest.
fn place(set: &mut [Bucket; WAYS], key: u64) -> &mut Bucket {
    let own = set.iter().position(|bucket| bucket.key == key);
    let soonest = || (0..WAYS).min_by_key(|at| set[*at].empty_at).unwrap_or_default();
    let at = own.unwrap_or_else(soonest);
    if own.is_none() {
        set[at] = Bucket { key, empty_at: 0 };
    }
    &mut set[at]
}

impl fmt::Debug for RateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateTable").field("keys", &(self.sets.len() * WAYS)).finish()
    }
}

impl FromStr for RequestRate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let (number, per_minute) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
            (Some(number), _) => (number, false),
            (None, Some(number)) => (number, true),
            (None, None) => return Err(NoRate),
        };
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let requests = number.parse().ok().filter(|n| digits && (1..=MOST).contains(n));
        Ok(Self { requests: requests.ok_or(NoRate)?, per_minute })
    }
}

/// The highest rate that a limit may have.
const MOST: u32 = 1_000_000;

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}r/{}", self.requests, if self.per_minute { 'm' } else { 's' })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const PASS: RateVerdict = RateVerdict::Pass { wait: Duration::ZERO };

    fn bounds(rate: &str, burst: u32, nodelay: bool) -> RateBounds {
        RateBounds { rate: rate.parse().unwrap(), burst, nodelay }
    }

    #[test]
    fn requests_pass_at_the_rate_and_wait_within_the_burst() {
        let (table, bounds) = (RateTable::new(8), bounds("10r/s", 2, false));
        let at = |ms: u64| table.admit(1, SECOND + ms * MS, &bounds, 1);
        let wait = |ms| RateVerdict::Pass { wait: Duration::from_millis(ms) };
        assert_eq!(at(0), PASS);
        assert_eq!(at(0), wait(100));
        assert_eq!(at(0), wait(200));
        assert_eq!(at(0), RateVerdict::Refused { retry: Duration::from_millis(100) });
        assert_eq!(at(100), wait(200), "a refused request fills nothing");
        assert_eq!(at(1000), PASS);
    }

    #[test]
    fn burst_passes_at_once_with_nodelay_and_fills_again_at_the_rate() {
        let (table, bounds) = (RateTable::new(8), bounds("60r/m", 3, true));
        let at = |seconds: u64| table.admit(1, seconds * SECOND, &bounds, 1);
        for _ in 0..4 {
            assert_eq!(at(10), PASS);
        }
        assert_eq!(at(10), RateVerdict::Refused { retry: Duration::from_secs(1) });
        assert_eq!((at(11), at(12)), (PASS, PASS));
        assert!(matches!(at(12), RateVerdict::Refused { .. }));
        assert_eq!(bounds.quota(1), (4, 4));
    }

    #[test]
    fn nodes_share_rate_and_burst() {
        let (table, bounds) = (RateTable::new(8), bounds("10r/s", 4, true));
        let passed = (0..10).filter(|_| table.admit(1, SECOND, &bounds, 2) == PASS).count();
        assert_eq!(passed, 3, "one at the rate, and half of the burst");
        assert_eq!(table.admit(1, SECOND + 200 * MS, &bounds, 2), PASS);
        assert_ne!(table.admit(1, SECOND + 300 * MS, &bounds, 2), PASS);
    }

    #[test]
    fn full_table_forgets_the_keys_that_are_free_soonest() {
        let (table, bounds) = (RateTable::new(1), bounds("1r/s", 5, true));
        for _ in 0..6 {
            assert_eq!(table.admit(7, SECOND, &bounds, 1), PASS);
        }
        for key in 100..10_000 {
            assert_eq!(table.admit(key, SECOND, &bounds, 1), PASS);
        }
        assert!(matches!(table.admit(7, SECOND, &bounds, 1), RateVerdict::Refused { .. }));
        assert_eq!(table.sets.len() * WAYS, 8, "it has not grown");
    }

    #[test]
    fn ten_thousand_keys_take_the_room_that_the_limit_has_from_the_beginning() {
        let (table, bounds) = (RateTable::new(1024), bounds("1r/s", 0, true));
        let places = |table: &RateTable| table.sets.iter().map(|set| set.lock().len()).sum();
        let before: usize = places(&table);
        for number in 0..10_000_u64 {
            let key = levada_types::hash64(&number.to_be_bytes());
            assert_eq!(table.admit(key, SECOND, &bounds, 1), PASS);
        }
        assert_eq!((before, places(&table)), (1024, 1024));
        assert_eq!(size_of::<Bucket>(), 16);
    }

    #[test]
    fn rate_is_a_number_of_requests_per_second_or_minute() {
        for text in ["1r/s", "10r/s", "30r/m", "1000000r/s"] {
            assert_eq!(text.parse::<RequestRate>().unwrap().to_string(), text);
        }
        for text in ["", "10", "r/s", "0r/s", "-1r/s", "+1r/s", "1.5r/s", "10r/h", "10 r/s"] {
            assert_eq!(text.parse::<RequestRate>(), Err(NoRate), "{text}");
        }
    }
}
