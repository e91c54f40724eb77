//! Which bytes next: how a large file is fetched in pieces, and how one is resumed.
//!
//! State machines in quinn's manner: they are handed the time and what has happened, and say what to
//! ask for and when to look again. Sockets, clocks and memory are the driver's: a node
//! (`levada-edge`), a client, a simulation.

mod chunk_url;
mod chunked;
mod digest;
mod held;
pub mod manifest;
mod progress;
pub mod resume;
mod source;
mod timeout;

pub use chunk_url::{ChunkUrl, MARKER, MAX_RETRIES};
pub use chunked::{Chunked, Counts, Mode, Next, Plan, Request, RequestId};
pub use digest::{Algorithm, Digest};
pub use held::Held;
pub use source::Sources;
pub use timeout::{Average, Patience, Timeout};
