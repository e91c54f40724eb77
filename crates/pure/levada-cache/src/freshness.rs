//! The freshness lifetime and the age of a response (RFC 9111, Sec. 4.2).
//!
//! The header fields are converted to numbers once, when a response is stored. A hit then costs a
//! few comparisons and reads no header field of the stored response.

use crate::{
    cache_control::{DirectiveScope, MAX_SECONDS, ResponseDirectives, parse_seconds},
    date::parse_date,
    origin_exchange::OriginExchange,
    rules::CacheRules,
    status_ttl::StatusTtl,
    targeted::EffectiveDirectives,
};
use http::{HeaderMap, StatusCode, header};
use std::time::{Duration, SystemTime};

/// The source of a freshness lifetime; those of the origin come before the site's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LifetimeSource {
    /// `s-maxage` or `max-age`, of `Cache-Control` or of a targeted field.
    Directive = 0,
    /// `Expires` minus `Date`.
    Expires = 1,
    /// The site's lifetime for errors ([`CacheRules::negative_ttl`]).
    Negative = 2,
    /// The site's lifetime for responses without one ([`CacheRules::default_ttl`]).
    Default = 3,
    /// A share of the time since `Last-Modified`.
    Heuristic = 4,
    /// No source: every reuse must be validated.
    None = 5,
    /// The site's lifetime, whatever the origin says ([`CacheRules::ttl`]). It comes first.
    Forced = 6,
}

impl LifetimeSource {
    /// The name that logs and reports print.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Directive => "directive",
            Self::Expires => "expires",
            Self::Negative => "negative",
            Self::Default => "default",
            Self::Heuristic => "heuristic",
            Self::None => "none",
            Self::Forced => "forced",
        }
    }

    /// Whether the origin gave the lifetime (the RFC's "explicit expiration time").
    pub const fn is_explicit(self) -> bool {
        matches!(self, Self::Directive | Self::Expires)
    }

    const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Directive,
            1 => Self::Expires,
            2 => Self::Negative,
            3 => Self::Default,
            4 => Self::Heuristic,
            5 => Self::None,
            6 => Self::Forced,
            _ => return None,
        })
    }
}

/// The time that a response is fresh from its generation by the origin, and the source of this
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The time in seconds.
    pub seconds: u32,
    /// The source of the lifetime.
    pub source: LifetimeSource,
}

impl Lifetime {
    /// The freshness lifetime (RFC 9111, Sec. 4.2.1): the one that the site forces, then the explicit one,
    /// then the site's default, then the heuristic one.
    pub fn of(
        exchange: &OriginExchange<'_>,
        effective: &EffectiveDirectives,
        rules: &CacheRules,
    ) -> Self {
        forced(exchange, rules)
            .or_else(|| explicit(exchange, effective, rules))
            .or_else(|| configured(exchange.status, rules))
            .or_else(|| heuristic(exchange, &effective.directives, rules))
            .unwrap_or(Self { seconds: 0, source: LifetimeSource::None })
    }
}

/// A lifetime from the arrival on, so that it does not depend on the origin's `Age` and clock.
fn forced(exchange: &OriginExchange<'_>, rules: &CacheRules) -> Option<Lifetime> {
    let ttl = StatusTtl::find(&rules.ttl, exchange.status)?;
    let age = initial_age(exchange, rules).div_ceil(1000);
    let seconds = bounded(i64::from(whole_seconds(ttl)).saturating_add_unsigned(age));
    Some(Lifetime { seconds, source: LifetimeSource::Forced })
}

fn explicit(
    exchange: &OriginExchange<'_>,
    effective: &EffectiveDirectives,
    rules: &CacheRules,
) -> Option<Lifetime> {
    if let Some(seconds) = effective.directives.lifetime() {
        return Some(Lifetime { seconds, source: LifetimeSource::Directive });
    }
    if effective.targeted || rules.ignored.expires {
        return None;
    }
    let expires = exchange.response.get(header::EXPIRES)?;
    // An invalid date means that the response has expired (Sec. 5.3).
    let seconds = parse_date(expires.as_bytes()).map_or(0, |e| e.saturating_sub(made(exchange)));
    Some(Lifetime { seconds: bounded(seconds), source: LifetimeSource::Expires })
}

