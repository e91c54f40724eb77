//! What an operator may decide about a site's cache where the RFCs leave a choice.

use std::{borrow::Cow, time::Duration};

/// The choices. The default adds nothing to what the origin says, as long as the origin is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The lifetime of a response that gives none, for statuses that may be stored on a guess.
    pub default_ttl: Option<Duration>,
    /// The lifetime of an error that gives none: negative caching.
    pub negative_ttl: Option<Duration>,
    /// The statuses that are errors in that sense.
    pub negative_statuses: Cow<'static, [u16]>,
    /// The share of the time since `Last-Modified` that a response without a lifetime stays fresh,
    /// in percent (RFC 9111, Sec. 4.2.2 names 10).
    pub heuristic_percent: u32,
    /// The longest such lifetime.
    pub heuristic_max: Duration,
    /// `stale-while-revalidate` of a response that has none.
    pub stale_while_revalidate: Duration,
    /// `stale-if-error` of a response that has none.
    pub stale_if_error: Duration,
    /// How long past its lifetime a response that has no `stale-if-error` stands in for an origin that
    /// cannot be reached at all: the "disconnected" of RFC 9111, Sec. 4.2.4.
    pub stale_if_unreachable: Duration,
    /// Whether `s-maxage` leaves room for the two windows above.
    ///
    /// By RFC 9111, Sec. 5.2.2.10, it implies `proxy-revalidate` and forbids every stale use; many
    /// applications nevertheless write `s-maxage=60, stale-while-revalidate=300` and mean it.
    pub s_maxage_allows_stale: bool,
    /// How far the origin's clock may be behind before `Date` makes a response older.
    pub clock_skew: Duration,
    /// What becomes of responses that set cookies.
    pub cookies: Cookies,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            default_ttl: None,
            negative_ttl: None,
            negative_statuses: Cow::Borrowed(&[404, 405, 410, 414, 451, 501]),
            heuristic_percent: 10,
            heuristic_max: Duration::from_secs(24 * 3600),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            stale_if_unreachable: Duration::from_secs(24 * 3600),
            s_maxage_allows_stale: false,
            clock_skew: Duration::from_secs(5),
            cookies: Cookies::default(),
        }
    }
}

/// What becomes of responses that set cookies.
///
/// RFC 9111, Sec. 7.3, lets a cache store them; an origin that forgot to say `private` then hands
/// one user's session to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cookies {
    /// Never stored.
    Refuse,
    /// Stored only when the origin itself gives a lifetime or says `public`: then it knew.
    #[default]
    StoreIfExplicit,
    /// Stored like all others.
    Store,
}
