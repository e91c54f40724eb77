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
//! These files do not know the store, purges or connections: `replace` says when the node lets go of them.

mod channel;
pub(crate) mod entries;
mod message;
mod passed;
mod predecessor;
mod program;
pub(crate) mod record;
mod registrar;
mod run_as;
mod sockets;
mod successor;
pub(crate) mod systemd;
mod upgrades;

pub(crate) use message::OfferedSockets;
pub(crate) use passed::PassedSockets;
pub use predecessor::Predecessor;
pub(crate) use predecessor::{LetGo, PredecessorGone};
pub(crate) use registrar::Registrar;
pub(crate) use run_as::{NoSuchUser, become_user};
pub use sockets::Addresses;
pub(crate) use sockets::{
    ListenerSockets, NodeSockets, OpenSockets, SocketError, listen, raise_file_limit,
};
pub(crate) use successor::{Successor, SuccessorFailed};
pub(crate) use upgrades::{NotUpgraded, UpgradePhase, Upgraded, Upgrades};
