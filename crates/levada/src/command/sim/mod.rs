//! `levada sim`: scenarios and the papers' tables, run in virtual time.
//!
//! ```text
//! args                            what is asked for
//! list - run - paper - matrix - large   one file per subcommand; cache is in levada-curves
//! sweep - store - stop - progress many runs: in parallel, kept, interrupted, shown
//! render                          reports as text, CSV, JSON and pages with figures
//! ```

pub(crate) mod args;
mod large;
mod list;
mod matrix;
mod paper;
mod progress;
pub(crate) mod render;
mod run;
mod stop;
mod store;
mod sweep;

use std::{
    collections::HashSet,
    fs,
    io::{self, Write as _},
};

use anyhow::Context as _;
use levada_client::command::{CommandStatus, output};
use levada_paper::{
    Case, Report, Table, Verdict as Judgement, of_regions,
    render::{csv, text},
};
use serde_json::{Value as Json, json};

use self::{
    args::{OutputArgs, SimArgs, SimCommand},
    sweep::Swept,
};

/// Runs the subcommand.
///
/// # Errors
/// If it cannot run, or cannot write its report.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<CommandStatus> {
    match &args.command {
        SimCommand::List(args) => list::run(args),
        SimCommand::Run(args) => run::run(args),
        SimCommand::Paper(args) => paper::run(args),
        SimCommand::Matrix(args) => matrix::run(args),
        SimCommand::Large(args) => large::run(args),
        SimCommand::Cache(args) => levada_curves::command::run(args),
    }
}

/// Fills the tables with the finished runs and writes them in the requested form, after the table of
/// `means`.
fn report(
    title: &str,
    tables: &[Table],
    means: Option<Report>,
    swept: &Swept,
    form: &OutputArgs,
) -> anyhow::Result<CommandStatus> {
    let mut of_runs: Vec<Report> =
        tables.iter().map(|table| Report::new(table, &|case| swept.outcome(case))).collect();
    let remarked = add_remarks(&mut of_runs, tables, swept);
    let regions = tables.iter().filter_map(|table| of_regions(table, &|case| swept.outcome(case)));
    let reports: Vec<Report> = means.into_iter().chain(of_runs).chain(regions).collect();
    if let Some(path) = &form.html {
        fs::write(path, render::html::render(title, &reports))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if form.json {
        let mut cases = cases(tables);
        // Rows at several rates, and several tables, share a run.
        let mut seen = HashSet::new();
        cases.retain(|case| seen.insert(levada_sim::scenario_file::run_key(&case.scenario)));
        let runs: Vec<Json> = cases.iter().filter_map(|case| told(case, swept)).collect();
        output::print(true, &json!({ "tables": reports, "runs": runs }), |_| Ok(()))?;
    } else {
        let render = if form.csv { csv::render } else { text::render };
        io::stdout().write_all(render(&reports).as_bytes())?;
    }
    io::stdout().flush()?;
    swept.tell_if_stopped();
    let failed = reports.iter().flat_map(Report::verdicts).any(|v| v == Judgement::Fail);
    Ok(CommandStatus::of(!(failed || remarked || swept.stopped)))
}

/// Says in the notes and on standard error what limits the results, once for each run. Returns
/// whether anything does.
fn add_remarks(reports: &mut [Report], tables: &[Table], swept: &Swept) -> bool {
    let mut seen = HashSet::new();
    for (report, table) in reports.iter_mut().zip(tables) {
        for row in &table.rows {
            let remarks = swept.outcome(&row.case).map_or(&[][..], |outcome| &outcome.remarks);
            for remark in remarks {
                let remark = format!("{}: {remark}.", row.case.id);
                if seen.insert(remark.clone()) {
                    eprintln!("{remark}");
                    report.note = format!("{} {remark}", report.note).trim().to_owned();
                }
            }
        }
    }
    !seen.is_empty()
}

/// The cases of these tables.
fn cases(tables: &[Table]) -> Vec<&Case> {
    tables.iter().flat_map(|table| table.rows.iter().map(|row| &row.case)).collect()
}

fn told(case: &Case, swept: &Swept) -> Option<Json> {
    let outcome = swept.outcome(case)?;
    Some(json!({ "case": case.id, "scenario": case.scenario, "outcome": outcome }))
}
