//! The packages of a release. The program is staged with the files that it writes itself; everything
//! else is in packaging/, and the tables of crates/levada/Cargo.toml say which file goes where.
//!
//! ```text
//!   program ──> packaging/staged/  ──> cargo deb           ──> target/packages/*.deb
//!               levada, man1/,         cargo generate-rpm  ──>                 *.rpm
//!               completions/           tar                 ──>                 *.tar.gz
//!                                      sha256sum           ──>                 SHA256SUMS
//! ```
//!
//! Times in packages are that of the last commit (SOURCE_DATE_EPOCH), so that one source and one
//! program give the same packages again.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context as _, ensure};

use super::profiled;
use crate::workspace::{cargo, git, root, succeed};

/// The kinds of packages that installers of distributions know.
enum Kind {
    Deb,
    Rpm,
}

/// The directory that the tables of crates/levada/Cargo.toml name. Cargo's own directory can be
/// anywhere, so that it is not there.
const STAGE: &str = "packaging/staged";
const PACKAGES: &str = "target/packages";
const MAINTAINER: &str = "The Levada maintainers <maintainers@levada.example>";

/// Makes all packages of `program`.
///
/// # Errors
/// When a tool is missing or fails.
pub(super) fn all(program: &Path) -> anyhow::Result<()> {
    let directory = root().join(PACKAGES);
    empty(&directory)?;
    stage(program)?;
    // Each spends its time in one thread that compresses the program.
    let making: [&(dyn Fn() -> anyhow::Result<()> + Sync); 3] = [
        &|| made(Kind::Deb, "1", &directory, &[]),
        &|| made(Kind::Rpm, "1", &directory, &[]),
        &|| archive(&directory),
    ];
    thread::scope(|scope| {
        let making = making.map(|make| scope.spawn(make));
        making.into_iter().try_for_each(|made| made.join().expect("a thread that does not panic"))
    })?;
    sum(&directory)?;
    eprintln!("xtask: {}", directory.display());
    Ok(())
}

/// Makes one package of `program` with this revision for a trial, in an empty `directory`. The program is not
/// compressed as well as it could be.
///
/// # Errors
/// When a tool is missing or fails.
pub(crate) fn trial(program: &Path, revision: &str, directory: &Path) -> anyhow::Result<PathBuf> {
    empty(directory)?;
    stage(program)?;
    made(Kind::Deb, revision, directory, &["--fast"])?;
    let made = fs::read_dir(directory)?.next().context("no package was made")??;
    Ok(made.path())
}

/// Lays out the program without symbols, its manual pages and its completions.
fn stage(program: &Path) -> anyhow::Result<()> {
    let stage = root().join(STAGE);
    empty(&stage)?;
    let staged = stage.join("levada");
    succeed(Command::new("strip").arg("-o").arg(&staged).arg(program))?;
    let man = stage.join("man1");
    succeed(Command::new(&staged).arg("man").arg(&man))?;
    succeed(Command::new("sh").args(["-c", "gzip -9n *.1"]).current_dir(&man))?;
    let completions = stage.join("completions");
    fs::create_dir(&completions)?;
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(&staged).args(["completions", shell]).output()?;
        ensure!(output.status.success(), "levada completions {shell} failed");
        fs::write(completions.join(shell), output.stdout)?;
    }
    Ok(())
}

fn made(kind: Kind, revision: &str, directory: &Path, more: &[&str]) -> anyhow::Result<()> {
    let mut make = match kind {
        Kind::Deb => {
            fs::write(root().join(STAGE).join("changelog"), changelog(revision)?)?;
            let mut make = cargo(&["deb", "--package", "levada", "--no-build", "--no-strip"]);
            make.args(["--deb-revision", revision, "--output"]).arg(directory);
            make
        }
        Kind::Rpm => {
            let mut make = cargo(&["generate-rpm", "--package", "crates/levada"]);
            make.args(["--set-metadata", &format!("release = \"{revision}\""), "--output"]);
            make.arg(directory);
            make
        }
    };
    succeed(make.args(more).env("SOURCE_DATE_EPOCH", epoch()?))
}

/// The changelog in Debian's form, which must name the version of the package.
fn changelog(revision: &str) -> anyhow::Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let date = Command::new("date").args(["-uR", "-d", &format!("@{}", epoch()?)]).output()?;
    ensure!(date.status.success(), "date failed");
    let date = String::from_utf8(date.stdout)?;
    Ok(format!(
        "levada ({version}-{revision}) unstable; urgency=medium\n\n  \
         * CHANGELOG.md beside this file has the changes.\n\n -- {MAINTAINER}  {date}"
    ))
}

/// The archive for systems without either, which `cargo binstall` fetches, too.
fn archive(directory: &Path) -> anyhow::Result<()> {
    let name = format!("levada-{}-{}", env!("CARGO_PKG_VERSION"), profiled::host()?);
    let tree = root().join("target/archive");
    empty(&tree)?;
    let top = tree.join(&name);
    let from = |path: &str| root().join(path);
    let copy = |path: PathBuf| succeed(Command::new("cp").arg("-r").arg(path).arg(&top));
    fs::create_dir(&top)?;
    for staged in ["levada", "man1", "completions"] {
        copy(from(STAGE).join(staged))?;
    }
    for file in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "examples"] {
        copy(from(file))?;
    }
    for file in ["levada.toml", "systemd", "logrotate", "www"] {
        copy(from("packaging").join(file))?;
    }
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--use-compress-program=gzip -9n",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tar.arg(format!("--mtime=@{}", epoch()?)).arg("--mode=u+rw,go-w,a+rX");
    tar.arg("--file").arg(directory.join(format!("{name}.tar.gz"))).arg("--directory").arg(&tree);
    succeed(tar.arg(&name))
}

fn sum(directory: &Path) -> anyhow::Result<()> {
    let mut names = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<Vec<_>, _>>()?;
    names.sort();
    let sums = Command::new("sha256sum").args(&names).current_dir(directory).output()?;
    ensure!(sums.status.success(), "sha256sum failed");
    fs::write(directory.join("SHA256SUMS"), sums.stdout)?;
    Ok(())
}

/// The time of the last commit, unless the environment has another one.
fn epoch() -> anyhow::Result<String> {
    if let Ok(epoch) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let time = git(&["log", "-1", "--format=%ct"]).context("set SOURCE_DATE_EPOCH")?;
    Ok(time.trim().to_owned())
}

fn empty(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())
}
