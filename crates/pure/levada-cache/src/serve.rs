//! The reuse of stored responses (RFC 9111, Sec. 4; RFC 5861; RFC 8246).

use crate::{cache_control::RequestDirectives, freshness::Freshness};
use http::StatusCode;
use std::time::SystemTime;

/// How to answer a request for which a response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeDecision {
    /// Serve the stored response.
    Fresh {
        /// The value of `Age`.
        age: u32,
        /// Seconds until it becomes stale.
        ttl: i64,
    },
    /// Serve the stored response although it is stale. With [`Staleness::WhileRevalidate`],
    /// revalidate it at the same time.
    Stale {
        /// The value of `Age`.
        age: u32,
        /// Seconds until it becomes stale, which is negative.
        ttl: i64,
        /// The reason why it may be served.
        why: Staleness,
    },
    /// Validate with the origin first. If the origin fails, call [`serve_instead_of_error`].
    Validate,
    /// The client accepts only a stored response, and none can be used: answer 504.
    GatewayTimeout,
}

/// The reason why a stale response may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staleness {
    /// Within `stale-while-revalidate` (RFC 5861, Sec. 3).
    WhileRevalidate,
    /// Within `stale-if-error`, after an error (RFC 5861, Sec. 4).
    IfError,
    /// Within the site's window for an origin that cannot be reached (RFC 9111, Sec. 4.2.4).
    Unreachable,
    /// The client's `max-stale` (RFC 9111, Sec. 5.2.1.2).
    MaxStale,
}

impl Staleness {
    /// The name that logs and `Cache-Status` details print.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WhileRevalidate => "stale-while-revalidate",
            Self::IfError => "stale-if-error",
            Self::Unreachable => "unreachable",
            Self::MaxStale => "max-stale",
        }
    }
}

/// Decides whether a stored response may answer a request at `now`.
///
/// The caller has already selected the stored response by key and by [`crate::Vary`].
pub fn serve(freshness: &Freshness, request: &RequestDirectives, now: SystemTime) -> ServeDecision {
    let decided = without_origin(freshness, request, now);
    decided.unwrap_or(if request.only_if_cached {
        ServeDecision::GatewayTimeout
    } else {
        ServeDecision::Validate
    })
}

/// The decision if no response is stored: the origin, or 504 (Sec. 5.2.1.7).
pub fn serve_missing(request: &RequestDirectives) -> ServeDecision {
    if request.only_if_cached { ServeDecision::GatewayTimeout } else { ServeDecision::Validate }
}

/// The way in which the origin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFailure {
    /// It answered with a status for which [`is_error`] returns true.
    Error,
    /// It did not answer.
    Unreachable,
}

impl OriginFailure {
    /// The name that `Cache-Status` details print.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "stale-if-error",
            Self::Unreachable => "unreachable",
        }
    }
}

