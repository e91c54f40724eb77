//! The choice of the next bytes: how a large file is fetched in pieces, and how a download is resumed.
//!
//! The state machines follow quinn: a driver hands them the time and events, and they return requests
//! and the time of the next call. Sockets, clocks and memory belong to the driver: a node
//! (`levada-edge`), a client, or the simulator.
#![doc = include_str!("../README.md")]

mod chunk_lists;
mod chunk_url;
mod chunked;
mod digest;
mod held;
pub mod manifest;
pub mod resume;
mod source;
mod timeout;
mod transfers;

pub use chunk_lists::{Chunk, ChunkListError, ChunkLists};
pub use chunk_url::{ChunkUrl, MARKER, MAX_RETRIES};
pub use chunked::{Choice, Chunked, Mode, Next, PieceCounts, Plan, Progress, Request, RequestId};
pub use digest::{Algorithm, Digest};
pub use held::Held;
pub use source::Sources;
pub use timeout::{Average, Patience, Timeout};
pub use transfers::Transfers;
