//! How long a response stays fresh, and how old it is (RFC 9111, Sec. 4.2).
//!
//! What the header fields say is turned into numbers once, when a response is stored. A hit then
//! costs a few comparisons and reads no header field of the stored response.

use crate::{
    cache_control::{MAX_SECONDS, ResponseDirectives, Scope, parse_seconds},
    date::parse_date,
    exchange::Exchange,
    rules::Rules,
    targeted::Effective,
};
use http::{HeaderMap, StatusCode, header};
use std::time::{Duration, SystemTime};

/// Where a lifetime comes from, in the order in which the sources are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// `s-maxage` or `max-age`, of `Cache-Control` or of a targeted field.
    Directive = 0,
    /// `Expires` minus `Date`.
    Expires = 1,
    /// The site's lifetime for errors ([`Rules::negative_ttl`]).
    Negative = 2,
    /// The site's lifetime for what says nothing ([`Rules::default_ttl`]).
    Default = 3,
    /// A share of the time since `Last-Modified`.
    Heuristic = 4,
    /// None: every use must be validated.
    None = 5,
}

impl Source {
    /// The name that logs and reports print.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Directive => "directive",
            Self::Expires => "expires",
            Self::Negative => "negative",
            Self::Default => "default",
            Self::Heuristic => "heuristic",
            Self::None => "none",
        }
    }

    /// Whether the origin itself said how long (the RFC's "explicit expiration time").
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
            _ => return None,
        })
    }
}

/// How long a response is fresh from the moment its origin made it, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The time in seconds.
    pub seconds: u32,
    /// Who says so.
    pub source: Source,
}

impl Lifetime {
    /// The freshness lifetime (RFC 9111, Sec. 4.2.1): explicit, then the site's, then heuristic.
    pub fn of(exchange: &Exchange<'_>, effective: &Effective, rules: &Rules) -> Self {
        explicit(exchange, effective)
            .or_else(|| configured(exchange.status, rules))
            .or_else(|| heuristic(exchange, &effective.directives, rules))
            .unwrap_or(Self { seconds: 0, source: Source::None })
    }
}

fn explicit(exchange: &Exchange<'_>, effective: &Effective) -> Option<Lifetime> {
    if let Some(seconds) = effective.directives.lifetime() {
        return Some(Lifetime { seconds, source: Source::Directive });
    }
    let expires =
        (!effective.targeted).then(|| exchange.response.get(header::EXPIRES)).flatten()?;
    // What is no date has expired (Sec. 5.3).
    let seconds = parse_date(expires.as_bytes()).map_or(0, |e| e.saturating_sub(made(exchange)));
    Some(Lifetime { seconds: bounded(seconds), source: Source::Expires })
}

fn configured(status: StatusCode, rules: &Rules) -> Option<Lifetime> {
    if let Some(ttl) = rules.negative_ttl
        && rules.negative_statuses.contains(&status.as_u16())
    {
        return Some(Lifetime { seconds: whole_seconds(ttl), source: Source::Negative });
    }
    let ttl = rules.default_ttl.filter(|_| is_heuristically_cacheable(status))?;
    Some(Lifetime { seconds: whole_seconds(ttl), source: Source::Default })
}

/// A share of the time since the last change (Sec. 4.2.2), for the statuses that allow it or with
/// `public`.
fn heuristic(
    exchange: &Exchange<'_>,
    directives: &ResponseDirectives,
    rules: &Rules,
) -> Option<Lifetime> {
    if !is_heuristically_cacheable(exchange.status) && !directives.public {
        return None;
    }
    let changed = parse_date(exchange.response.get(header::LAST_MODIFIED)?.as_bytes())?;
    let since = bounded(made(exchange).saturating_sub(changed));
    let share = u64::from(since) * u64::from(rules.heuristic_percent) / 100;
    let seconds = bounded(share as i64).min(whole_seconds(rules.heuristic_max));
    (seconds > 0).then_some(Lifetime { seconds, source: Source::Heuristic })
}

/// Statuses that may be stored on a guess (RFC 9110, Sec. 15.1; 451 by RFC 7725, Sec. 3).
pub fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 451 | 501
    )
}

/// When the response was made: `Date`, or its arrival where there is none (RFC 9110, Sec. 6.6.1).
fn made(exchange: &Exchange<'_>) -> i64 {
    date(exchange.response).unwrap_or_else(|| (millis(exchange.received) / 1000) as i64)
}

fn date(headers: &HeaderMap) -> Option<i64> {
    parse_date(headers.get(header::DATE)?.as_bytes())
}

/// The numbers of one stored response that every later decision needs.
///
/// Times are milliseconds since 1970: whole seconds would make a short lifetime end up to a second
/// early or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    received: u64,
    initial_age: u64,
    lifetime: u64,
    while_revalidate: u32,
    if_error: u32,
    flags: u8,
    source: Source,
}

const VALIDATE_ALWAYS: u8 = 1;
const NEVER_STALE: u8 = 2;
const IMMUTABLE: u8 = 4;

impl Freshness {
    /// The size of what [`Freshness::to_bytes`] gives.
    pub const BYTES: usize = 34;