/// The error statuses in place of which a stale response may be served (RFC 5861, Sec. 4).
pub fn is_error(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// Whether the stored response may be served in place of an error of the origin (RFC 5861, Sec. 4;
/// RFC 9111, Sec. 4.2.4). The client's own `stale-if-error` extends the window.
pub fn serve_instead_of_error(
    freshness: &Freshness,
    request: &RequestDirectives,
    trouble: OriginFailure,
    now: SystemTime,
) -> Option<ServeDecision> {
    if freshness.forbids_stale() {
        return None;
    }
    let ttl = freshness.ttl_millis(now);
    let (window, why) = match trouble {
        OriginFailure::Error => (freshness.stale_if_error(), Staleness::IfError),
        OriginFailure::Unreachable => (freshness.stale_if_unreachable(), Staleness::Unreachable),
    };
    let window = window.max(request.stale_if_error.unwrap_or(0));
    let (age, seconds) = (freshness.age(now), freshness.ttl(now));
    if ttl > 0 {
        // The response is fresh but the client asked for validation, which is impossible: this is
        // an error too.
        return (window > 0).then_some(ServeDecision::Fresh { age, ttl: seconds });
    }
    within(ttl, window).then_some(ServeDecision::Stale { age, ttl: seconds, why })
}

fn without_origin(
    freshness: &Freshness,
    request: &RequestDirectives,
    now: SystemTime,
) -> Option<ServeDecision> {
    if request.no_cache || freshness.validates_always() {
        return None;
    }
    let (age, ttl) = freshness.age_and_ttl_millis(now);
    let seconds = ttl.div_euclid(1000);
    if ttl > 0 {
        return welcome(freshness, request, age, ttl)
            .then_some(ServeDecision::Fresh { age, ttl: seconds });
    }
    if freshness.forbids_stale() {
        return None;
    }
    let why = stale_use(freshness, request, ttl)?;
    young_enough(request, age).then_some(ServeDecision::Stale { age, ttl: seconds, why })
}

/// Whether a fresh response satisfies the client's directives.
fn welcome(freshness: &Freshness, request: &RequestDirectives, age: u32, ttl: i64) -> bool {
    let lasts = request.min_fresh.is_none_or(|least| ttl >= i64::from(least) * 1000);
    // A browser's reload sends `max-age=0`. An immutable response needs no validation while it is
    // fresh (RFC 8246, Sec. 2).
    lasts && (freshness.is_immutable() || young_enough(request, age))
}

fn young_enough(request: &RequestDirectives, age: u32) -> bool {
    request.max_age.is_none_or(|most| age <= most)
}

fn stale_use(freshness: &Freshness, request: &RequestDirectives, ttl: i64) -> Option<Staleness> {
    if request.max_stale.is_some_and(|most| within(ttl, most)) {
        return Some(Staleness::MaxStale);
    }
    // A client that sends `max-age` or `min-fresh` does not accept a stale response (Sec. 5.2.1).
    let unwelcome = request.max_age.is_some() || request.min_fresh.is_some();
    let window = freshness.stale_while_revalidate();
    (!unwelcome && within(ttl, window)).then_some(Staleness::WhileRevalidate)
}

/// Whether a response that became stale `-ttl` milliseconds ago is within a window of seconds.
fn within(ttl: i64, window: u32) -> bool {
    window > 0 && -ttl <= i64::from(window) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CacheRules, EffectiveDirectives,
        testing::{Fetched, NOW, headers, time},
    };

    fn freshness(cache_control: &str) -> Freshness {
        let got = Fetched::new(200, &[("cache-control", cache_control)]);
        let exchange = got.exchange();
        Freshness::of(
            &exchange,
            &EffectiveDirectives::of(exchange.response),
            &CacheRules::default(),
        )
    }

    fn asking(directives: &str) -> RequestDirectives {
        RequestDirectives::of(&headers(&[("cache-control", directives)]))
    }

    /// The decision for a response with `stored` directives after `after` seconds, and a request
    /// with `asked` directives.
    fn served(stored: &str, after: u64, asked: &str) -> ServeDecision {
        serve(&freshness(stored), &asking(asked), time(NOW + after))
    }

    fn instead_of_error(stored: &str, after: u64, asked: &str) -> Option<ServeDecision> {
        let now = time(NOW + after);
        serve_instead_of_error(&freshness(stored), &asking(asked), OriginFailure::Error, now)
    }

    fn instead_of_silence(stored: &str, after: u64) -> Option<ServeDecision> {
        let (asked, now) = (RequestDirectives::NONE, time(NOW + after));
        serve_instead_of_error(&freshness(stored), &asked, OriginFailure::Unreachable, now)
    }

    const fn stale(age: u32, ttl: i64, why: Staleness) -> ServeDecision {
        ServeDecision::Stale { age, ttl, why }
    }

    #[test]
    fn fresh_is_served_until_its_lifetime_ends() {
        assert_eq!(served("max-age=60", 59, "x"), ServeDecision::Fresh { age: 59, ttl: 1 });
        assert_eq!(served("max-age=60", 60, "x"), ServeDecision::Validate);
        assert_eq!(
            served("max-age=60, must-revalidate", 59, "x"),
            ServeDecision::Fresh { age: 59, ttl: 1 }
        );
    }

    #[test]
    fn no_cache_of_either_side_means_validation() {
        assert_eq!(served("max-age=60, no-cache", 1, "x"), ServeDecision::Validate);
        assert_eq!(served("max-age=60", 1, "no-cache"), ServeDecision::Validate);
        assert_eq!(
            served("max-age=60, no-cache=\"a\"", 1, "x"),
            ServeDecision::Fresh { age: 1, ttl: 59 }
        );
    }

    #[test]
    fn client_may_ask_for_younger_or_longer_lasting() {
        assert_eq!(served("max-age=60", 10, "max-age=9"), ServeDecision::Validate);
        assert_eq!(
            served("max-age=60", 10, "max-age=10"),
            ServeDecision::Fresh { age: 10, ttl: 50 }
        );
        assert_eq!(served("max-age=60", 10, "min-fresh=51"), ServeDecision::Validate);
        assert_eq!(
            served("max-age=60", 10, "min-fresh=50"),
            ServeDecision::Fresh { age: 10, ttl: 50 }
        );
    }

    #[test]
    fn reload_does_not_disturb_what_is_immutable() {
        assert_eq!(
            served("max-age=60, immutable", 10, "max-age=0"),
            ServeDecision::Fresh { age: 10, ttl: 50 }
        );
        assert_eq!(served("max-age=60, immutable", 10, "no-cache"), ServeDecision::Validate);
        assert_eq!(served("max-age=60, immutable", 60, "max-age=0"), ServeDecision::Validate);
    }

    #[test]
    fn client_may_accept_stale() {
        assert_eq!(served("max-age=60", 70, "max-stale=10"), stale(70, -10, Staleness::MaxStale));
        assert_eq!(served("max-age=60", 71, "max-stale=10"), ServeDecision::Validate);
        assert_eq!(
            served("max-age=60", 9999, "max-stale"),
            stale(9999, -9939, Staleness::MaxStale)
        );
        assert_eq!(served("max-age=60", 70, "max-stale, max-age=65"), ServeDecision::Validate);
    }

    #[test]
    fn stale_is_served_while_it_is_revalidated_within_the_window() {
        let stored = "max-age=60, stale-while-revalidate=30";
        assert_eq!(served(stored, 90, "x"), stale(90, -30, Staleness::WhileRevalidate));
        assert_eq!(served(stored, 91, "x"), ServeDecision::Validate);
        assert_eq!(served(stored, 90, "max-age=100"), ServeDecision::Validate);
    }

    #[test]
    fn nothing_stale_where_the_origin_forbids_it() {
        for forbids in ["must-revalidate", "proxy-revalidate", "s-maxage=60", "no-cache"] {
            let stored =
                format!("max-age=60, stale-while-revalidate=99, stale-if-error=99, {forbids}");
            assert_eq!(served(&stored, 70, "max-stale"), ServeDecision::Validate, "{forbids}");
            assert_eq!(instead_of_error(&stored, 70, "stale-if-error=99"), None, "{forbids}");
            assert_eq!(instead_of_silence(&stored, 70), None, "{forbids}");
        }
    }

    #[test]
    fn site_may_let_s_maxage_leave_the_windows() {
        let got = Fetched::new(200, &[("cache-control", "s-maxage=60, stale-while-revalidate=9")]);
        let exchange = got.exchange();
        let rules = CacheRules { s_maxage_allows_stale: true, ..CacheRules::default() };
        let read = Freshness::of(&exchange, &EffectiveDirectives::of(exchange.response), &rules);
        let served = serve(&read, &RequestDirectives::NONE, time(NOW + 65));
        assert_eq!(served, stale(65, -5, Staleness::WhileRevalidate));
    }

    #[test]
    fn error_is_replaced_within_either_sides_window() {
        let stored = "max-age=60, stale-if-error=30";
        assert_eq!(instead_of_error(stored, 90, "x"), Some(stale(90, -30, Staleness::IfError)));
        assert_eq!(instead_of_error(stored, 91, "x"), None);
        assert_eq!(
            instead_of_error(stored, 91, "stale-if-error=31"),
            Some(stale(91, -31, Staleness::IfError))
        );
        assert_eq!(
            instead_of_error(stored, 10, "no-cache"),
            Some(ServeDecision::Fresh { age: 10, ttl: 50 })
        );
        assert_eq!(instead_of_error("max-age=60", 61, "x"), None);
    }

    #[test]
    fn silence_is_bridged_for_longer_than_an_error_unless_the_origin_says_how_long() {
        let day = 24 * 3600;
        let bridged = |age, ttl| Some(stale(age, ttl, Staleness::Unreachable));
        assert_eq!(instead_of_silence("max-age=60", 61), bridged(61, -1));
        assert_eq!(instead_of_silence("max-age=60", 61 + day), None);
        assert_eq!(instead_of_silence("max-age=60, stale-if-error=30", 90), bridged(90, -30));
        assert_eq!(instead_of_silence("max-age=60, stale-if-error=30", 91), None);
        assert_eq!(instead_of_silence("max-age=60, stale-if-error=0", 61), None);
    }

    #[test]
    fn what_must_not_be_used_again_is_validated_although_fresh() {
        let freshness = freshness("max-age=60").never_again();
        assert_eq!(serve(&freshness, &RequestDirectives::NONE, time(NOW)), ServeDecision::Validate);
    }

    #[test]
    fn only_if_cached_never_reaches_the_origin() {
        assert_eq!(served("max-age=60", 60, "only-if-cached"), ServeDecision::GatewayTimeout);
        assert_eq!(
            served("max-age=60", 6, "only-if-cached"),
            ServeDecision::Fresh { age: 6, ttl: 54 }
        );
        assert_eq!(serve_missing(&asking("only-if-cached")), ServeDecision::GatewayTimeout);
        assert_eq!(serve_missing(&asking("x")), ServeDecision::Validate);
    }
}
