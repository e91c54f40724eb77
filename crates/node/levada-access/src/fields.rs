//! Header fields of this CDN's own, and those that it shares with proxies.

use http::HeaderName;
pub use levada_store::TAGS;
pub use levada_upstream::{REFUSED, STRANGER};

/// From a proxy: the scheme of its client's request.
pub const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// From a peer of an earlier version: the secret. It goes nowhere.
pub const PEER: HeaderName = HeaderName::from_static("levada-peer");
/// From a peer: the head of a large file suffices. To a peer: this is the head of one, with its length.
pub const LARGE: HeaderName = HeaderName::from_static("levada-large");
/// The value of [`LARGE`] from a peer: the head is to be fetched even if it is stored.
pub const ANEW: &str = "anew";
/// From a peer: the URL names a piece, which its client takes after so many others. To a peer: the version of the
/// piece, or why there is none.
pub const PIECE: HeaderName = HeaderName::from_static("levada-piece");
/// From a peer: the name of the route that the request took there; empty for none. Fields that change on the way
/// must not lead to another one.
pub const ROUTE: HeaderName = HeaderName::from_static("levada-route");
/// From a peer: this node is asked as one of the shield, and asks nobody but the origin.
pub const SHIELD: HeaderName = HeaderName::from_static("levada-shield");
/// Fields that only peers set in responses. They are removed from the responses of other servers.
pub static PEERS_ONLY: [HeaderName; 4] = [REFUSED, LARGE, PIECE, TAGS];
/// From a client: the digest of the file that it wants. A stored copy with another digest is not used.
pub const DIGEST: HeaderName = HeaderName::from_static("levada-digest");
