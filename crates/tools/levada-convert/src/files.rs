//! The files of a configuration. The caller reads them; this crate opens nothing.

/// A file that was read.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Its path, for places in reports.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Reads the files that a configuration includes.
pub trait Includes {
    /// The files that `pattern` names, in order. A relative pattern begins where the program that the
    /// configuration is for would begin.
    ///
    /// # Errors
    /// The reason why they cannot be read, for the report. A pattern that matches nothing is an empty list.
    fn matching(&self, pattern: &str) -> Result<Vec<InputFile>, String>;
}

/// A configuration without included files.
#[derive(Clone, Copy, Debug)]
pub struct NoIncludes;

impl Includes for NoIncludes {
    fn matching(&self, _: &str) -> Result<Vec<InputFile>, String> {
        Err("included files are not read here".to_owned())
    }
}

/// Files beyond this number are not included: a file that includes itself through a glob would never end.
pub(crate) const MOST_FILES: usize = 1_000;

/// Files within files within files.
pub(crate) const DEEPEST: usize = 16;
