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

/// The files that a pattern names: of a configuration that has read `known` files already, at a depth of files
/// within files. A file that includes itself, or is included through a glob again and again, would never end.
pub fn included(
    includes: &dyn Includes,
    pattern: &str,
    depth: usize,
    known: usize,
) -> Result<Vec<InputFile>, String> {
    const DEEPEST: usize = 16;
    const MOST: usize = 1_000;
    if depth >= DEEPEST {
        return Err(format!("files include each other more than {DEEPEST} times"));
    }
    let files = includes.matching(pattern)?;
    if files.is_empty() && !pattern.contains(['*', '?', '[']) {
        return Err("there is no such file".to_owned());
    }
    if known + files.len() > MOST {
        return Err(format!("more than {MOST} files are included"));
    }
    Ok(files)
}
