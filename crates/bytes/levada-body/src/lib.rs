//! Bodies in blocks: one fetch for many readers, each at its own speed.
//!
//! ```text
//!   SingleFlight ── leader, followers, one outcome      knows no bytes
//!   BlockedBody ─┬─ RunningFetch    the fetch of the whole, written by a BodyWriter
//!                ├─ GrowingBlock    a block while it arrives, written by a BlockWriter
//!                └─ BlockOrigin     the source of blocks that are missing, or of the whole again
//!   part ── the parts that are stored off the block grid
//!   pieces ── large files, and their pieces as objects of their own
//!   Script ── steps of a response's body; ReadAt reads them: BlockReader, StoredReader
//! ```
//!
//! Every body that requests share is a [`BlockedBody`]; a short one has one block. The crate does not
//! know requests, sites and servers: its caller fetches, and implements [`BlockOrigin`].
//! [`compress`] codes bodies, and [`files`] makes those of a directory.

mod again;
mod block_reader;
mod blocked;
mod body_writer;
pub mod compress;
mod digest_check;
mod error;
mod fetch_leader;
pub mod files;
mod flight;
mod growing;
mod large;
pub mod part;
pub mod partial;
mod pieces;
mod read_at;
mod running;
mod stored_reader;
mod waiters;

pub use again::{AskedAgain, BodyAgain};
pub use block_reader::BlockReader;
pub use blocked::{
    BlockOrigin, BlockOutcome, BlockTiers, BlockedBody, LongBody, Parts, Representation,
};
pub use body_writer::{BodyWriter, NoReader};
pub use digest_check::DigestCheck;
pub use error::ReadError;
pub use fetch_leader::FetchLeader;
pub use flight::{FlightLeader, FlightStart, Follower, Joined, SingleFlight};
pub use growing::{BlockMemory, BlockWriter, GrowingBlock};
pub use large::LargeMetrics;
pub use pieces::{
    KnownFiles, LargeFile, PieceFault, Piecewise, judge_piece, piece_as_object, version_of,
};
pub use read_at::{ReadAt, Script, Step};
pub use stored_reader::{StoredReader, chunk};
