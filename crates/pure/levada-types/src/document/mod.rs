//! A TOML file as a person wrote it: the place of each value, and all problems that checks find, each
//! with its line and its remedy.
//!
//! A reader parses a [`Source`] into a tree of [`Node`]s, compares it with what may stand there, and
//! hands each problem with its [`Path`] to [`Findings`]. The [`Report`] lists them by line.

mod env;
mod errors;
mod tree;

use std::{
    fs::File,
    io::{self, Error, ErrorKind, Read as _},
    path::Path as FilePath,
};

pub use env::{EnvError, substitute};
pub use errors::{Findings, Problem, Report, Said, Severity, did_you_mean, nearest};
pub use tree::{Entry, Node, Path, Source, Span, SyntaxError, Value};

/// Reads the file at `path`, if it is not too large for a file that a person wrote.
///
/// # Errors
/// When it cannot be read, or is larger.
pub fn read_source(path: &FilePath) -> io::Result<Source> {
    Ok(Source { name: path.display().to_string(), text: read_bounded(path)? })
}

/// The text of the file at `path`. The limit reports a disk image, named by mistake, at once.
fn read_bounded(path: &FilePath) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    if file.take(LARGEST_FILE + 1).read_to_string(&mut text)? as u64 > LARGEST_FILE {
        let message = format!("larger than {LARGEST_FILE} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// A limit far beyond any cluster's configuration.
const LARGEST_FILE: u64 = 16 << 20;