fn configured(status: StatusCode, rules: &CacheRules) -> Option<Lifetime> {
    if let Some(ttl) = StatusTtl::find(&rules.status_ttl, status) {
        return Some(Lifetime { seconds: whole_seconds(ttl), source: LifetimeSource::Default });
    }
    if let Some(ttl) = rules.negative_ttl
        && rules.negative_statuses.contains(&status.as_u16())
    {
        return Some(Lifetime { seconds: whole_seconds(ttl), source: LifetimeSource::Negative });
    }
    let ttl = rules.default_ttl.filter(|_| is_heuristically_cacheable(status))?;
    Some(Lifetime { seconds: whole_seconds(ttl), source: LifetimeSource::Default })
}

/// A share of the time since the last modification (Sec. 4.2.2), if the status allows it or with
/// `public`.
fn heuristic(
    exchange: &OriginExchange<'_>,
    directives: &ResponseDirectives,
    rules: &CacheRules,
) -> Option<Lifetime> {
    if !is_heuristically_cacheable(exchange.status) && !directives.public {
        return None;
    }
    let changed = parse_date(exchange.response.get(header::LAST_MODIFIED)?.as_bytes())?;
    let since = bounded(made(exchange).saturating_sub(changed));
    let share = u64::from(since) * u64::from(rules.heuristic_percent) / 100;
    let seconds = bounded(share as i64).min(whole_seconds(rules.heuristic_max));
    (seconds > 0).then_some(Lifetime { seconds, source: LifetimeSource::Heuristic })
}

/// The statuses that are heuristically cacheable (RFC 9110, Sec. 15.1; 451 by RFC 7725, Sec. 3).
pub fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 451 | 501
    )
}

/// The time of generation: `Date`, or the time of arrival if it is absent (RFC 9110, Sec. 6.6.1).
fn made(exchange: &OriginExchange<'_>) -> i64 {
    date(exchange.response).unwrap_or_else(|| (millis(exchange.received) / 1000) as i64)
}

fn date(headers: &HeaderMap) -> Option<i64> {
    parse_date(headers.get(header::DATE)?.as_bytes())
}

/// The numbers of a stored response from which every later decision follows.
///
/// Times are milliseconds since 1970: with whole seconds a short lifetime would end up to a second
/// early or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    received: u64,
    initial_age: u64,
    lifetime: u64,
    while_revalidate: u32,
    if_error: u32,
    if_unreachable: u32,
    flags: u8,
    source: LifetimeSource,
}

const VALIDATE_ALWAYS: u8 = 1;
const NEVER_STALE: u8 = 2;
const IMMUTABLE: u8 = 4;
/// The response is stale, even if the clock is set back to before it became so.
const EXPIRED: u8 = 8;

impl Freshness {
    /// The length of the result of [`Freshness::to_bytes`].
    pub const BYTES: usize = 38;

    /// Computes the numbers of a response that has just arrived.
    pub fn of(
        exchange: &OriginExchange<'_>,
        effective: &EffectiveDirectives,
        rules: &CacheRules,
    ) -> Self {
        let lifetime = Lifetime::of(exchange, effective, rules);
        let directives = &effective.directives;
        Self {
            received: millis(exchange.received),
            initial_age: initial_age(exchange, rules),
            lifetime: u64::from(lifetime.seconds) * 1000,
            while_revalidate: directives
                .stale_while_revalidate
                .unwrap_or(whole_seconds(rules.stale_while_revalidate)),
            if_error: directives.stale_if_error.unwrap_or(whole_seconds(rules.stale_if_error)),
            if_unreachable: directives
                .stale_if_error
                .unwrap_or(whole_seconds(rules.stale_if_unreachable.max(rules.stale_if_error))),
            flags: flags(directives, rules),
            source: lifetime.source,
        }
    }

    /// The age at `now` in milliseconds (Sec. 4.2.3: resident time plus corrected initial age). If
    /// the clock was set back, the age is at least the age on arrival.
    fn age_millis(&self, now: u64) -> u64 {
        self.initial_age.saturating_add(now.saturating_sub(self.received))
    }

