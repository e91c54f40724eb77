//! HTTP on connections: HTTP/1.1 on both sides of a node, HTTP/2 towards clients, and WebSocket ([`websocket`]).
//!
//! ```text
//!   client ── serve_http1 ── service ── client::UpstreamConnection ── server
//!                 │                                   │
//!                 └─────────── ZeroCopyQueue ─────────┘
//! ```
//!
//! Towards clients, this crate serves HTTP/1 ([`serve_http1`]) and HTTP/2 ([`serve_http2`]), and refuses everything
//! that two parsers could read in two ways. Towards servers it has a client ([`UpstreamConnection`]). Bodies that the system moves by itself pass both by ([`ZeroCopyQueue`]).
//!
//! The crate decides nothing about caching or routing. It is handed limits, deadlines and files.

mod authority;
mod client;
pub mod date;
mod deadline;
mod metrics;
mod patience;
mod server;
mod syntax;
mod trailers;
pub mod wakeups;
pub mod websocket;
mod zero_copy;

pub use authority::{NO_HOST, authority};
pub use client::{Io, ResponseBodyError, UpstreamConnection, UpstreamError, UpstreamRequest};
pub use deadline::{DeadlineTimer, after};
pub use metrics::ConnectionMetrics;
pub use patience::Patience;
pub use server::{
    ConnectionEnd, ConnectionLimits, EndReason, Fault, HeadBounds, Http1Conduct, Http1Service,
    Http2Service, Http2Tunnel, IncomingBody, IncomingBodyError, Interim, InterimWay, Interims,
    Outlet, Pause, QUIET, Served, Watchdog, WatchedBody, WatchedStream, check_parsed, first_head,
    names_host, names_websocket, rest, serve_http1, serve_http2, write_integer,
};
pub use trailers::{judge_request_trailers, judge_response_trailers};
pub use zero_copy::{FileRange, Hold, Segments, ZeroCopyChunk, ZeroCopyQueue};

/// The parsers of bytes from outside, for fuzzing and tests only.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::{
        client::judgement::{AnswerEnd, ParsedAnswer, read_reply},
        server::judgement::{Judgement, judge},
    };

    /// The fields of header blocks of HTTP/2 that follow each other on a connection, each with its size.
    pub fn http2_fields<'a>(
        blocks: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Vec<(String, usize)>> {
        crate::server::http2::fields_of(blocks)
    }
}
