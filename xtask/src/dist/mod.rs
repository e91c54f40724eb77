//! What a release ships: the program, optimised by a profile, and the packages around it.

mod packages;
mod profiled;

use std::path::Path;

pub(crate) use packages::trial;
pub(crate) use profiled::{sysroot, target_directory};

/// Builds the program and packs it.
///
/// # Errors
/// When a build, the load or a package fails.
pub(crate) fn build() -> anyhow::Result<()> {
    pack(&profiled::build()?)
}

/// Packs a program that was built before.
///
/// # Errors
/// When a package fails.
pub(crate) fn pack(program: &Path) -> anyhow::Result<()> {
    packages::all(program)
}