    /// The value of `Age` at `now`, in seconds.
    pub fn age(&self, now: SystemTime) -> u32 {
        self.age_and_ttl_millis(now).0
    }

    /// Seconds until the response becomes stale; negative afterwards (RFC 9211, Sec. 2.3).
    pub fn ttl(&self, now: SystemTime) -> i64 {
        self.ttl_millis(now).div_euclid(1000)
    }

    pub(crate) fn ttl_millis(&self, now: SystemTime) -> i64 {
        self.age_and_ttl_millis(now).1
    }

    /// [`age`](Self::age) and [`ttl_millis`](Self::ttl_millis) from one clock value.
    pub(crate) fn age_and_ttl_millis(&self, now: SystemTime) -> (u32, i64) {
        let age = self.age_millis(millis(now));
        let ttl = (self.lifetime as i64).saturating_sub_unsigned(age);
        let ttl = if self.flags & EXPIRED == 0 { ttl } else { ttl.min(0) };
        (bounded((age / 1000) as i64), ttl)
    }

    /// Whether the response is fresh at `now`, without regard to the request's directives.
    pub fn is_fresh(&self, now: SystemTime) -> bool {
        self.ttl_millis(now) > 0 && !self.validates_always()
    }

    /// The source of the lifetime.
    pub fn source(&self) -> LifetimeSource {
        self.source
    }

    /// The lifetime, counted from the generation of the response.
    pub fn lifetime(&self) -> Duration {
        Duration::from_millis(self.lifetime)
    }

    /// The time at which the response arrived from the origin.
    pub fn received(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.received)
    }

    /// `no-cache`: must not be reused without validation.
    pub fn validates_always(&self) -> bool {
        self.flags & VALIDATE_ALWAYS != 0
    }

    /// `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`: must not be served stale.
    pub fn forbids_stale(&self) -> bool {
        self.flags & (NEVER_STALE | VALIDATE_ALWAYS) != 0
    }

    /// `immutable` (RFC 8246).
    pub fn is_immutable(&self) -> bool {
        self.flags & IMMUTABLE != 0
    }

    /// The seconds past its lifetime for which it may be served while it is revalidated.
    pub fn stale_while_revalidate(&self) -> u32 {
        self.while_revalidate
    }

    /// The seconds past its lifetime for which it may be served in place of an error.
    pub fn stale_if_error(&self) -> u32 {
        self.if_error
    }

    /// The seconds past its lifetime for which it may be served while the origin is unreachable.
    pub fn stale_if_unreachable(&self) -> u32 {
        self.if_unreachable
    }

    /// Forbids every further reuse without validation, whatever the lifetime.
    #[must_use]
    pub fn never_again(mut self) -> Self {
        self.flags |= VALIDATE_ALWAYS;
        self
    }

    /// Makes the response stale from `now` on: a soft purge, or a `HEAD` or an error that showed
    /// the stored response to be outdated (Sec. 4.3.5). Stale windows count from `now`.
    #[must_use]
    pub fn expired(mut self, now: SystemTime) -> Self {
        self.flags |= EXPIRED;
        self.lifetime = self.lifetime.min(self.age_millis(millis(now)));
        self
    }

    /// The numbers as bytes, for the records of a disk tier.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.received.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.initial_age.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.lifetime.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.while_revalidate.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.if_error.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.if_unreachable.to_le_bytes());
        bytes[36] = self.flags;
        bytes[37] = self.source as u8;
        bytes
    }

    /// The numbers from [`Freshness::to_bytes`]; `None` for bytes that it cannot have produced.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let long = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        let short = |at: usize| bytes[at..at + 4].try_into().ok().map(u32::from_le_bytes);
        let read = Self {
            received: long(0)?,
            initial_age: long(8)?,
            lifetime: long(16)?,
            while_revalidate: short(24)?,
            if_error: short(28)?,
            if_unreachable: short(32)?,
            flags: bytes[36],
            source: LifetimeSource::from_u8(bytes[37])?,
        };
        let plausible = [read.received, read.initial_age, read.lifetime].iter().all(|&n| n < FAR)
            && read.flags & !(VALIDATE_ALWAYS | NEVER_STALE | IMMUTABLE | EXPIRED) == 0;
        plausible.then_some(read)
    }
}

