//! Many nodes from one directory: the configuration of each node, and the state that they share.
//!
//! ```text
//! directory ─ derive ─ check           files under version control become the configuration of every node
//! store ─ file_store │ etcd_store │ node_store   keys with revisions, conditions and leases
//! serve ─ pinned ─ access ─ token      one node keeps the state for the others, by tokens
//! model ─ state ─ seal ─ content       what the keys mean; what of them is sealed
//! enrol ─ apply ─ rollout ─ rotate     the orders of people
//! wanted ─ home ─ follow               a node that follows
//! shared                               certificates that nodes have in common
//! ```

mod access;
pub mod apply;
mod check;
pub mod content;
mod derive;
mod directory;
pub mod enrol;
mod etcd_store;
mod file_store;
mod follow;
mod home;
pub mod model;
mod node_store;
mod pinned;
mod rollout;
pub mod rotate;
mod seal;
pub mod serve;
mod shared;
pub mod state;
pub mod store;
mod token;
mod wanted;

pub use access::Refusal;
pub use check::{CheckError, FleetCheck, FleetProblem, StartError, check};
pub use derive::{Derived, Misplaced, Place, derive};
pub use directory::{Directory, DirectoryError, FleetFile, FleetTable, Region};
pub use file_store::{FileStore, OpenError};
pub use follow::{FleetStatus, FollowError, FollowedNode, Follower};
pub use home::{Current, Home, Membership, Prepared};
pub use pinned::IdentityError;
pub use rollout::Tolerance;
pub use seal::{FleetKey, NotSealedHere};
pub use shared::SharedTexts;
pub use token::{NoToken, StatePlace, Token};
