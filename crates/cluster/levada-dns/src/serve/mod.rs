//! The server: queries come over UDP and TCP, and are answered by the zones and nodes of this moment.

mod metrics;
mod server;
mod tcp;
mod udp;

pub use metrics::DnsMetrics;
pub use server::{Identity, Published, Server, Transport};
pub use tcp::{TcpLimits, accept, accept_each};
pub use udp::{Receiving, receive};
