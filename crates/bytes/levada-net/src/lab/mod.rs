//! Emulated networks within one machine: hosts that share only its clock, connected by emulated
//! wires.
//!
//! A host is an unnamed network namespace: it lives while a thread, a process or a descriptor is in
//! it, and its devices live while this process holds them. So nothing is left behind, however the
//! process ends. Programs that it started are killed with it. The next network kills programs that
//! escaped this, such as grandchildren of a process that was itself killed.

mod child;
mod cluster;
pub mod file_system;
mod leftovers;
mod namespace;
mod network;
mod tun;

pub use child::Child;
pub use cluster::LabCluster;
pub use leftovers::clear as clear_leftovers;
pub use namespace::Namespace;
pub use network::{Access, Ethernet, Host, Network, possible};
pub use tun::Tun;

use std::io;

/// Allows this process and its children this many open files and sockets.
///
/// # Errors
/// When the system does not allow it.
pub fn allow_files(count: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let raised = |limit: Option<u64>| limit.map(|limit| limit.max(count));
    let limit = Rlimit { current: raised(now.current), maximum: raised(now.maximum) };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// The reason why there can be no network.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process lacks the capabilities.
    #[error(
        "emulated networks need root (the capabilities NET_ADMIN and SYS_ADMIN): run it with sudo"
    )]
    NotRoot,
    /// There is no TUN device.
    #[error(
        "/dev/net/tun cannot be used: {0}; load the module `tun`, or give the container access to it"
    )]
    Tun(io::Error),
    /// There is no iproute2.
    #[error("`ip` cannot be run: {0}; install iproute2")]
    Ip(io::Error),
    /// `ip` returned an error.
    #[error("`ip` refused to set up {host}: {said}")]
    Refused {
        /// The host.
        host: String,
        /// The error text of `ip`.
        said: String,
    },
    /// A kernel setting could not be set.
    #[error("cannot set {name}: {why}")]
    Setting {
        /// Its sysctl name.
        name: String,
        /// The error of the system.
        why: io::Error,
    },
    /// A program could not be started.
    #[error("`{program}` cannot be started: {why}")]
    Program {
        /// The name of the program.
        program: String,
        /// The error of the system.
        why: io::Error,
    },
    /// The system has no more threads or descriptors.
    #[error("the system refuses: {0}")]
    System(#[from] io::Error),
}
