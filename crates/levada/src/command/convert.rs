//! `levada convert`: configurations of other proxies as a `levada.toml`.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use globset::GlobBuilder;
use levada_client::command::CommandStatus;
use levada_convert::{Conversion, Includes, InputFile};

/// Writes a `levada.toml` from the configuration of another proxy, and says what it could not convert.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConvertArgs {
    #[command(subcommand)]
    from: From,
    /// Writes the new configuration to this file instead of standard output.
    #[arg(short, long, global = true, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum From {
    /// From nginx, with the files that are included.
    Nginx {
        /// The file, such as /etc/nginx/nginx.conf.
        file: PathBuf,
    },
    /// From Varnish: backends, directors and the common part of VCL.
    Varnish {
        /// The file, such as /etc/varnish/default.vcl.
        file: PathBuf,
    },
    /// From Traffic Server: remap.config, parent.config, and a few keys of records.yaml.
    Trafficserver {
        /// The directory with these files, or the files.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

const EXAMPLES: &str = "\
Standard error lists each statement that was not converted, with its place and the reason. The same list
is at the end of the new file, as comments.

Examples:
  levada convert nginx /etc/nginx/nginx.conf -o levada.toml
  levada convert varnish /etc/varnish/default.vcl
  levada convert trafficserver /etc/trafficserver > levada.toml

Exit codes:
  0  everything was converted
  1  something was left over: see the list
  2  a file could not be read";

/// Converts, and reports what was left over.
///
/// # Errors
/// When a file cannot be read, or is not written in the grammar that it should have.
pub(crate) fn run(args: &ConvertArgs) -> anyhow::Result<CommandStatus> {
    let conversion = match &args.from {
        From::Nginx { file } => levada_convert::nginx(&read(file)?, &IncludedFrom::file(file))?,
        From::Varnish { file } => levada_convert::varnish(&read(file)?, &IncludedFrom::file(file))?,
        From::Trafficserver { paths } => {
            let files = traffic_server_files(paths)?;
            let directory = files.first().map_or(".", |file| file.name.as_str());
            levada_convert::trafficserver(&files, &IncludedFrom::file(Path::new(directory)))?
        }
    };
    write(&conversion, args.output.as_deref())?;
    eprint!("{}", levada_convert::report(&conversion.ledger));
    let (taken, left) = (conversion.ledger.taken, conversion.ledger.left.len());
    eprintln!(
        "{taken} converted, {} not needed, {left} not converted",
        conversion.ledger.needless.len()
    );
    Ok(CommandStatus::of(conversion.is_complete()))
}

fn write(conversion: &Conversion, output: Option<&Path>) -> anyhow::Result<()> {
    match output {
        Some(path) => fs::write(path, &conversion.toml)
            .with_context(|| format!("cannot write {}", path.display())),
        None => Ok(io::stdout().lock().write_all(conversion.toml.as_bytes())?),
    }
}

fn read(path: &Path) -> anyhow::Result<InputFile> {
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
fn traffic_server_files(paths: &[PathBuf]) -> anyhow::Result<Vec<InputFile>> {
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

/// Included files, with relative names from the directory of the first file.
struct IncludedFrom(PathBuf);

impl IncludedFrom {
    fn file(path: &Path) -> Self {
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
