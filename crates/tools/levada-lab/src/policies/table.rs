//! The table of all cells in Markdown: each figure with the simulator's, and whether the simulator puts the
//! policies into the order that they have.

use std::io::{self, Write as _};

use super::PolicyRow;

/// Prints the table.
///
/// # Errors
/// When nobody reads it.
pub(super) fn print(rows: &[PolicyRow]) -> io::Result<()> {
    let mut text = HEAD.to_owned();
    for row in rows {
        let (real, simulated) = (row.figures().texts(row), row.predicted.texts(row));
        let wrong =
            rows.iter().any(|other| row.is_misordered_with(other) || other.is_misordered_with(row));
        text += &format!(
            "| `{}` | `{}` | {} ({}{}) | {} ({}) | {} ({}) | {} |\n",
            row.scenario.name(),
            row.policy,
            real[0],
            simulated[0],
            range(row),
            real[1],
            simulated[1],
            real[2],
            simulated[2],
            if wrong { "wrong" } else { "right" },
        );
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The range of the simulator's capacities, where its plays differ.
fn range(row: &PolicyRow) -> String {
    let range = row.predicted.range.filter(|(lowest, highest)| lowest < highest);
    range.map_or_else(String::new, |(lowest, highest)| format!("; {lowest:.0} to {highest:.0}"))
}

const HEAD: &str = "
| scenario | policy | requests/s (simulated) | hits (simulated) | p95, ms (simulated) | order |
|---|---|---|---|---|---|
";