/// A time after the year 10,000 in milliseconds: all times are smaller, and sums of two times do
/// not overflow.
const FAR: u64 = 1 << 48;

fn flags(directives: &ResponseDirectives, rules: &CacheRules) -> u8 {
    let never_stale = directives.must_revalidate
        || directives.proxy_revalidate
        || (directives.s_maxage.is_some() && !rules.s_maxage_allows_stale);
    let mut flags = 0;
    if directives.no_cache == DirectiveScope::Whole {
        flags |= VALIDATE_ALWAYS;
    }
    if never_stale {
        flags |= NEVER_STALE;
    }
    if directives.immutable {
        flags |= IMMUTABLE;
    }
    flags
}

/// `corrected_initial_age` (Sec. 4.2.3), in milliseconds.
fn initial_age(exchange: &OriginExchange<'_>, rules: &CacheRules) -> u64 {
    let received = millis(exchange.received);
    let delay = received.saturating_sub(millis(exchange.requested));
    let age_value = u64::from(age_field(exchange.response)) * 1000;
    // `Date` has whole seconds, so the time of arrival is truncated to whole seconds as well.
    let apparent_age = date(exchange.response)
        .map_or(0, |date| u64::from(bounded((received / 1000) as i64 - date)) * 1000);
    // A small difference comes from the two clocks. A large one may come from a cache that sends no
    // `Age`, so it counts.
    let tolerated = rules.clock_skew.as_millis().min(u128::from(FAR)) as u64;
    let apparent_age = if apparent_age <= tolerated { 0 } else { apparent_age };
    (age_value + delay.min(u64::from(MAX_SECONDS) * 1000)).max(apparent_age)
}

/// `Age`: the first member of the first line is used; an invalid value is ignored (Sec. 5.1).
fn age_field(headers: &HeaderMap) -> u32 {
    headers
        .get(header::AGE)
        .and_then(|line| line.as_bytes().split(|&b| b == b',').next())
        .and_then(|member| parse_seconds(member.trim_ascii()))
        .unwrap_or(0)
}

/// Limits seconds to the range that a cache represents.
fn bounded(seconds: i64) -> u32 {
    seconds.clamp(0, i64::from(MAX_SECONDS)) as u32
}

fn whole_seconds(duration: Duration) -> u32 {
    duration.as_secs().min(u64::from(MAX_SECONDS)) as u32
}

