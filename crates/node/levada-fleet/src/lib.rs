//! Many nodes from one directory: the configuration of each node, and the state that they share.
//!
//! ```text
//! directory ─ derive ─ check           files under version control become the configuration of every node
//! store ─ file_store │ etcd_store │ node_store   keys with revisions, conditions and leases
//! serve ─ pinned ─ access ─ token      one node keeps the state for the others, by tokens
//! model ─ state ─ seal ─ content       what the keys mean; what of them is sealed
//! enrol ─ apply ─ rollout ─ rotate     the orders of people
//! archive ─ caller ─ bound             orders that come over HTTP
//! wanted ─ home ─ follow               a node that follows
//! shared                               certificates that nodes have in common
//! overview ─ look ─ difference ─ prune the fleet as people see it; what stays of it
//! ```

mod access;
pub mod apply;
pub mod archive;
pub mod bound;
mod caller;
mod check;
pub mod content;
mod derive;
pub mod difference;
mod directory;
pub mod enrol;
mod etcd_store;
mod file_store;
mod follow;
mod home;
mod look;
pub mod model;
mod node_store;
mod overview;
mod pinned;
mod prune;
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
pub use caller::{Caller, CallerError};
pub use check::{CheckError, FleetCheck, FleetProblem, StartError, check};
pub use derive::{Derived, Misplaced, Place, derive};
pub use directory::{Directory, DirectoryError, FleetFile, FleetTable, Region};
pub use file_store::{FileStore, OpenError};
pub use follow::{FleetStatus, FollowError, FollowedNode, Follower};
pub use home::{Current, Home, Membership, Prepared};
pub use look::{FleetLook, FleetShown};
pub use overview::{Condition, History, NodeView, Overview};
pub use pinned::IdentityError;
pub use prune::KEPT_REVISIONS;
pub use rollout::Tolerance;
pub use rotate::Rotated;
pub use seal::{FleetKey, NotSealedHere};
pub use shared::SharedTexts;
pub use token::{NoToken, StatePlace, Token};
