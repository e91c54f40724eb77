//! The configuration of a node, checked down to whether the node could start by it.

use std::path::Path;

use anyhow::{Context as _, bail};
use levada_config::{Checked, Settings};

/// Reads and checks the file at `path`.
///
/// # Errors
/// If the file cannot be read at all.
pub(crate) fn load(path: &Path) -> anyhow::Result<Checked> {
    levada_config::load(path, &start_error)
        .with_context(|| format!("cannot read {}", path.display()))
}

/// The settings of the file at `path`.
///
/// # Errors
/// If the file cannot be read, or has errors, which are those of the error.
pub(crate) fn usable(path: &Path) -> anyhow::Result<Settings> {
    let checked = load(path)?;
    let Some(settings) = checked.settings else {
        bail!("{} cannot be used:\n{}", path.display(), checked.report);
    };
    Ok(settings)
}

/// The reason why a node could not start by settings, if it could not.
pub(crate) fn start_error(settings: &Settings) -> Option<String> {
    levada_node::check(settings).err().map(|error| error.to_string())
}