    /// Computes the numbers of a response that has just arrived.
    pub fn of(exchange: &Exchange<'_>, effective: &Effective, rules: &Rules) -> Self {
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
            flags: flags(directives, rules),
            source: lifetime.source,
        }
    }

    /// The age at `now` in milliseconds (Sec. 4.2.3: resident time plus corrected initial age). A
    /// clock that was set back makes nothing younger than it was on arrival.
    fn age_millis(&self, now: u64) -> u64 {
        self.initial_age.saturating_add(now.saturating_sub(self.received))
    }

    /// The value of `Age` at `now`, in seconds.
    pub fn age(&self, now: SystemTime) -> u32 {
        bounded((self.age_millis(millis(now)) / 1000) as i64)
    }

    /// Seconds until the response becomes stale at `now`; negative since it has (RFC 9211,
    /// Sec. 2.3).
    pub fn ttl(&self, now: SystemTime) -> i64 {
        self.ttl_millis(now).div_euclid(1000)
    }

    pub(crate) fn ttl_millis(&self, now: SystemTime) -> i64 {
        (self.lifetime as i64).saturating_sub_unsigned(self.age_millis(millis(now)))
    }

    /// Whether the response is fresh at `now`, whatever a request may ask beyond that.
    pub fn is_fresh(&self, now: SystemTime) -> bool {
        self.ttl_millis(now) > 0 && !self.validates_always()
    }

    /// Where the lifetime comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The lifetime from the moment the origin made the response.
    pub fn lifetime(&self) -> Duration {
        Duration::from_millis(self.lifetime)
    }

    /// When the response came from the origin.
    pub fn received(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.received)
    }

    /// `no-cache`: no use without validation.
    pub fn validates_always(&self) -> bool {
        self.flags & VALIDATE_ALWAYS != 0
    }

    /// `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`: never served stale.
    pub fn forbids_stale(&self) -> bool {
        self.flags & (NEVER_STALE | VALIDATE_ALWAYS) != 0
    }

    /// `immutable` (RFC 8246).
    pub fn is_immutable(&self) -> bool {
        self.flags & IMMUTABLE != 0
    }

    /// For how many seconds past its lifetime it may be served while it is revalidated.
    pub fn stale_while_revalidate(&self) -> u32 {
        self.while_revalidate
    }

    /// For how many seconds past its lifetime it may be served in place of an error.
    pub fn stale_if_error(&self) -> u32 {
        self.if_error
    }

    /// Makes the response stale from `now` on: a soft purge, or a `HEAD` or an error that showed
    /// the stored response to be outdated (Sec. 4.3.5). Stale windows count from `now`.
    #[must_use]
    pub fn expired(mut self, now: SystemTime) -> Self {
        self.lifetime = self.lifetime.min(self.age_millis(millis(now)));
        self
    }

    /// The numbers as bytes, for the record of a disk tier.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.received.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.initial_age.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.lifetime.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.while_revalidate.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.if_error.to_le_bytes());
        bytes[32] = self.flags;
        bytes[33] = self.source as u8;
        bytes
    }

    /// The numbers from [`Freshness::to_bytes`]; `None` for bytes that it cannot have given.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let long = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        let short = |at: usize| bytes[at..at + 4].try_into().ok().map(u32::from_le_bytes);
        let read = Self {
            received: long(0)?,
            initial_age: long(8)?,
            lifetime: long(16)?,
            while_revalidate: short(24)?,
            if_error: short(28)?,
            flags: bytes[32],
            source: Source::from_u8(bytes[33])?,
        };
        let plausible = [read.received, read.initial_age, read.lifetime].iter().all(|&n| n < FAR)
            && read.flags & !(VALIDATE_ALWAYS | NEVER_STALE | IMMUTABLE) == 0;
        plausible.then_some(read)
    }
}

/// Past the year 10,000 in milliseconds: no number of ours is so great, and sums of them fit.
const FAR: u64 = 1 << 48;

fn flags(directives: &ResponseDirectives, rules: &Rules) -> u8 {
    let never_stale = directives.must_revalidate
        || directives.proxy_revalidate
        || (directives.s_maxage.is_some() && !rules.s_maxage_allows_stale);
    let mut flags = 0;
    if directives.no_cache == Scope::Whole {
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
fn initial_age(exchange: &Exchange<'_>, rules: &Rules) -> u64 {
    let received = millis(exchange.received);
    let delay = received.saturating_sub(millis(exchange.requested));
    let told = u64::from(age_field(exchange.response)) * 1000;
    // `Date` has whole seconds, so arrival is cut to whole seconds before the two are compared.
    let apparent = date(exchange.response)
        .map_or(0, |date| u64::from(bounded((received / 1000) as i64 - date)) * 1000);
    // A small difference is the two clocks', not an age; a large one may be a cache's that sends no
    // `Age`, so it counts.
    let tolerated = rules.clock_skew.as_millis().min(u128::from(FAR)) as u64;
    let apparent = if apparent <= tolerated { 0 } else { apparent };
    (told + delay.min(u64::from(MAX_SECONDS) * 1000)).max(apparent)
}

/// `Age`: the first member of the first line counts, and nonsense is ignored (Sec. 5.1).
fn age_field(headers: &HeaderMap) -> u32 {
    headers
        .get(header::AGE)
        .and_then(|line| line.as_bytes().split(|&b| b == b',').next())
        .and_then(|member| parse_seconds(member.trim_ascii()))
        .unwrap_or(0)
}

/// Cuts seconds to what a cache counts with.
fn bounded(seconds: i64) -> u32 {
    seconds.clamp(0, i64::from(MAX_SECONDS)) as u32
}

fn whole_seconds(duration: Duration) -> u32 {
    duration.as_secs().min(u64::from(MAX_SECONDS)) as u32
}

/// Milliseconds since 1970; a clock before that stands at its beginning.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis().min(u128::from(FAR - 1)) as u64)
}
