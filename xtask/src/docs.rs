//! Writes the generated parts of the documents, and lists the stale ones.

use std::fs;

use anyhow::Context as _;

use crate::{pages, workspace::root};

/// Writes every stale page.
///
/// # Errors
/// When a page cannot be made or written.
pub(crate) fn write() -> anyhow::Result<()> {
    for page in stale()? {
        let path = root().join(&page.path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, page.text).with_context(|| page.path.clone())?;
        eprintln!("xtask: wrote {}", page.path);
    }
    Ok(())
}

/// The pages whose text on disk differs from the generated text.
///
/// # Errors
/// When a page cannot be made.
pub(crate) fn stale() -> anyhow::Result<Vec<pages::Page>> {
    let mut pages = pages::all()?;
    pages.retain(|page| {
        fs::read_to_string(root().join(&page.path)).ok().as_ref() != Some(&page.text)
    });
    Ok(pages)
}
