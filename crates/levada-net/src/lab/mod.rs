//! Networks within one machine: hosts that share nothing but its clock, joined by emulated wires.
//!
//! A host is a network namespace without a name: it lives as long as a thread, a process or a
//! descriptor is in it, and its devices live as long as this process holds them. So nothing is left
//! behind, however the process ends; programs that it started are killed with it, and those that hid
//! from that (grandchildren of a process that was killed itself) by the next network.

mod child;
mod cluster;
mod leftovers;
mod namespace;
mod network;
mod tun;

pub use child::Child;
pub use cluster::Cluster;
pub use leftovers::clear as clear_leftovers;
pub use namespace::Namespace;
pub use network::{Access, Ethernet, Host, Network, possible};
pub use tun::Tun;

use std::io;

/// Lets this process, and those that it starts, have so many files and sockets open.
///
/// # Errors
/// When the system allows no more.
pub fn allow_files(count: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let raised = |limit: Option<u64>| limit.map(|limit| limit.max(count));
    let limit = Rlimit { current: raised(now.current), maximum: raised(now.maximum) };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Why there can be no network.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not allowed.
    #[error(
        "emulated networks need root (the capabilities NET_ADMIN and SYS_ADMIN): run it with sudo"
    )]
    NotRoot,
    /// No TUN.
    #[error(
        "/dev/net/tun cannot be used: {0}; load the module `tun`, or let the container have it"
    )]
    Tun(io::Error),
    /// No iproute2.
    #[error("`ip` cannot be run: {0}; install iproute2")]
    Ip(io::Error),
    /// It did not like its orders.
    #[error("`ip` refused to set up {host}: {said}")]
    Refused {
        /// The host.
        host: String,
        /// What `ip` wrote.
        said: String,
    },
    /// A kernel setting.
    #[error("cannot set {name}: {why}")]
    Setting {
        /// As sysctl names it.
        name: String,
        /// What the system says.
        why: io::Error,
    },
    /// A program.
    #[error("`{program}` cannot be started: {why}")]
    Program {
        /// Its name.
        program: String,
        /// What the system says.
        why: io::Error,
    },
    /// Threads, descriptors.
    #[error("the system refuses: {0}")]
    System(#[from] io::Error),
}
