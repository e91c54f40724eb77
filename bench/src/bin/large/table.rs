//! The result of a case: a table of figures, and the targets for Levada.

use serde_json::{Value, json};

pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<(String, Vec<Option<f64>>)>,
    pub(crate) verdicts: Vec<Verdict>,
}

pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) target: Target,
}

#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Above(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Above(other) => value > other,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {}", short(least)),
            Self::AtMost(most) => format!("at most {}", short(most)),
            Self::Above(other) => format!("above {}", short(other)),
        }
    }
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &[&'static str]) -> Self {
        let (title, columns) = (title.into(), columns.to_vec());
        Self { title, columns, rows: Vec::new(), verdicts: Vec::new() }
    }

    pub(crate) fn row(&mut self, name: impl Into<String>, values: Vec<Option<f64>>) {
        self.rows.push((name.into(), values));
    }

    pub(crate) fn judge(&mut self, what: impl Into<String>, value: f64, target: Target) {
        self.verdicts.push(Verdict { what: what.into(), value, target });
    }

    /// The same for the median of several, which are shown.
    pub(crate) fn judge_median(
        &mut self,
        what: impl Into<String>,
        mut values: Vec<f64>,
        target: Target,
    ) {
        values.sort_by(f64::total_cmp);
        let Some(&above) = values.get(values.len() / 2) else { return };
        let median = (values[(values.len() - 1) / 2] + above) / 2.0;
        let all: Vec<_> = values.iter().map(|value| short(*value)).collect();
        self.judge(format!("{} [{}]", what.into(), all.join(", ")), median, target);
    }

    pub(crate) fn print(&self) {
        println!("\n{}", self.title);
        print!("  {:<26}", "");
        for column in &self.columns {
            print!("{column:>14}");
        }
        println!();
        for (name, values) in &self.rows {
            print!("  {name:<26}");
            for value in values {
                print!("{:>14}", value.map_or("-".to_owned(), short));
            }
            println!();
        }
        for Verdict { what, value, target } in &self.verdicts {
            let missed = if target.is_met(*value) { "" } else { "  MISSED" };
            println!("  {what}: {} (target: {}){missed}", short(*value), target.text());
        }
    }

    pub(crate) fn json(&self) -> Value {
        let rows = self.rows.iter().map(|(name, values)| {
            let cells = self.columns.iter().zip(values);
            let cells: serde_json::Map<_, _> =
                cells.map(|(column, value)| ((*column).to_owned(), json!(value))).collect();
            json!({ "row": name, "values": cells })
        });
        let verdicts = self.verdicts.iter().map(|Verdict { what, value, target }| {
            json!({ "what": what, "value": value, "target": target.text(), "met": target.is_met(*value) })
        });
        json!({
            "case": self.title,
            "rows": rows.collect::<Vec<_>>(),
            "verdicts": verdicts.collect::<Vec<_>>(),
        })
    }
}

/// Three digits that count, and all of them before the point.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}
