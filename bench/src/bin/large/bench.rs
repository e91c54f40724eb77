//! The settings that all cases share.

use std::{error::Error, path::PathBuf};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The settings that all cases share.
pub(crate) struct Bench {
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    pub(crate) parts: Vec<String>,
    pub(crate) levada: PathBuf,
    /// Where the nodes' logs are kept.
    pub(crate) logs: Option<PathBuf>,
    /// Everything that is written goes here, and away at the end.
    pub(crate) dir: PathBuf,
}

impl Bench {
    /// Whether a part of a case is to be measured.
    pub(crate) fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}
