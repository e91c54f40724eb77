//! Cache results: the source of the answer to a request.

/// The cache result of a request, named as in nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheResult {
    /// From memory, fresh.
    Hit,
    /// Fetched from an origin.
    Miss,
    /// Stored but stale, and fetched anew.
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
    pub(crate) const COUNT: usize = 9;

    pub(crate) const fn as_str(self) -> &'static str {
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
