//! The cache settings of a site, where the RFCs leave a choice.

use std::{borrow::Cow, time::Duration};

use crate::status_ttl::StatusTtl;

/// The settings. By default nothing is added to the origin's directives while the origin is
/// reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRules {
    /// The lifetime by status, counted from the arrival, whatever the origin says of freshness.
    pub ttl: Vec<StatusTtl>,
    /// The fields of responses that are not obeyed.
    pub ignored: IgnoredFields,
    /// The lifetime of responses without one, by status; the next three fields apply to others.
    pub status_ttl: Vec<StatusTtl>,
    /// The lifetime of responses without one, for heuristically cacheable statuses.
    pub default_ttl: Option<Duration>,
    /// The lifetime of errors without one: negative caching.
    pub negative_ttl: Option<Duration>,
    /// The statuses to which `negative_ttl` applies.
    pub negative_statuses: Cow<'static, [u16]>,
    /// The heuristic lifetime as a percentage of the time since `Last-Modified` (RFC 9111, Sec.
    /// 4.2.2 suggests 10).
    pub heuristic_percent: u32,
    /// The longest heuristic lifetime.
    pub heuristic_max: Duration,
    /// `stale-while-revalidate` of responses that have none.
    pub stale_while_revalidate: Duration,
    /// `stale-if-error` of responses that have none.
    pub stale_if_error: Duration,
    /// How long past its lifetime a response without `stale-if-error` is served while the origin is
    /// unreachable (RFC 9111, Sec. 4.2.4 calls the cache "disconnected").
    pub stale_if_unreachable: Duration,
    /// How long a request waits for the revalidation of a response that may be served stale while the origin is
    /// unreachable; an origin that is usually slower gets three times its usual time.
    pub revalidation_wait: Duration,
    /// Whether `s-maxage` allows the windows above.
    ///
    /// By RFC 9111, Sec. 5.2.2.10, it implies `proxy-revalidate` and forbids every stale use. But
    /// many applications send `s-maxage=60, stale-while-revalidate=300` and intend both.
    pub s_maxage_allows_stale: bool,
    /// How far the origin's clock may be behind before `Date` increases the age of a response.
    pub clock_skew: Duration,
    /// The treatment of responses with `Set-Cookie`.
    pub cookies: CookieStorage,
}

impl CacheRules {
    /// The rules without what they let a cache store beyond HTTP's own.
    pub fn of_http(&self) -> Self {
        Self {
            ttl: Vec::new(),
            ignored: IgnoredFields::default(),
            status_ttl: Vec::new(),
            default_ttl: None,
            negative_ttl: None,
            ..self.clone()
        }
    }

    /// Whether they let a cache store more than that.
    pub fn exceed_http(&self) -> bool {
        !self.ttl.is_empty()
            || !self.status_ttl.is_empty()
            || self.default_ttl.is_some()
            || self.negative_ttl.is_some()
            || self.ignored != IgnoredFields::default()
    }
}

impl Default for CacheRules {
    fn default() -> Self {
        Self {
            ttl: Vec::new(),
            ignored: IgnoredFields::default(),
            status_ttl: Vec::new(),
            default_ttl: None,
            negative_ttl: None,
            negative_statuses: Cow::Borrowed(&[404, 405, 410, 414, 451, 501]),
            heuristic_percent: 10,
            heuristic_max: Duration::from_secs(24 * 3600),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            stale_if_unreachable: Duration::from_secs(24 * 3600),
            revalidation_wait: Duration::from_secs(1),
            s_maxage_allows_stale: false,
            clock_skew: Duration::from_secs(5),
            cookies: CookieStorage::default(),
        }
    }
}

/// The fields of an origin's responses that a site does not obey; clients get them as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields {
    /// `Cache-Control`, and the targeted fields that stand in its place.
    pub cache_control: bool,
    /// `Expires`.
    pub expires: bool,
    /// `Set-Cookie`: the response is stored without it.
    pub set_cookie: bool,
    /// `Vary`: all requests get one response.
    pub vary: bool,
}

/// The treatment of responses with `Set-Cookie`.
///
/// RFC 9111, Sec. 7.3, allows a cache to store them. If an origin forgets `private`, the cache then
/// gives one user's session to all users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CookieStorage {
    /// They are never stored, as in Varnish and nginx: a lifetime that a server sets for all responses does
    /// not say that a cookie is for all clients.
    #[default]
    Refuse,
    /// They are stored only if the origin gives a lifetime or `public`.
    StoreIfExplicit,
    /// They are stored like all other responses.
    Store,
}
