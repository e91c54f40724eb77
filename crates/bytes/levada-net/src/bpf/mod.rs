//! Two small BPF programs at `tc ingress` that let connections move between hosts (Linux 5.10).
//!
//! ```text
//! steer   front-end   a connection that was handed off: its packets are forwarded to the back-end
//! guard   back-end    a packet that arrives before its connection: it is dropped, not answered by
//! a reset
//! ```
//!
//! They are assembled here (`assembler`) and loaded by `bpf(2)`.

mod assembler;
mod flows;
mod guard;
mod kernel;
mod latest;
mod packet;
mod steer;
mod steer6;

use std::{io, net::IpAddr};

pub use guard::Guard;
pub use steer::{Hop, InputBlocker, Steered, Steering, unblock_input};

/// The reason why connections cannot be moved.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The kernel refused to create a table.
    #[error(
        "the kernel cannot create a BPF table: {0}; the process needs the capabilities NET_ADMIN and BPF"
    )]
    Table(io::Error),
    /// The kernel refused a program.
    #[error(
        "the kernel refuses a BPF program: {0}; it must be Linux 5.10 or later, and the process needs \
         the capabilities NET_ADMIN and BPF"
    )]
    Program(io::Error),
    /// The process may not use `TCP_REPAIR`.
    #[error("connections cannot be moved: {0}; the process needs the capability NET_ADMIN")]
    Repair(io::Error),
    /// There is no such device.
    #[error("there is no network interface {device}: {why}")]
    NoDevice {
        /// The name of the device.
        device: String,
        /// The error of the system.
        why: io::Error,
    },
    /// Two other processes have attached their filters.
    #[error("two other Levada processes already do this at {device}")]
    Taken {
        /// The name of the device.
        device: String,
    },
    /// The kernel cannot attach filters there.
    #[error(
        "a filter cannot be attached at tc ingress of {device}: {why}; the kernel needs clsact \
         (NET_SCH_INGRESS) and cls_bpf (NET_CLS_BPF)"
    )]
    Attach {
        /// The name of the device.
        device: String,
        /// The error of the system.
        why: io::Error,
    },
    /// There is no route.
    #[error("there is no route to {address}: {why}")]
    KernelRoute {
        /// The address of the back-end.
        address: IpAddr,
        /// The error of the system.
        why: io::Error,
    },
    /// The route passes a router.
    #[error(
        "{address} is behind the router {gateway}; connections can be handed to machines on a network \
         that this one is on as well"
    )]
    NoNeighbour {
        /// The address of the back-end.
        address: IpAddr,
        /// The router.
        gateway: IpAddr,
    },
}
