//! Cache results: the source of the answer to a request.

/// The cache result of a request, named as in nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheResult {
    /// From memory, fresh.
    Hit,
    /// Fetched from an origin.
    Miss,
    /// Stored but stale, and fetched again.
    Expired,
    /// Stored but stale, and confirmed by the origin.
    Revalidated,
    /// Not served by the cache.
    Bypass,
    /// Shared another request's fetch.
    Collapsed,
    /// Served in pieces, from memory, origins or peers.
    Pieces,
    /// Served by a peer.
    Relayed,
    /// Answered by this node itself: an error, a redirect.
    None,
}

impl CacheResult {
    /// The number of results.
    pub const COUNT: usize = 9;

    /// All results.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Hit,
        Self::Miss,
        Self::Expired,
        Self::Revalidated,
        Self::Bypass,
        Self::Collapsed,
        Self::Pieces,
        Self::Relayed,
        Self::None,
    ];

    /// Its name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Expired => "expired",
            Self::Revalidated => "revalidated",
            Self::Bypass => "bypass",
            Self::Collapsed => "collapsed",
            Self::Pieces => "pieces",
            Self::Relayed => "relayed",
            Self::None => "none",
        }
    }
}
