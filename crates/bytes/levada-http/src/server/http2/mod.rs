//! The server side of HTTP/2.
//!
//! ```text
//!   socket or TLS stream ── Wire ──> frames ── Decoder ──> HeadBuilder ──> service
//!                                       └─ DATA ── Inflow ──> IncomingBody ──┘
//!   socket or TLS stream <── Wire <── SendQueue <── frames <── Outflow <── response
//! ```
//!
//! One task drives all streams of a connection (`serve`). A request is answered where it was read; one that has to
//! wait has a place, and is polled again when it is woken. All frames of one poll leave in one write.

mod answer;
mod flow;
mod frame;
mod head;
mod hpack;
mod serve;
mod streams;
mod tunnel;

pub use self::{
    hpack::encoder::write_integer,
    serve::{Http2Service, serve_http2},
    tunnel::Http2Tunnel,
};

/// The fields of header blocks, for fuzzing only.
pub(crate) fn fields_of<'a>(
    blocks: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<(String, usize)>> {
    hpack::fields_of(blocks)
}
