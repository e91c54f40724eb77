//! Whether a stored response may answer a request (RFC 9111, Sec. 4; RFC 5861; RFC 8246).

use crate::{cache_control::RequestDirectives, freshness::Freshness};
use std::time::SystemTime;

/// What to do with a request for which a response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// Answer from the store.
    Fresh {
        /// The value of `Age`.
        age: u32,
        /// Seconds until it becomes stale.
        ttl: i64,
    },
    /// Answer from the store although the response is stale; with
    /// [`Staleness::WhileRevalidate`], revalidate it at the same time.
    Stale {
        /// The value of `Age`.
        age: u32,
        /// Seconds until it becomes stale: negative.
        ttl: i64,
        /// What allows it.
        why: Staleness,
    },
    /// Ask the origin first; should it fail, [`serve_instead_of_error`] says what then.
    Validate,
    /// The client wants nothing from the origin and the store has nothing for it: answer 504.
    GatewayTimeout,
}

/// What allows a stale response to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// Within `stale-while-revalidate` (RFC 5861, Sec. 3).
    WhileRevalidate,
    /// Within `stale-if-error`, after an error (RFC 5861, Sec. 4).
    IfError,
    /// The client's `max-stale` (RFC 9111, Sec. 5.2.1.2).
    MaxStale,
}

impl Staleness {
    /// The name that logs and `Cache-Status` details print.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WhileRevalidate => "stale-while-revalidate",
            Self::IfError => "stale-if-error",
            Self::MaxStale => "max-stale",
        }
    }
}

/// Decides whether a stored response may answer a request at `now`.
///
/// Which stored response that is, by key and by [`crate::Vary`], the caller has settled before.
pub fn serve(freshness: &Freshness, request: &RequestDirectives, now: SystemTime) -> Serve {
    let decided = without_origin(freshness, request, now);
    decided.unwrap_or(if request.only_if_cached { Serve::GatewayTimeout } else { Serve::Validate })
}

/// Decides the same when nothing is stored: the origin, or 504 (Sec. 5.2.1.7).
pub fn serve_missing(request: &RequestDirectives) -> Serve {
    if request.only_if_cached { Serve::GatewayTimeout } else { Serve::Validate }
}

/// Whether the stored response may stand in after the origin could not be reached or answered with
/// 500, 502, 503 or 504 (RFC 5861, Sec. 4). The client's own `stale-if-error` widens the window.
pub fn serve_instead_of_error(
    freshness: &Freshness,
    request: &RequestDirectives,
    now: SystemTime,
) -> Option<Serve> {
    if freshness.forbids_stale() {
        return None;
    }
    let ttl = freshness.ttl_millis(now);
    let window = freshness.stale_if_error().max(request.stale_if_error.unwrap_or(0));
    let (age, seconds) = (freshness.age(now), freshness.ttl(now));
    if ttl > 0 {
        // Fresh, but the client wanted it confirmed: that the origin cannot is an error too.
        return (window > 0).then_some(Serve::Fresh { age, ttl: seconds });
    }
    let why = Staleness::IfError;
    within(ttl, window).then_some(Serve::Stale { age, ttl: seconds, why })
}

fn without_origin(
    freshness: &Freshness,
    request: &RequestDirectives,
    now: SystemTime,
) -> Option<Serve> {
    if request.no_cache || freshness.validates_always() {
        return None;
    }
    let ttl = freshness.ttl_millis(now);
    let (age, seconds) = (freshness.age(now), freshness.ttl(now));
    if ttl > 0 {
        return welcome(freshness, request, age, ttl).then_some(Serve::Fresh { age, ttl: seconds });
    }
    if freshness.forbids_stale() {
        return None;
    }
    let why = stale_use(freshness, request, ttl)?;
    young_enough(request, age).then_some(Serve::Stale { age, ttl: seconds, why })
}

/// Whether a fresh response is fresh enough for this client.
fn welcome(freshness: &Freshness, request: &RequestDirectives, age: u32, ttl: i64) -> bool {
    let lasts = request.min_fresh.is_none_or(|least| ttl >= i64::from(least) * 1000);
    // A reload asks with `max-age=0`; what is immutable needs no confirmation while it is fresh
    // (RFC 8246, Sec. 2).
    lasts && (freshness.is_immutable() || young_enough(request, age))
}

fn young_enough(request: &RequestDirectives, age: u32) -> bool {
    request.max_age.is_none_or(|most| age <= most)
}

fn stale_use(freshness: &Freshness, request: &RequestDirectives, ttl: i64) -> Option<Staleness> {
    if request.max_stale.is_some_and(|most| within(ttl, most)) {
        return Some(Staleness::MaxStale);
    }
    // Who asks for a bound on the age or for a rest of freshness wants nothing stale (Sec. 5.2.1).
    let unwelcome = request.max_age.is_some() || request.min_fresh.is_some();
    let window = freshness.stale_while_revalidate();
    (!unwelcome && within(ttl, window)).then_some(Staleness::WhileRevalidate)
}

/// Whether a response that became stale `-ttl` milliseconds ago is within a window of seconds.
fn within(ttl: i64, window: u32) -> bool {
    window > 0 && -ttl <= i64::from(window) * 1000
}
