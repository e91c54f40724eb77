//! A node that replaces its process. The old process starts the new one and passes to it what connections and
//! stored responses need; docs/operate/upgrade.md has the steps in order.
//!
//! ```text
//! program        the program that runs in the new process, and who may have written it
//! successor      the new process, as the old one sees it
//! predecessor    the old process, as the new one sees it
//! message        what they tell each other
//! channel        messages and descriptors over a Unix socket
//! record         stored entries on their way
//! sockets        the listening sockets of a node: passed on, from systemd, or opened
//! passed         sockets that a process got instead of opening them
//! run_as         the user that a node runs as
//! systemd        messages to systemd
//! entries        the memory tier on its way
//! upgrades       how far an upgrade has come
//! registrar      the registration of the node in etcd, which the new process goes on with
//! ```
//!
//! The crate does not know the store, purges or connections: the node says when it lets go of them.

mod channel;
pub mod entries;
mod message;
mod passed;
mod predecessor;
mod program;
pub mod record;
mod registrar;
mod run_as;
mod sockets;
mod successor;
pub mod systemd;
mod upgrades;

pub use message::{OfferedSockets, Prepared, TakenOver};
pub use passed::PassedSockets;
pub use predecessor::{LetGo, Predecessor, PredecessorGone};
pub use program::{Program, UntrustedProgram};
pub use registrar::Registrar;
pub use run_as::{NoSuchUser, become_user};
pub use sockets::{
    Addresses, ListenerSockets, NodeSockets, OpenSockets, SocketError, listen, raise_file_limit,
};
pub use successor::{Successor, SuccessorFailed, SuccessorProcess};
pub use upgrades::{NotUpgraded, UpgradePhase, Upgraded, Upgrades};
