//! Where the answer to a request came from.

/// What a request's answer came from, in nginx's words for a cache's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheResult {
    /// From memory, fresh.
    Hit,
    /// Fetched.
    Miss,
    /// Stored, but to be fetched anew.
    Expired,
    /// Stored, and confirmed by the origin.
    Revalidated,
    /// Not for the cache.
    Bypass,
    /// Somebody else's fetch, shared.
    Collapsed,
    /// In pieces, from wherever each was.
    Pieces,
    /// A peer's business.
    Relayed,
    /// Answered by this node itself: an error, a redirect.
    None,
}

impl CacheResult {
    /// How many there are.
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
