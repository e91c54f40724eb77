//! `levada sim paper`: the tables of a paper, our results next to the paper's.

use anyhow::{Context as _, bail};
use levada_client::command::CommandStatus;
use levada_paper::{PAPERS, Paper, Table};
use levada_types::document::did_you_mean;

use super::{args::PaperArgs, cases, report, sweep::sweep};

/// Runs the chosen tables of the paper.
///
/// # Errors
/// If there is no such paper or table, or a run fails.
pub(super) fn run(args: &PaperArgs) -> anyhow::Result<CommandStatus> {
    let paper = find(&args.paper)?;
    let tables = chosen(paper, args)?;
    let swept = sweep(&cases(&tables), &format!("{}.jsonl", paper.name), &args.sweep)?;
    report(paper.title, &tables, None, &swept, &args.output)
}

fn find(name: &str) -> anyhow::Result<&'static Paper> {
    let names = || PAPERS.iter().map(|paper| paper.name);
    PAPERS.iter().find(|paper| paper.name == name).with_context(|| {
        let help = did_you_mean(name, names())
            .unwrap_or_else(|| format!("there are {}", names().collect::<Vec<_>>().join(", ")));
        format!("there is no paper {name:?}; {help}")
    })
}

fn chosen(paper: &Paper, args: &PaperArgs) -> anyhow::Result<Vec<Table>> {
    if args.quick {
        return Ok((paper.quick)());
    }
    let all = (paper.tables)();
    if args.all {
        return Ok(all);
    }
    let wanted: Vec<String> = (args.table.iter().map(|name| ("table", name)))
        .chain(args.figure.iter().map(|name| ("fig", name)))
        .map(|(kind, name)| match name.parse::<u32>() {
            Ok(number) => format!("{}-{kind}{number}", paper.name),
            // The name in `levada sim list papers`, with or without the paper.
            Err(_) if name.starts_with(paper.name) => name.clone(),
            Err(_) => format!("{}-{name}", paper.name),
        })
        .collect();
    if wanted.is_empty() {
        bail!("say what to run: --quick, --all, --table N or --figure N\n{}", listed(&all));
    }
    let is = |table: &Table, name: &String| table.id == *name || table.also.contains(name);
    if let Some(name) = wanted.iter().find(|name| !all.iter().any(|table| is(table, name))) {
        bail!("there is no {name}\n{}", listed(&all));
    }
    Ok(all.into_iter().filter(|table| wanted.iter().any(|name| is(table, name))).collect())
}

fn listed(tables: &[Table]) -> String {
    let line = |table: &Table| {
        let names: Vec<_> =
            [&table.id].into_iter().chain(&table.also).map(String::as_str).collect();
        format!("  {}: {}", names.join(", "), table.title)
    };
    tables.iter().map(line).collect::<Vec<_>>().join("\n")
}
