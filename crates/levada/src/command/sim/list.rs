//! `levada sim list`: everything that can be simulated and measured.

use std::io::{self, Write};

use clap::ValueEnum as _;
use levada_cache::eviction::EVICTIONS;
use levada_client::command::{CommandStatus, output};
use levada_paper::PAPERS;
use levada_policy::POLICIES;
use levada_sim::scenario_file::SCENARIOS;
use levada_sim::{METRICS, Scenario};
use levada_topology::TOPOLOGIES;
use levada_trace::generate::GENERATORS;
use serde_json::{Map, Value as Json, json};

use super::args::{List, ListArgs};

/// Prints the lists.
///
/// # Errors
/// If they cannot be written.
pub(super) fn run(args: &ListArgs) -> anyhow::Result<CommandStatus> {
    let lists: Vec<List> = args.list.map_or_else(|| List::value_variants().to_vec(), |l| vec![l]);
    let json = lists.iter().map(|list| (name(*list), to_json(*list)));
    output::print(args.json, &json.collect::<Map<String, Json>>(), |out| {
        lists.iter().try_for_each(|list| print(out, *list))
    })?;
    Ok(CommandStatus::Success)
}

fn print(out: &mut impl Write, list: List) -> io::Result<()> {
    let items = items(list);
    let width = items.iter().map(|item| item.name.chars().count()).max().unwrap_or(0);
    writeln!(out, "{}", name(list))?;
    for ListItem { name, from, summary } in items {
        let from = if from.is_empty() { from } else { format!(" ({from})") };
        writeln!(out, "  {name:width$}  {summary}{from}")?;
    }
    writeln!(out)
}

/// One line of a list.
struct ListItem {
    name: String,
    from: String,
    summary: String,
}

fn item(name: &str, from: &str, summary: &str) -> ListItem {
    ListItem { name: name.to_owned(), from: from.to_owned(), summary: summary.to_owned() }
}

fn items(list: List) -> Vec<ListItem> {
    match list {
        List::Scenarios => SCENARIOS
            .iter()
            .map(|scenario| {
                let (read, _) = Scenario::read_toml(scenario.text);
                item(scenario.name, scenario.path, &read.title)
            })
            .collect(),
        List::Papers => PAPERS.iter().flat_map(tables).collect(),
        List::Topologies => TOPOLOGIES.iter().map(|e| item(e.name, e.source, e.summary)).collect(),
        List::Workloads => GENERATORS
            .iter()
            .map(|made| {
                let summary =
                    format!("generated: {} requests for {} files", made.requests, made.files);
                item(made.name, "", &summary)
            })
            .chain([item("FILE", "", "an access log or a trace, plain or compressed")])
            .collect(),
        List::Collectors => METRICS
            .iter()
            .map(|metric| item(metric.as_str(), metric.unit().as_str(), metric.title()))
            .collect(),
        List::Policies => POLICIES
            .iter()
            .flat_map(|file| file.iter())
            .map(|entry| item(entry.name, entry.paper, entry.summary))
            .collect(),
        List::Evictions => EVICTIONS.iter().map(|e| item(e.name, e.paper, e.summary)).collect(),
    }
}

fn tables(paper: &levada_paper::Paper) -> Vec<ListItem> {
    let table = |table: levada_paper::Table| {
        let runs = table.rows.len();
        item(&table.id, &table.source, &format!("{}, {runs} rows", table.title))
    };
    (paper.tables)().into_iter().map(table).collect()
}

fn to_json(list: List) -> Json {
    let item = |ListItem { name, from, summary }| json!({ "name": name, "from": from, "summary": summary });
    items(list).into_iter().map(item).collect()
}

/// The name on the command line.
fn name(list: List) -> String {
    list.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
