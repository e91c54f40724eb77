//! The files of other configurations, for `levada convert`, whose crate opens none.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use globset::GlobBuilder;
use levada_convert::{Conversion, FleetDirectory, Includes, InputFile, Ledger};

use levada_client::command::CommandStatus;

/// Reads a file.
///
/// # Errors
/// If it cannot be read, or is too large to be a configuration.
pub(crate) fn read(path: &Path) -> anyhow::Result<InputFile> {
    // Far beyond any configuration: it reports a disk image, named by mistake, at once.
    const LARGEST_FILE: u64 = 16 << 20;
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > LARGEST_FILE {
        bail!("cannot read {name}: larger than {LARGEST_FILE} bytes");
    }
    // Comments may be in other character sets.
    Ok(InputFile { name, text: String::from_utf8_lossy(&bytes).into_owned() })
}

/// The files of Traffic Server that are converted, of a directory or as they are named.
///
/// # Errors
/// If one cannot be read, or the directory has none.
pub(crate) fn traffic_server_files(paths: &[PathBuf]) -> anyhow::Result<Vec<InputFile>> {
    let [directory] = paths else { return paths.iter().map(|path| read(path)).collect() };
    if !directory.is_dir() {
        return Ok(vec![read(directory)?]);
    }
    let names = levada_convert::TRAFFIC_SERVER_FILES.iter().map(|name| directory.join(name));
    let files = names.filter(|path| path.exists()).map(|path| read(&path));
    let files: Vec<_> = files.collect::<anyhow::Result<_>>()?;
    if files.is_empty() {
        bail!(
            "{} has none of {}",
            directory.display(),
            levada_convert::TRAFFIC_SERVER_FILES.join(", ")
        );
    }
    Ok(files)
}

/// The files of Traffic Control, of a directory or as they are named. A database is named, and not read.
///
/// # Errors
/// If one cannot be read.
pub(crate) fn traffic_control_files(paths: &[PathBuf]) -> anyhow::Result<Vec<InputFile>> {
    let has_extension = |path: &Path, one: &str| path.extension().is_some_and(|own| own == one);
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let entries =
            fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let entries = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut own: Vec<_> = entries.collect::<Result<_, _>>()?;
        own.retain(|path| has_extension(path, "json") || has_extension(path, "mmdb"));
        own.sort();
        found.extend(own);
    }
    let file = |path: &PathBuf| match has_extension(path, "mmdb") {
        true => {
            let name = fs::canonicalize(path);
            let name = name.with_context(|| format!("cannot read {}", path.display()))?;
            Ok(InputFile { name: name.display().to_string(), text: String::new() })
        }
        false => read(path),
    };
    found.iter().map(file).collect()
}

/// Writes the directory of a fleet. One that is there is not changed: an operator may have worked on it.
///
/// # Errors
/// If it has files already, or cannot be written.
pub(crate) fn write_fleet(output: &Path, fleet: &FleetDirectory) -> anyhow::Result<()> {
    if fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} has files already: name another directory, or remove it", output.display());
    }
    for (path, text) in &fleet.files {
        let path = output.join(path);
        let written = fs::create_dir_all(path.parent().unwrap_or(output));
        let written = written.and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Writes the new file, or prints it.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_converted(
    conversion: &Conversion,
    output: Option<&Path>,
) -> anyhow::Result<()> {
    match output {
        Some(path) => fs::write(path, &conversion.toml)
            .with_context(|| format!("cannot write {}", path.display())),
        None => Ok(io::stdout().lock().write_all(conversion.toml.as_bytes())?),
    }
}

/// Says what became of the statements, and that the new file has these errors.
pub(crate) fn account(ledger: &Ledger, errors: &str) -> CommandStatus {
    eprint!("{}", levada_convert::report(ledger));
    if !errors.is_empty() {
        eprintln!("The new file cannot be used as it stands:\n{}", errors.trim_end());
    }
    let (differ, needless, left) = (ledger.differs.len(), ledger.needless.len(), ledger.left.len());
    let alike = ledger.taken.saturating_sub(differ);
    eprintln!(
        "{alike} converted, {differ} with a difference, {needless} not needed, {left} not converted"
    );
    CommandStatus::of(differ + left == 0 && errors.is_empty())
}

/// Included files, with relative names from the directory of the first file.
#[derive(Clone, Debug)]
pub(crate) struct IncludedFrom(PathBuf);

impl IncludedFrom {
    /// The ones of a configuration that begins in this file.
    pub(crate) fn file(path: &Path) -> Self {
        Self(path.parent().unwrap_or(Path::new("")).to_owned())
    }
}

impl Includes for IncludedFrom {
    fn matching(&self, pattern: &str) -> Result<Vec<InputFile>, String> {
        let paths = matching_paths(&self.0.join(pattern))?;
        paths.iter().map(|path| read(path).map_err(|error| format!("{error:#}"))).collect()
    }
}

/// The paths that a pattern names, sorted, one component after another.
fn matching_paths(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    const MOST: usize = 1_000;
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str().to_string_lossy();
        if !name.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        let glob = GlobBuilder::new(&name).literal_separator(true).build();
        let glob = glob.map_err(|error| error.to_string())?.compile_matcher();
        let mut next = Vec::new();
        for directory in &found {
            let Ok(entries) = fs::read_dir(directory) else { continue };
            for entry in entries.flatten().filter(|entry| glob.is_match(entry.file_name())) {
                if next.len() >= MOST {
                    return Err(format!("the pattern names more than {MOST} files"));
                }
                next.push(entry.path());
            }
        }
        next.sort();
        found = next;
    }
    found.retain(|path| path.is_file());
    Ok(found)
}
