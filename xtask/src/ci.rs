//! All checks that a change must pass, the quickest first and the tests last, so that their output
//! is what one sees at the end.

use std::time::Instant;

use crate::{
    tidy,
    workspace::{cargo, succeed},
};

type Step = (&'static str, fn() -> anyhow::Result<()>);

const STEPS: &[Step] = &[
    ("format", || succeed(&mut cargo(&["fmt", "--all", "--check"]))),
    ("lints", lints),
    ("tidy", tidy::run),
    ("documentation", documentation),
    ("tests", || succeed(&mut cargo(&["test", "--workspace"]))),
];

/// Runs every step until one fails.
///
/// # Errors
/// That of the step that failed.
pub(crate) fn run() -> anyhow::Result<()> {
    for (name, step) in STEPS {
        eprintln!("xtask: {name}");
        let start = Instant::now();
        let result = step();
        let verdict = if result.is_ok() { "passed" } else { "failed" };
        eprintln!("xtask: {name} {verdict} after {:.1} s", start.elapsed().as_secs_f64());
        result?;
    }
    Ok(())
}

fn lints() -> anyhow::Result<()> {
    succeed(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn documentation() -> anyhow::Result<()> {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
    succeed(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
