//! The configuration of a node, checked down to whether the node could start by it.

use std::{io, path::Path};

use levada_config::{Checked, Settings};

/// Reads and checks the file at `path`.
///
/// # Errors
/// If the file cannot be read at all.
pub(crate) fn load(path: &Path) -> io::Result<Checked> {
    levada_config::load(path, &start_error)
}

/// The reason why a node could not start by settings, if it could not.
pub(crate) fn start_error(settings: &Settings) -> Option<String> {
    levada_node::check(settings).err().map(|error| error.to_string())
}
