//! The reports as text.

use std::io::{self, Write};

use super::{Published, PullReport};

impl Published {
    /// Writes it for people.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let manifest = self.manifest.display();
        writeln!(out, "{manifest}: {} files, {} bytes", self.files, self.bytes)?;
        writeln!(
            out,
            "{} bytes read; next to the tree: {} of manifest, {} of pack, {} of chunk lists",
            self.read, self.manifest_bytes, self.pack_bytes, self.chunks_bytes
        )?;
        for skipped in &self.skipped {
            writeln!(out, "skipped: {} is {}", skipped.path.display(), skipped.kind)?;
        }
        if !self.skipped.is_empty() {
            writeln!(out, "{} skipped", self.skipped.len())?;
        }
        Ok(())
    }
}

impl PullReport {
    /// Whether the destination was equal to the manifest already.
    pub fn is_idle(&self) -> bool {
        let done = [&self.fetched, &self.dressed, &self.linked, &self.deleted];
        self.complete && done.iter().all(|paths| paths.is_empty())
    }

    /// Writes it for people: what was done, or would be, with the paths if it is `verbose`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut impl Write, is_plan: bool, verbose: bool) -> io::Result<()> {
        let would = if is_plan { "would be " } else { "" };
        if verbose {
            for (what, paths) in [
                ("fetch", &self.fetched),
                ("change", &self.dressed),
                ("link", &self.linked),
                ("delete", &self.deleted),
            ] {
                for path in paths {
                    writeln!(out, "{what:6}  {path}")?;
                }
            }
        }
        writeln!(
            out,
            "{} files {would}fetched ({} bytes, {} of them were here), {} unchanged, {} {would}linked, {} {would}deleted",
            self.fetched.len(),
            self.bytes,
            self.reused,
            self.unchanged,
            self.linked.len(),
            self.deleted.len(),
        )?;
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        for failure in &self.failed {
            writeln!(out, "failed: {}: {}", failure.path, failure.error)?;
        }
        if !self.complete {
            writeln!(out, "{} failed; the same command goes on", self.failed.len())?;
        }
        Ok(())
    }
}
