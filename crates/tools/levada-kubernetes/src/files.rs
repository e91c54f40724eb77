//! The files of a node, each written whole: a node that watches them never reads a part of one.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
};

use crate::{certificates::CertificateFile, document::Derived};

/// The name of the configuration.
const CONFIGURATION: &str = "levada.toml";

/// Writes what has changed: certificates first, the configuration that names them, and then removes certificates that it
/// names no more.
///
/// # Errors
/// If a file cannot be written. Those that were written stay.
pub(crate) fn write(derived: &Derived, output: &Path) -> io::Result<bool> {
    for one in &derived.certificates {
        write_certificate(one, output)?;
    }
    let text = format!("# Written by `levada kubernetes sites`.\n{}", derived.document);
    let is_new = replace(&output.join(CONFIGURATION), text.as_bytes())?;
    for entry in fs::read_dir(output.join("tls")).into_iter().flatten() {
        let path = entry?.path();
        if !derived.certificates.iter().any(|one| one.paths(output).contains(&path)) {
            fs::remove_file(path)?;
        }
    }
    Ok(is_new)
}

/// Writes the files of a certificate.
pub(crate) fn write_certificate(one: &CertificateFile, output: &Path) -> io::Result<()> {
    let [chain, key] = one.paths(output);
    if let Some(directory) = chain.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    }
    replace(&key, &one.key)?;
    replace(&chain, &one.chain).map(drop)
}

/// Replaces a file, unless it has this content already.
fn replace(path: &Path, content: &[u8]) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|before| before == content) {
        return Ok(false);
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(content)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o640))?;
    file.persist(path)?;
    Ok(true)
}
