//! The build that packages ship: optimised by a profile of how the program runs under load.
//!
//! ```text
//!   instrumented build ──> its load, measured ──> merged profile ──> target/dist/levada
//! ```
//!
//! The compiler optimises by counts of branches and functions. It treats code that the load never runs
//! as cold, so the load covers everything that must be fast: requests by `edge` of bench/, and a
//! simulation by the program itself.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use crate::workspace::{cargo, root, succeed};

/// Builds `target/dist/levada`, and the measurements of bench/ next to it. Returns its path.
///
/// # Errors
/// When a build or the load fails, or the toolchain lacks `llvm-profdata`.
pub(super) fn build() -> anyhow::Result<PathBuf> {
    let host = host()?;
    let merge = profile_tool(&host)?;
    let target = target_directory();
    let profiles = target.join("profiles");
    match fs::remove_dir_all(&profiles) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: {error}", profiles.display())
        }
        _ => fs::create_dir_all(&profiles)?,
    }

    eprintln!("xtask: the load");
    succeed(&mut cargo(&["build", "--profile", "dist", "-p", "levada-bench"]))?;
    eprintln!("xtask: a build that counts");
    let counting = levada(&host, &format!("-Cprofile-generate={}", profiles.display()))?;
    eprintln!("xtask: under load");
    load(&target, &counting, &profiles)?;
    let merged = profiles.join("merged.profdata");
    succeed(Command::new(merge).arg("merge").arg("--output").arg(&merged).args(raw(&profiles)?))?;
    eprintln!("xtask: the build that ships");
    let built = levada(&host, &format!("-Cprofile-use={}", merged.display()))?;
    let shipped = target.join("dist/levada");
    fs::copy(&built, &shipped).with_context(|| format!("cannot write {}", shipped.display()))?;
    eprintln!("xtask: {}", shipped.display());
    Ok(shipped)
}

/// The target that this compiler builds for.
///
/// # Errors
/// When the compiler cannot be asked.
pub(super) fn host() -> anyhow::Result<String> {
    ask_rustc(&["-vV"])?
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .context("rustc -vV names no host")
}

/// Builds the program under `flags`. Naming the target keeps them from build scripts and macros.
fn levada(host: &str, flags: &str) -> anyhow::Result<PathBuf> {
    let mut build = cargo(&["build", "--profile", "dist", "-p", "levada", "--target", host]);
    succeed(build.env("RUSTFLAGS", flags))?;
    Ok(target_directory().join(host).join("dist/levada"))
}

/// Runs the load once.
fn load(target: &Path, counting: &Path, profiles: &Path) -> anyhow::Result<()> {
    let raw = profiles.join("%p-%m.profraw");
    let mut requests = Command::new(target.join("dist/edge"));
    requests.args(["--alone", "--rounds", "1", "--seconds", "2"]);
    succeed(requests.env("LEVADA", counting).env("LLVM_PROFILE_FILE", &raw))?;
    let results = profiles.join("results");
    let mut simulation = Command::new(counting);
    simulation.args(["sim", "paper", "lard", "--quick", "--results"]).arg(&results);
    // Its exit code tells whether the paper's numbers came out, which is not asked here.
    simulation.env("LLVM_PROFILE_FILE", &raw).status().context("cannot run the simulation")?;
    Ok(())
}

fn raw(profiles: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(profiles)?.collect::<Result<Vec<_>, _>>()?;
    let raw: Vec<PathBuf> = entries
        .iter()
        .map(fs::DirEntry::path)
        .filter(|path| path.extension().is_some_and(|extension| extension == "profraw"))
        .collect();
    ensure!(!raw.is_empty(), "the load left no profile in {}", profiles.display());
    Ok(raw)
}

/// The `llvm-profdata` of this toolchain: another release's may not read what it writes.
fn profile_tool(host: &str) -> anyhow::Result<PathBuf> {
    let tool = sysroot()?.join("lib/rustlib").join(host).join("bin/llvm-profdata");
    ensure!(
        tool.exists(),
        "{} is missing: `rustup component add llvm-tools` brings it",
        tool.display()
    );
    Ok(tool)
}

/// Where this toolchain is installed.
///
/// # Errors
/// When the compiler cannot be asked.
pub(crate) fn sysroot() -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(ask_rustc(&["--print", "sysroot"])?.trim()))
}

fn ask_rustc(arguments: &[&str]) -> anyhow::Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc).args(arguments).current_dir(root()).output();
    let output = output.with_context(|| format!("cannot run {}", rustc.display()))?;
    ensure!(output.status.success(), "{} {arguments:?} failed", rustc.display());
    Ok(String::from_utf8(output.stdout)?)
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> PathBuf {
    root().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
