//! The counts of a large file that comes in pieces.

/// Counts of a transfer in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceCounts {
    /// Pieces that came.
    pub pieces: u64,
    /// Requests that replaced one that was late or failed.
    pub retries: u64,
    /// The part of the retries that replaced a late one.
    pub late: u64,
    /// Second requests for a piece while the first was still under way.
    pub hedges: u64,
    /// How often the client was ready for a piece that was not here yet.
    pub stalls: u64,
}
