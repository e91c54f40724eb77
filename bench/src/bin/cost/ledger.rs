//! The file of the last figures, and how new ones compare with them.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use serde::{Deserialize, Serialize};

use crate::{Result, counts::Counts};

const HEADER: &str = "\
# The cost of a request: [user instructions, system calls, allocations]. `cargo xtask cost --write` writes this; the
# message of the commit says why it changed. See bench/README.md.

";
/// A figure may be so much worse in proportion.
const TOLERANCE: f64 = 0.02;
/// System calls and allocations may be worse by a tenth more, within these bounds: a busy machine moves them by up to
/// 0.2, and a change that makes one more makes it in each request.
const SLACK: (f64, f64) = (0.05, 0.3);

#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Ledger {
    /// Rows that may make more system calls than others.
    #[serde(default)]
    limits: BTreeMap<String, Limit>,
    /// The figures of each profile of Cargo.
    #[serde(flatten)]
    profiles: BTreeMap<String, Figures>,
}

#[derive(Deserialize, Serialize)]
struct Limit {
    /// So many more system calls a request.
    calls: f64,
    reason: String,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Figures {
    pub(crate) toolchain: String,
    pub(crate) rows: BTreeMap<String, [f64; 3]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Same,
    Better,
    Worse,
    /// The ledger does not have it.
    New,
}

impl Ledger {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).unwrap_or_default();
        Ok(toml::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?)
    }

    pub(crate) fn of(&self, profile: &str) -> Figures {
        self.profiles.get(profile).cloned().unwrap_or_default()
    }

    /// How many more system calls a request of this row may make.
    pub(crate) fn more_calls(&self, row: &str) -> f64 {
        self.limits.get(row).map_or(0.0, |limit| limit.calls)
    }

    pub(crate) fn write(&mut self, file: &Path, profile: &str, figures: Figures) -> Result<()> {
        self.profiles.insert(profile.to_owned(), figures);
        Ok(fs::write(file, format!("{HEADER}{}", toml::to_string(self)?))?)
    }
}

/// The figures as the ledger has them: digits that differ from run to run are left out.
pub(crate) fn rounded(counts: Counts) -> [f64; 3] {
    let hundredths = |count: f64| (count * 100.0).round() / 100.0;
    [counts.instructions.round(), hundredths(counts.calls), hundredths(counts.allocations)]
}

/// Compares a row with that of the ledger. One figure that is worse is enough.
pub(crate) fn judge(before: Option<&[f64; 3]>, now: [f64; 3], more_calls: f64) -> Verdict {
    let Some(before) = before else { return Verdict::New };
    let exceeds = |a: &[f64; 3], b: &[f64; 3]| {
        let slack = |at: usize| match at {
            0 => 0.0,
            _ => (b[at] / 10.0).clamp(SLACK.0, SLACK.1) + if at == 1 { more_calls } else { 0.0 },
        };
        (0..3).any(|at| a[at] > b[at] * (1.0 + TOLERANCE) + slack(at))
    };
    match (exceeds(&now, before), exceeds(before, &now)) {
        (true, _) => Verdict::Worse,
        (false, true) => Verdict::Better,
        (false, false) => Verdict::Same,
    }
}

/// The rows of the ledger that nobody measures.
pub(crate) fn unknown(last: &Figures, is_row: impl Fn(&str) -> bool) -> Vec<String> {
    last.rows.keys().filter(|name| !is_row(name)).cloned().collect()
}

/// The tools that figures depend on, apart from the source. The processor is that of the emulator, which has AVX2 where
/// the machine has it.
pub(crate) fn toolchain() -> String {
    let says = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let avx2 = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" avx2"));
    format!(
        "{}, cc {}, {}, {}, {}{}",
        says("rustc", "--version"),
        says("cc", "-dumpfullversion"),
        says("getconf", "GNU_LIBC_VERSION"),
        says("valgrind", "--version"),
        std::env::consts::ARCH,
        if avx2 { " with AVX2" } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_worse_where_one_figure_is_more_than_two_percent_worse() {
        let before = [30_000.0, 3.0, 7.0];
        let judge = |now| judge(Some(&before), now, 0.0);
        assert_eq!(judge([30_600.0, 3.35, 7.43]), Verdict::Same);
        assert_eq!(judge([30_601.0, 3.0, 7.0]), Verdict::Worse);
        assert_eq!(judge([30_000.0, 3.37, 7.0]), Verdict::Worse);
        assert_eq!(judge([20_000.0, 2.0, 8.0]), Verdict::Worse);
        assert_eq!(judge([29_400.0, 3.0, 7.0]), Verdict::Better);
        assert_eq!(super::judge(Some(&before), [30_000.0, 4.0, 7.0], 1.0), Verdict::Same);
        assert_eq!(super::judge(Some(&before), [30_601.0, 4.0, 7.0], 1.0), Verdict::Worse);
        assert_eq!(super::judge(None, before, 0.0), Verdict::New);
    }

    #[test]
    fn a_row_that_is_not_measured_any_more_is_found() {
        let rows = ["hit 1 KB", "hit 2 KB"].map(|name| (name.to_owned(), [1.0; 3]));
        let figures = Figures { toolchain: String::new(), rows: BTreeMap::from(rows) };
        assert_eq!(unknown(&figures, |name| name == "hit 1 KB"), ["hit 2 KB"]);
    }

    #[test]
    fn the_ledger_is_read_as_it_is_written() {
        let file = std::env::temp_dir().join(format!("levada-ledger-{}", std::process::id()));
        let counts = Counts { instructions: 9.7, calls: 2.976, allocations: 7.0, wakes: 0.0 };
        let rows = BTreeMap::from([("hit 1 KB".to_owned(), rounded(counts))]);
        let figures = Figures { toolchain: "rustc 1".to_owned(), rows };
        let limit = Limit { calls: 1.0, reason: "two nodes".to_owned() };
        let limits = BTreeMap::from([("relay".to_owned(), limit)]);
        let mut ledger = Ledger { limits, ..Ledger::default() };
        ledger.write(&file, "dev", figures).unwrap();
        let mut ledger = Ledger::read(&file).unwrap();
        ledger.write(&file, "release", Figures::default()).unwrap();
        let read = Ledger::read(&file).unwrap();
        assert_eq!((read.more_calls("relay"), read.more_calls("hit 1 KB")), (1.0, 0.0));
        let read = read.of("dev");
        fs::remove_file(&file).unwrap();
        assert_eq!((&*read.toolchain, read.rows["hit 1 KB"]), ("rustc 1", [10.0, 2.98, 7.0]));
    }
}
