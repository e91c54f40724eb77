//! The lists on the pages `docs/coming-from`: what becomes of each directive, as the converter's tables say.

use std::{fmt::Write as _, fs};

use anyhow::Context as _;
use levada_convert::{Becomes, Described};

use super::{
    pages::{Page, cell, with_generated},
    root,
};

const MARK: &str = "<!-- generated: directives of ";

/// The pages, with their lists.
///
/// # Errors
/// When a page cannot be read.
pub(super) fn pages() -> anyhow::Result<Vec<Page>> {
    [
        ("docs/coming-from/nginx.md", levada_convert::nginx_directives()),
        ("docs/coming-from/caddy.md", levada_convert_caddy::described()),
        ("docs/coming-from/haproxy.md", levada_convert_haproxy::described()),
        ("docs/coming-from/varnish.md", levada_convert::varnish_statements()),
        ("docs/coming-from/trafficserver.md", levada_convert::trafficserver_lines()),
        ("docs/coming-from/trafficcontrol.md", levada_convert::trafficcontrol_fields()),
    ]
    .into_iter()
    .map(|(path, rows)| {
        let written = fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
        let text = with_generated(&written, MARK, |_| Ok(lists(&rows)))?;
        Ok(Page { path: path.to_owned(), text })
    })
    .collect()
}

/// A list for each of the three fates.
fn lists(rows: &[Described]) -> String {
    let mut text = String::new();
    list(&mut text, "Taken over", "In Levada", rows, |becomes| match becomes {
        Becomes::Keys(keys) => Some(keys_cell(keys)),
        _ => None,
    });
    list(&mut text, "Not needed", "Because", rows, |becomes| match becomes {
        Becomes::Needless(reason) => Some(cell(reason)),
        _ => None,
    });
    list(&mut text, "Not there", "Because", rows, |becomes| match becomes {
        Becomes::Left(reason) => Some(cell(reason)),
        _ => None,
    });
    text + "\n"
}

fn list(
    text: &mut String,
    title: &str,
    column: &str,
    rows: &[Described],
    shown: impl Fn(Becomes) -> Option<String>,
) {
    let _ = write!(text, "\n### {title}\n\n| In | Statement | {column} |\n|---|---|---|\n");
    for row in rows {
        if let Some(becomes) = shown(row.becomes) {
            let _ = writeln!(text, "| {} | {} | {becomes} |", code(row.place), statement(row));
        }
    }
}

/// The names, and the values that the row is for.
fn statement(row: &Described) -> String {
    let name = |name: &&str| if *name == "*" { "all others".to_owned() } else { code(name) };
    let names: Vec<_> = row.names.iter().map(name).collect();
    let values: Vec<_> = row.values.iter().map(|value| code(value)).collect();
    let values = match (row.values.is_empty(), row.has_values) {
        (true, _) => String::new(),
        (false, true) => format!(": {}", values.join(", ")),
        (false, false) => format!(", not {}", values.join(", ")),
    };
    format!("{}{values}", names.join(", "))
}

/// Keys, or words about them.
fn keys_cell(keys: &str) -> String {
    let is_key = |word: &str| !word.contains(' ');
    match keys.split(", ").all(is_key) {
        true => keys.split(", ").map(code).collect::<Vec<_>>().join(", "),
        false => cell(keys),
    }
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_each_statement_with_its_values_and_its_fate() {
        let row = |names: Vec<&'static str>, values, has_values, becomes| Described {
            place: "upstream",
            names,
            values,
            has_values,
            becomes,
        };
        let text = lists(&[
            row(vec!["a", "b*"], vec!["on", "''"], true, Becomes::Keys("limits.x, y")),
            row(vec!["*"], vec!["0"], false, Becomes::Left("no | such")),
        ]);
        assert!(
            text.contains("| `upstream` | `a`, `b*`: `on`, `''` | `limits.x`, `y` |"),
            "{text}"
        );
        assert!(text.contains("| `upstream` | all others, not `0` | no \\| such |"), "{text}");
    }
}
