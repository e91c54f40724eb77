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

#[allow(dead_code, unused_imports)]
mod answer;
#[allow(dead_code, unused_imports)]
mod flow;
#[allow(dead_code, unused_imports)]
mod frame;
#[allow(dead_code, unused_imports)]
mod head;
#[allow(dead_code, unused_imports)]
mod hpack;

/// The fields of header blocks, for fuzzing only.
pub(crate) fn fields_of<'a>(
    blocks: impl Iterator<Item = &'a [u8]>,
) -> Option<Vec<(String, usize)>> {
    hpack::fields_of(blocks)
}
