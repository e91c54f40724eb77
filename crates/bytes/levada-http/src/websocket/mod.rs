//! Tunnels: connections that switch from HTTP to WebSocket.
//!
//! ```text
//!   Handshake     the request that asks for WebSocket, over HTTP/1.1, 2 or 3
//!       │
//!   Tunnel::run   bytes in both directions, until both have ended, the time is over, or the node leaves
//!       ├── Way            one direction, without memory while nothing moves
//!       └── FramePosition  where a frame ends: a tunnel that the node ends is not cut within one
//! ```
//!
//! A tunnel is bytes. The node reads the heads of WebSocket's frames only to know where they end, so that it
//! can say goodbye to both sides with a frame of its own. It does not check frames, and changes none.
//!
//! The crate opens no connections and knows no sites: it is handed both streams.

mod frames;
mod handshake;
mod metrics;
mod run;
mod way;

pub use frames::FramePosition;
pub use handshake::{Handshake, HandshakeFault};
pub use metrics::TunnelMetrics;
pub use run::{EndReason, Tunnel, TunnelEnd, wait_part_of};
