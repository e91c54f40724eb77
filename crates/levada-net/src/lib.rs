//! What Levada needs of the operating system beyond files and sockets: the state of a TCP connection,
//! an end by reset, and whole networks within one machine.
//!
//! ```text
//! bpf        programs in the kernel by which packets follow a connection that moves
//! cached     what the system has of a file in memory
//! dormant    which connections have lost their client
//! handoff    a connection taken from its socket, and put into another, elsewhere
//! incoming   connections that the runtime does not know yet
//! pipe       bytes from socket to socket that this process does not see
//! tcp        what the kernel knows of a connection; a close that tells the other side at once
//! lab        hosts (network namespaces) and the wires between them, gone with the process
//! wire       one wire: rate, delay, loss and a bounded queue in each direction
//! ```
//!
//! The only crate with `unsafe`, and each block says why it is sound. Linux only, but for `wire::Shape`:
//! elsewhere the functions say that they cannot do it here.

#[cfg(target_os = "linux")]
pub mod bpf;
pub mod cached;
pub mod dormant;
#[cfg(target_os = "linux")]
pub mod handoff;
#[cfg(target_os = "linux")]
pub mod incoming;
#[cfg(target_os = "linux")]
pub mod lab;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
pub mod pipe;
pub mod tcp;
pub mod wire;
