//! Peers that are Python packages: run as programs, and left out with a reason where they are not
//! installed.

use std::{
    env,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

/// The interpreter: `LEVADA_PYTHON`, or the one on the path.
fn interpreter() -> String {
    env::var("LEVADA_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Whether the module `name` can be imported; if not, says so and how to have it.
pub(crate) fn has(name: &str) -> bool {
    let python = interpreter();
    let imported = Command::new(&python)
        .args(["-c", &format!("import {name}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let there = imported.is_ok_and(|status| status.success());
    if !there {
        println!(
            "{python} is not measured: it has no module `{name}` (pip install {name} in a virtual environment, \
             and name its python in LEVADA_PYTHON)"
        );
    }
    there
}

/// Runs a program of bench/python with `input` on its standard input, and gives the lines of JSON
/// that it prints.
///
/// # Errors
/// When it cannot be run or fails, with what it said.
pub(crate) fn lines(
    program: &str,
    arguments: &[String],
    input: &str,
) -> Result<Vec<Value>, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(program);
    let mut child = Command::new(interpreter())
        .arg(&path)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(|error| format!("{program}: {error}"))?;
    }
    let output = child.wait_with_output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).map_err(|e| format!("{program}: {e}"))).collect()
}
