//! The server on loopback sockets, asked by the tools of other name servers: kdig, delv.

mod dnssec;
mod mutations;
mod protocol;
mod routed;
mod support;