/// Milliseconds since 1970; an earlier time counts as 1970.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis().min(u128::from(FAR - 1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fetched, NOW, http_date, time};
    use proptest::prelude::*;

    fn freshness_by(got: &Fetched, rules: &CacheRules) -> Freshness {
        let exchange = got.exchange();
        Freshness::of(&exchange, &EffectiveDirectives::of(exchange.response), rules)
    }

    fn freshness(status: u16, response: &[(&'static str, &str)]) -> Freshness {
        freshness_by(&Fetched::new(status, response), &CacheRules::default())
    }

    fn lifetime(status: u16, response: &[(&'static str, &str)]) -> (u64, LifetimeSource) {
        let read = freshness(status, response);
        (read.lifetime().as_secs(), read.source())
    }

    #[test]
    fn s_maxage_counts_before_max_age_before_expires() {
        let (date, expires) = (http_date(NOW), http_date(NOW + 30));
        let dates = [("date", &*date), ("expires", &*expires)];
        assert_eq!(lifetime(200, &dates), (30, LifetimeSource::Expires));
        let both = [dates[0], dates[1], ("cache-control", "max-age=20")];
        assert_eq!(lifetime(200, &both), (20, LifetimeSource::Directive));
        let all = [dates[0], dates[1], ("cache-control", "max-age=20, s-maxage=10")];
        assert_eq!(lifetime(200, &all), (10, LifetimeSource::Directive));
    }

    #[test]
    fn expires_is_measured_by_the_origins_own_clock() {
        let (fast, soon) = (http_date(NOW + 400), http_date(NOW + 300));
        assert_eq!(
            lifetime(200, &[("date", &fast), ("expires", &soon)]),
            (0, LifetimeSource::Expires)
        );
        let (slow, now) = (http_date(NOW - 400), http_date(NOW));
        assert_eq!(
            lifetime(200, &[("date", &slow), ("expires", &now)]),
            (400, LifetimeSource::Expires)
        );
        assert_eq!(
            lifetime(200, &[("date", "foo"), ("expires", &soon)]),
            (300, LifetimeSource::Expires)
        );
        assert_eq!(lifetime(200, &[("expires", &soon)]), (300, LifetimeSource::Expires));
    }

    #[test]
    fn expires_that_is_no_date_is_past() {
        let date = http_date(NOW);
        for text in ["0", "-1", "", "never", "Thu, 18 Aug 2050 2:01:18 GMT"] {
            assert_eq!(lifetime(200, &[("date", &date), ("expires", text)]).0, 0, "{text}");
        }
    }

    #[test]
    fn targeted_lifetime_replaces_expires() {
        let expires = http_date(NOW + 9000);
        let given = lifetime(200, &[("cdn-cache-control", "max-age=0"), ("expires", &expires)]);
        assert_eq!(given, (0, LifetimeSource::Directive));
        let none = lifetime(200, &[("cdn-cache-control", "foo"), ("expires", &expires)]);
        assert_eq!(none, (0, LifetimeSource::None));
    }

    #[test]
    fn tenth_of_the_time_since_the_last_change_is_guessed() {
        let (date, changed) = (http_date(NOW), http_date(NOW - 1000));
        let lines = [("date", &*date), ("last-modified", &*changed)];
        assert_eq!(lifetime(200, &lines), (100, LifetimeSource::Heuristic));
        assert_eq!(lifetime(404, &lines), (100, LifetimeSource::Heuristic));
        for status in [201, 302, 307, 403, 500, 503, 599] {
            assert_eq!(lifetime(status, &lines), (0, LifetimeSource::None), "{status}");
            let public = [lines[0], lines[1], ("cache-control", "public")];
            assert_eq!(lifetime(status, &public), (100, LifetimeSource::Heuristic), "{status}");
        }
        let ancient = http_date(0);
        assert_eq!(lifetime(200, &[lines[0], ("last-modified", &ancient)]).0, 24 * 3600);
        let future = http_date(NOW + 1000);
        assert_eq!(lifetime(200, &[lines[0], ("last-modified", &future)]).1, LifetimeSource::None);
    }

    #[test]
    fn site_speaks_where_the_origin_is_silent() {
        let rules = CacheRules {
            default_ttl: Some(Duration::from_secs(60)),
            negative_ttl: Some(Duration::from_secs(5)),
            ..CacheRules::default()
        };
        let by = |status, lines: &[(&'static str, &str)]| {
            let read = freshness_by(&Fetched::new(status, lines), &rules);
            (read.lifetime().as_secs(), read.source())
        };
        assert_eq!(by(200, &[]), (60, LifetimeSource::Default));
        assert_eq!(by(404, &[]), (5, LifetimeSource::Negative));
        assert_eq!(by(404, &[("cache-control", "max-age=9")]), (9, LifetimeSource::Directive));
        assert_eq!(by(503, &[]), (0, LifetimeSource::None));
    }

    #[test]
    fn age_is_what_was_told_plus_delay_plus_time_in_store() {
        let mut got = Fetched::new(200, &[("age", "100"), ("cache-control", "max-age=200")]);
        got.delay = 3;
        let read = freshness_by(&got, &CacheRules::default());
        assert_eq!(read.age(time(NOW)), 103);
        assert_eq!(read.age(time(NOW + 50)), 153);
        assert_eq!(read.ttl(time(NOW + 50)), 47);
        assert_eq!(read.ttl(time(NOW + 100)), -3);
        assert!(read.is_fresh(time(NOW + 96)) && !read.is_fresh(time(NOW + 97)));
    }

    #[test]
    fn first_age_counts_and_nonsense_is_no_age() {
        for (text, age) in [
            ("7200", 7200),
            ("7200, 0", 7200),
            ("0, 7200", 0),
            ("abc", 0),
            ("-7200", 0),
            ("7200.0", 0),
            ("7200;a=b", 0),
            ("99999999999999999999", MAX_SECONDS),
        ] {
            assert_eq!(freshness(200, &[("age", text)]).age(time(NOW)), age, "{text}");
        }
        assert_eq!(freshness(200, &[("age", "7200"), ("age", "0")]).age(time(NOW)), 7200);
    }

    #[test]
    fn old_date_makes_old_but_a_slow_clock_does_not() {
        let age = |date| freshness(200, &[("date", &http_date(date))]).age(time(NOW));
        assert_eq!(age(NOW - 7200), 7200);
        assert_eq!(age(NOW - 5), 0);
        assert_eq!(age(NOW - 6), 6);
        assert_eq!(age(NOW + 7200), 0);
    }

    #[test]
    fn short_lifetime_ends_neither_early_nor_late() {
        let read = freshness(200, &[("cache-control", "max-age=1")]);
        assert!(read.is_fresh(time(NOW) + Duration::from_millis(999)));
        assert!(!read.is_fresh(time(NOW) + Duration::from_millis(1000)));
        assert_eq!(read.ttl(time(NOW) + Duration::from_millis(1)), 0);
        assert_eq!(read.ttl(time(NOW) + Duration::from_millis(1001)), -1);
    }

    #[test]
    fn clock_set_back_makes_nothing_younger() {
        let read = freshness(200, &[("age", "10"), ("cache-control", "max-age=60")]);
        assert_eq!(read.age(time(NOW - 1000)), 10);
        assert_eq!(read.age(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), 10);
    }

    #[test]
    fn expired_response_stays_stale_when_the_clock_is_set_back() {
        let read = freshness(200, &[("cache-control", "max-age=60")]).expired(time(NOW + 10));
        for now in [NOW - 1000, NOW, NOW + 9, NOW + 10] {
            assert!(!read.is_fresh(time(now)), "{now}");
            assert!(Freshness::from_bytes(&read.to_bytes()).is_some_and(|r| r == read));
        }
    }

    #[test]
    fn soft_purge_makes_stale_at_once_and_forgets_nothing() {
        let lines = [("cache-control", "max-age=60, stale-while-revalidate=30")];
        let read = freshness(200, &lines).expired(time(NOW + 10));
        assert!(!read.is_fresh(time(NOW + 10)));
        assert_eq!((read.age(time(NOW + 10)), read.ttl(time(NOW + 12))), (10, -2));
        assert_eq!(read.stale_while_revalidate(), 30);
        let already = freshness(200, &lines).expired(time(NOW + 100));
        assert_eq!(already.ttl(time(NOW + 100)), -40);
    }

    proptest! {
        #[test]
        fn numbers_survive_as_bytes(age in 0u32.., max_age in 0u32.., swr in 0u32.., cc in "(no-cache|immutable|s-maxage=1|x)") {
            let cc = format!("max-age={max_age}, stale-while-revalidate={swr}, {cc}");
            let read = freshness(200, &[("age", &age.to_string()), ("cache-control", &cc)]);
            prop_assert_eq!(Freshness::from_bytes(&read.to_bytes()), Some(read));
        }

        #[test]
        fn no_bytes_panic(bytes: [u8; Freshness::BYTES], now in 0u64..1 << 40, plain: bool) {
            let mut bytes = bytes;
            if plain {
                for high in [6, 7, 14, 15, 22, 23] { bytes[high] = 0; }
                (bytes[36], bytes[37]) = (bytes[36] & 7, bytes[37] % 6);
            }
            if let Some(read) = Freshness::from_bytes(&bytes) {
                let _ = (read.age(time(now)), read.ttl(time(now)), read.expired(time(now)), read.received());
            } else {
                prop_assert!(!plain);
            }
        }

        #[test]
        fn any_dates_give_bounded_numbers(a in 0u64..253_402_300_799, b in 0u64..253_402_300_799, c in 0u64..253_402_300_799) {
            let read = freshness(200, &[("date", &http_date(a)), ("expires", &http_date(b)), ("last-modified", &http_date(c))]);
            prop_assert!(read.lifetime().as_secs() <= u64::from(MAX_SECONDS));
            prop_assert!(read.age(time(NOW)) <= MAX_SECONDS);
        }
    }
}
