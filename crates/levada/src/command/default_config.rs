//! The configuration file of a command that was given none.

use std::path::{Path, PathBuf};

/// The path of packages.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/levada/levada.toml";

/// The places, in the order in which they are tried: the working directory, then the path of packages.
pub(super) const PLACES: [&str; 2] = ["levada.toml", DEFAULT_CONFIG];

/// The files that exist.
pub(super) fn existing() -> impl Iterator<Item = PathBuf> {
    PLACES.into_iter().map(Path::new).filter(|path| path.exists()).map(Path::to_owned)
}
