//! The side of clients: HTTP/1, and HTTP/2 ([`http2`]).
//!
//! ```text
//!   socket or TLS stream ── Wire ──> HeadParser ──> service ──> encoder ──> SendQueue ── Wire ──> socket
//!                                    BodyDecoder ──> IncomingBody
//! ```
//!
//! Requests are read strictly ([`parser`], [`request_body`]): the connection ends at the first byte with a
//! fault, which gets an answer of its own. It ends as well when nothing moves on it.

mod encoder;
mod facts;
mod fault;
mod head;
pub(crate) mod http2;
mod incoming;
mod interim;
pub(crate) mod judgement;
mod ledger;
mod outlet;
mod parsed;
mod parser;
mod request_body;
mod rest;
mod send_queue;
mod serve;
mod turn;
mod watchdog;
mod wire;

use std::time::Duration;

pub(crate) use self::request_body::OVERHEAD;
pub use self::{
    facts::names_websocket,
    fault::Fault,
    head::names_host,
    http2::{Http2Service, Http2Tunnel, serve_http2, write_integer},
    incoming::{IncomingBody, IncomingBodyError},
    interim::{Interim, InterimWay, Interims},
    ledger::ConnectionEnd,
    outlet::Outlet,
    parsed::check_parsed,
    parser::{HeadBounds, first_head},
    rest::{QUIET, Served, rest},
    serve::{Http1Conduct, Http1Service, Pause, serve_http1},
    watchdog::{EndReason, Watchdog, WatchedBody, WatchedStream},
};
use crate::patience::Patience;

/// The limits of one client's connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The bounds of a request head.
    pub head: HeadBounds,
    /// The longest time without a request.
    pub idle_timeout: Duration,
    /// The longest time from the first byte of a head to its last.
    pub head_timeout: Duration,
    /// The wait for the pieces of a request body.
    pub body: Patience,
    /// The wait until the client takes bytes of a response.
    pub send: Patience,
}

#[cfg(test)]
mod tests;
