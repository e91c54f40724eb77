//! Content codings at the edge (RFC 9110 Sec. 8.4): which one a client gets, coded copies of stored
//! responses, and bounded work.
//!
//! ```text
//!   Accepts ──── the codings that a client gets, in order (Accept-Encoding)
//!   CompressSettings ── which responses are coded; the head of a coded response
//!   Coder ────── a body on its way through an Encoder
//!     └─ Workers ── how many bodies are coded at once, and at which level
//!   Copies ───── a coded copy of an object, made once and read by all who want it meanwhile
//! ```
//!
//! A copy belongs to one version of its original. [`StoredHead::copies`](levada_store::StoredHead)
//! is that version, and part of the keys of the copies: when a new version takes the place of an
//! original, nothing leads to the copies of the former one. Whether a copy may be served is decided
//! by its original, which every request looks up first: its freshness, its purges and its
//! revalidation hold for the copies without more work.
//!
//! Nothing is decoded here. So bombs do not concern a node.

mod accepts;
mod coder;
mod coding;
mod copies;
mod encoder;
mod head;
mod held;
mod metrics;
mod settings;
mod workers;

pub use accepts::Accepts;
pub use coder::{Coder, CoderError};
pub use coding::Coding;
pub use copies::{Copies, CopySource, copy_key};
pub use metrics::CompressMetrics;
pub use settings::{CompressSettings, DEFAULT_TYPES, Levels, TypePattern};
pub use workers::{Place, Workers};
