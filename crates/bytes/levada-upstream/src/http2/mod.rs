//! HTTP/2 towards servers: connections that many requests share.
//!
//! ```text
//!   Server::exchange ── Http2Pool ── Http2Connection, with a place on it ── exchange: the head
//!                                          │                                    │
//!                              driver: frames, pings, windows      Http2Body, and the Upload next to it
//! ```
//!
//! The crate h2 frames and multiplexes. It is used without hyper's client over it: that one needs a task and a
//! channel for each request, does not pass on interim responses, and takes a stream that was reset without an error
//! for the end of a body.

mod body;
mod connection;
mod driver;
mod exchange;
mod outgoing;
mod pool;

pub(crate) use self::{body::Http2Body, pool::Http2Pool};
