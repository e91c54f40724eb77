//! The result of a case, as a table with a column for each server, or as JSON.

use serde_json::{Value, json};

use crate::peer::PEERS;

pub(crate) struct Report {
    pub(crate) case: &'static str,
    pub(crate) rows: Vec<Row>,
    pub(crate) verdicts: Vec<Verdict>,
}

/// One quantity, for every server in the order of [`PEERS`] that has it.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) values: Vec<Option<f64>>,
}

/// A figure of Levada and its target.
pub(crate) struct Verdict {
    pub(crate) label: &'static str,
    pub(crate) value: f64,
    pub(crate) target: f64,
}

impl Report {
    pub(crate) fn print(&self) {
        println!("\n{}", self.case);
        for row in &self.rows {
            print!("  {:<36}", row.label);
            for value in &row.values {
                match value {
                    Some(value) => print!("{:>16}", short(*value)),
                    None => print!("{:>16}", "-"),
                }
            }
            println!();
        }
        for Verdict { label, value, target } in &self.verdicts {
            let (value, target) = (short(*value), short(*target));
            let missed = if self.met(label) { "" } else { "  MISSED" };
            println!("  {label:<36}{value:>16}  (target: at most {target}){missed}");
        }
    }

    fn met(&self, label: &str) -> bool {
        self.verdicts.iter().filter(|v| v.label == label).all(|v| v.value <= v.target)
    }

    pub(crate) fn json(&self) -> Value {
        let rows: serde_json::Map<_, _> = self
            .rows
            .iter()
            .map(|row| {
                let by_server: serde_json::Map<_, _> = PEERS
                    .iter()
                    .zip(&row.values)
                    .map(|(peer, value)| (peer.name.to_owned(), json!(value)))
                    .collect();
                (row.label.clone(), Value::Object(by_server))
            })
            .collect();
        let verdicts: Vec<_> = self
            .verdicts
            .iter()
            .map(|v| json!({ "what": v.label, "value": v.value, "target": v.target }))
            .collect();
        json!({ "case": self.case, "rows": rows, "verdicts": verdicts })
    }
}

/// The line above the first table.
pub(crate) fn print_columns() {
    print!("{:<38}", "");
    for peer in PEERS {
        print!("{:>16}", peer.name);
    }
    println!();
}

/// Three digits that count, and all of them before the point.
fn short(value: f64) -> String {
    let decimals = if value >= 100.0 || value.fract() == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}
