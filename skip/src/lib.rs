//! How a test says that it cannot run on this machine, because a right or a program is missing.
//!
//! ```text
//!   test ──> "skipped: REASON" on standard error
//!       └──> a line in the file that LEVADA_SKIPS names ──> the list that xtask prints at the end
//! ```
//!
//! Rust counts such a test as passed: a test that runs has no other good end.

use std::{
    env,
    fmt::Display,
    fs::OpenOptions,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
};

/// Names the file that gets a line `BINARY TEST: REASON` for each test that cannot run.
pub const VARIABLE: &str = "LEVADA_SKIPS";

/// Says why the test, or a part of it, cannot run. The caller leaves that out.
///
/// # Panics
/// When the file of the skips cannot be written.
pub fn skipped(reason: impl Display) {
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {reason}");
    let Some(file) = env::var_os(VARIABLE) else { return };
    let binary = env::current_exe().unwrap_or_default();
    let binary = binary.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo appends a hash.
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let current = thread::current();
    let line = format!("{binary} {}: {reason}\n", current.name().unwrap_or("in a thread"));
    let noted = OpenOptions::new().create(true).append(true).open(&file);
    let noted = noted.and_then(|mut file| file.write_all(line.as_bytes()));
    noted.unwrap_or_else(|error| panic!("{VARIABLE}: {}: {error}", Path::new(&file).display()));
}

/// The value; an error skips the test.
pub fn possible<T>(tried: Result<T, impl Display>) -> Option<T> {
    tried.map_err(skipped).ok()
}

/// Whether `program` is missing on the PATH, which skips the test. Debian has it in `package`.
#[must_use]
pub fn lacks(program: &str, package: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !is_there {
        skipped(format_args!("{program} is missing (Debian: {package})"));
    }
    !is_there
}

/// The Python that has this module: the one on the PATH, or that of the system, which another one on the PATH
/// may hide. Packages of Debian bring modules to the latter.
#[must_use]
pub fn python(module: &str) -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut python = Command::new(python);
        python.args(["-c", &format!("import {module}")]).stderr(Stdio::null());
        python.status().is_ok_and(|status| status.success())
    })
}

/// Whether no Python has this module, which skips the test. Debian has it in `package`.
#[must_use]
pub fn lacks_module(module: &str, package: &str) -> bool {
    let is_there = python(module).is_some();
    if !is_there {
        skipped(format_args!("python3 has no {module} (Debian: {package})"));
    }
    !is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_noted_with_the_name_of_the_test() {
        let file = env::temp_dir().join(format!("levada-skips-{}", std::process::id()));
        // In a process of its own, since the environment belongs to the whole one.
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "tests::child", "--include-ignored"]).env(VARIABLE, &file);
        assert!(test.output().unwrap().status.success());
        let noted = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let reason = "no-such-program is missing (Debian: no-package)";
        assert_eq!(noted, format!("levada_skip tests::child: {reason}\n"));
    }

    #[test]
    #[ignore = "the test above runs it"]
    fn child() {
        assert!(!lacks("cargo", "cargo"));
        assert!(lacks("no-such-program", "no-package"));
    }
}
