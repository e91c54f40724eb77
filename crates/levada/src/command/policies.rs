//! `levada policies`: the list of policies, or one policy with its parameters.

use std::io::{self, Write};

use levada_config::schema::describe_default;
use levada_policy::{POLICIES, Parameter, PolicyEntry, Setting};
use levada_types::document::did_you_mean;
use serde_json::{Value as Json, json};

use crate::cli::PoliciesArgs;
use levada_client::command::{CommandStatus, output};

/// Prints the list, or the named policy.
///
/// # Errors
/// When the report cannot be written.
pub(crate) fn run(args: &PoliciesArgs) -> anyhow::Result<CommandStatus> {
    let all = || POLICIES.iter().flat_map(|file| file.iter());
    let Some(name) = &args.name else {
        let all: Vec<_> = all().collect();
        let json: Json = all.iter().map(|entry| to_json(entry)).collect();
        output::print(args.json, &json, |out| print_list(out, &all))?;
        return Ok(CommandStatus::Success);
    };
    let Some(entry) = levada_policy::find(name) else {
        let help = did_you_mean(name, all().map(|entry| entry.name))
            .unwrap_or_else(|| "`levada policies` lists them".to_owned());
        eprintln!("levada: there is no policy {name:?}; {help}");
        return Ok(CommandStatus::ProblemsFound);
    };
    output::print(args.json, &to_json(entry), |out| print_one(out, entry))?;
    Ok(CommandStatus::Success)
}

fn print_list(out: &mut impl Write, entries: &[&PolicyEntry]) -> io::Result<()> {
    let rows = entries.iter().map(|e| [e.name, e.paper, runs_in(e), e.summary].map(str::to_owned));
    print_table(out, ["NAME", "FROM", "RUNS IN", "HOW IT CHOOSES"], &rows.collect::<Vec<_>>())
}

fn print_one(out: &mut impl Write, entry: &PolicyEntry) -> io::Result<()> {
    writeln!(out, "{}: {}", entry.name, entry.summary)?;
    writeln!(out, "from     {}", entry.paper)?;
    writeln!(out, "runs in  {}", runs_in(entry))?;
    if !entry.needs.is_empty() {
        let needs: Vec<_> = entry.needs.iter().map(|need| need.as_str()).collect();
        writeln!(out, "needs    {}", needs.join(", "))?;
    }
    if entry.parameters.is_empty() {
        return writeln!(out, "\nIt takes no parameters.");
    }
    writeln!(out)?;
    let rows: Vec<_> = entry.parameters.iter().map(parameter_row).collect();
    print_table(out, ["PARAMETER", "IS", "DEFAULT", "MEANING"], &rows)
}

fn parameter_row(parameter: &Parameter) -> [String; 4] {
    [
        parameter.name.to_owned(),
        parameter.kind.to_string(),
        describe_default(parameter),
        parameter.help.to_owned(),
    ]
}

/// Columns have the width of their widest cell; the last one is unlimited.
fn print_table(out: &mut impl Write, head: [&str; 4], rows: &[[String; 4]]) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let [a, b, c] = [0, 1, 2].map(width);
    for [first, second, third, last] in [head.map(str::to_owned)].iter().chain(rows) {
        writeln!(out, "{first:a$}  {second:b$}  {third:c$}  {last}")?;
    }
    Ok(())
}

fn runs_in(entry: &PolicyEntry) -> &'static str {
    if entry.runs_on_an_edge() { "edge, simulator" } else { "simulator" }
}

fn to_json(entry: &PolicyEntry) -> Json {
    json!({
        "name": entry.name,
        "paper": entry.paper,
        "summary": entry.summary,
        "edge": entry.runs_on_an_edge(),
        "keyed": entry.keyed,
        "needs": entry.needs.iter().map(|need| need.as_str()).collect::<Vec<_>>(),
        "parameters": entry.parameters.iter().map(parameter_to_json).collect::<Vec<_>>(),
    })
}

fn parameter_to_json(parameter: &Parameter) -> Json {
    let default = match parameter.default {
        Setting::Integer(value) => json!(value),
        Setting::Number(value) => json!(value),
        Setting::Switch(value) => json!(value),
        Setting::Derived(how) => json!({ "derived": how }),
        text => json!(text.to_string()),
    };
    json!({
        "name": parameter.name,
        "is": parameter.kind.to_string(),
        "default": default,
        "unit": parameter.unit,
        "help": parameter.help,
    })
}
