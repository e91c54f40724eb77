//! Files that a configuration names: whether they exist and have the right content.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::unix::fs::FileTypeExt as _,
    path::PathBuf,
};

use super::Check;
use crate::text::Upstream;
use levada_types::document::Path;

/// The largest size of certificates and secrets.
const LARGEST: u64 = 4 << 20;

impl Check<'_, '_> {
    /// Reads a PEM file that contains a block of this kind, such as `CERTIFICATE`.
    pub(super) fn pem(
        &mut self,
        given: &Option<String>,
        kind: &str,
        path: &Path,
    ) -> Option<PathBuf> {
        let (file, content) = self.content(given.as_deref()?, path)?;
        let begins = |line: &str| line.starts_with("-----BEGIN ") && line.contains(kind);
        if content.lines().any(begins) {
            return Some(file);
        }
        self.error(path, format!("{} holds no PEM block of the kind {kind}", file.display()))
            .help(format!("it should have a line `-----BEGIN {kind}-----`"));
        None
    }

    /// Reads a file; returns its path and content.
    pub(super) fn content(&mut self, given: &str, path: &Path) -> Option<(PathBuf, String)> {
        let file = self.directory.join(given);
        let mut content = String::new();
        let read =
            File::open(&file).and_then(|opened| opened.take(LARGEST).read_to_string(&mut content));
        match read {
            Ok(_) => Some((file, content)),
            Err(error) => {
                let message = format!("cannot read {}: {error}", file.display());
                let help = "relative paths begin at the configuration file's directory";
                let help = (!file.is_absolute() || given != file.to_string_lossy())
                    .then(|| help.to_owned());
                self.error(path, message).maybe_help(help).none()
            }
        }
    }

    /// Checks that a server's Unix socket is a socket, or that its source exists, if it has one.
    pub(super) fn socket(&mut self, server: &Upstream, path: &Path) {
        self.source_is_there(server, path);
        let Upstream::Unix(file) = server else { return };
        match std::fs::metadata(file) {
            Ok(found) if found.file_type().is_socket() => {}
            Ok(_) => {
                self.error(path, format!("{} is not a socket", file.display()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.warning(path, format!("there is no socket {} now", file.display()))
                    .help("is the server running? it may also be started later");
            }
            Err(error) => {
                self.warning(path, format!("cannot look at {}: {error}", file.display()))
                    .help("this process must be able to enter its directories");
            }
        }
    }

    /// The path of a file that may have to be created in an existing directory.
    pub(super) fn in_existing_directory(&mut self, given: &str, path: &Path) -> Option<PathBuf> {
        let file = self.directory.join(given);
        let parent = file.parent().unwrap_or(&file);
        if parent.as_os_str().is_empty() || parent.is_dir() {
            return Some(file);
        }
        self.error(path, format!("there is no directory {}", parent.display()))
            .help(format!("create it: mkdir -p {}", parent.display()));
        None
    }
}
