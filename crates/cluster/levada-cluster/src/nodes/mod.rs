//! The cluster as one node sees it, which changes while the node runs.
//!
//! ```text
//! peers         Peers lasts: it shows the membership of this moment, and goes on with another one
//! membership    one generation of the cluster: its nodes by index, and the cluster that policies see
//! member        one node, as long as it is a member: its server, its purge log, its watch
//! sources       the nodes and addresses that sources name, from levada-discovery
//! chosen        the nodes that a policy chooses for a request
//! certificates  messages about certificates to other nodes
//! near          the nodes of this region that may have stored what cannot be fetched
//! shield        the region that is asked before the origin: which of its nodes may be
//! standing      what a node says of itself to a probe
//! settings      the nodes and their trust, by configuration
//! log           the known part of a node's purge log
//! ```
//!
//! A request takes one [`Membership`] and uses indices with that one only. The crate does not know sites or requests
//! of clients: a node decides with the cluster that a membership shows, and sends requests to its servers by
//! `levada-upstream`.

mod certificates;
mod chosen;
mod log;
mod member;
mod membership;
mod near;
mod peers;
mod settings;
mod shield;
mod sources;
mod standing;

pub use chosen::{ChoosesNodes, ChosenPeers, SentRequest};
pub use log::PeerLog;
pub use member::{Member, PROBE, STORED, WatchedPeer};
use membership::RegionNodes;
pub use membership::{Membership, nodes};
pub use near::NearNodes;
pub use peers::{MembershipChange, Peers, PeersError, PreparedPeers, Watch, proof};
pub use settings::{Peer, PeerTrust, Peering};
pub use shield::{SHIELD_TRIES, is_shielded, shield_now};
pub use sources::PeerSources;
pub use standing::{NoStanding, Standing};
