//! Operating system interfaces that go beyond files and sockets: the state of a TCP connection,
//! closing by reset, TCP handoff, and emulated networks within one machine.
//!
//! ```text
//! activation     starts a program with listening sockets, as systemd does
//! admin_listener a listener for operators, in the network or at a Unix socket
//! bpf        kernel programs that steer packets of connections that were handed off
//! client     a client's connection that was accepted
//! cached     whether a file is in the page cache
//! clock      whether the clock is synchronised
//! datagrams  many datagrams and their answers by one system call each
//! dormant    finds connections whose client has disappeared
//! first_bytes  the first bytes of a connection, before they are taken
//! handoff    moves a connection from its socket to another one, on another host
//! incoming   accepted connections that the runtime does not know yet
//! memory     the memory of this process and of the machine
//! listening  sockets that take their address before they listen
//! open_files the limit of open files and sockets
//! owner      the user whose process has the other end of a connection within this machine
//! pipe       moves bytes between sockets within the kernel (splice)
//! privileges the user that the process runs as, and its capabilities
//! proxy_protocol the client's address, as a proxy states it
//! resting    connections without a request, which give way to new ones
//! signals    signals that an operator or a supervisor sends
//! stop       the stop of a program, as its connections see it
//! tcp        the kernel's state of a connection; closing by reset
//! udp        the UDP sockets of one address, and the steering of packets between two processes
//! lab        emulated hosts (network namespaces) and wires, which end with the process
//! wire       one emulated wire: rate, delay, loss and a bounded queue in each direction
//! ```
//!
//! This is the only crate with `unsafe`, and each block says why it is sound. It supports Linux
//! only, except for `wire::Shape`: on other systems the functions return an error.

#[cfg(target_os = "linux")]
pub mod activation;
#[cfg(target_os = "linux")]
pub mod admin_listener;
#[cfg(target_os = "linux")]
pub mod bpf;
pub mod cached;
pub mod client;
#[cfg(target_os = "linux")]
pub mod clock;
#[cfg(target_os = "linux")]
pub mod datagrams;
pub mod dormant;
pub mod first_bytes;
#[cfg(target_os = "linux")]
pub mod handoff;
#[cfg(target_os = "linux")]
pub mod incoming;
#[cfg(target_os = "linux")]
pub mod lab;
#[cfg(target_os = "linux")]
pub mod listening;
#[cfg(target_os = "linux")]
pub mod memory;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
pub mod open_files;
#[cfg(target_os = "linux")]
pub mod owner;
#[cfg(target_os = "linux")]
pub mod pipe;
#[cfg(target_os = "linux")]
pub mod privileges;
pub mod proxy_protocol;
pub mod resting;
pub mod signals;
pub mod stop;
pub mod tcp;
#[cfg(target_os = "linux")]
pub mod udp;
pub mod wire;
