//! Two small programs in the kernel that let connections move, at `tc ingress` (Linux 5.10).
//!
//! ```text
//! steer   front-end   a connection that was handed off: its packets go on to the back-end
//! guard   back-end    a packet that comes before its connection: dropped, not answered by a reset
//! ```
//!
//! They are written here, instruction by instruction (`assembler`), and loaded by `bpf(2)`.

mod assembler;
mod flows;
mod guard;
mod kernel;
mod packet;
mod steer;
mod steer6;

use std::{io, net::IpAddr};

pub use guard::Guard;
pub use steer::{Deafness, Hop, Steered, Steering, undeafen};

/// Why connections cannot be moved.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// No table.
    #[error(
        "the kernel makes no BPF table: {0}; the process needs the capabilities NET_ADMIN and BPF"
    )]
    Table(io::Error),
    /// A program was refused.
    #[error(
        "the kernel takes no BPF program: {0}; it must be Linux 5.10 or later, and the process needs \
         the capabilities NET_ADMIN and BPF"
    )]
    Program(io::Error),
    /// Sockets cannot be taken apart.
    #[error("connections cannot be moved: {0}; the process needs the capability NET_ADMIN")]
    Repair(io::Error),
    /// No such device.
    #[error("there is no network interface {device}: {why}")]
    NoDevice {
        /// Its name.
        device: String,
        /// What the system says.
        why: io::Error,
    },
    /// Somebody else is there.
    #[error("another Levada does this at {device} already; one is enough")]
    Taken {
        /// The device.
        device: String,
    },
    /// The kernel refuses it there.
    #[error(
        "nothing can be attached at tc ingress of {device}: {why}; the kernel needs clsact \
         (NET_SCH_INGRESS) and cls_bpf (NET_CLS_BPF)"
    )]
    Attach {
        /// The device.
        device: String,
        /// What the system says.
        why: io::Error,
    },
    /// No way.
    #[error("there is no route to {address}: {why}")]
    Route {
        /// Where to.
        address: IpAddr,
        /// What the system says.
        why: io::Error,
    },
    /// A router is between.
    #[error(
        "{address} is behind the router {gateway}; connections can be handed to machines on a network \
         that this one is on as well"
    )]
    NoNeighbour {
        /// Where to.
        address: IpAddr,
        /// By way of it.
        gateway: IpAddr,
    },
}
