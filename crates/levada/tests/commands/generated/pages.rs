//! The documents that are made from declarations: keys of the configuration, policies and their
//! parameters, directives of other servers, the version in files of packages, the dashboards, the map of the crates.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, bail};
use levada_config::schema;
use levada_policy::{POLICIES, Parameter, PolicyEntry};
use levada_sim::Scenario;
use serde_json::Value as Json;

use super::{dashboards, directives, house, root};

/// A page and its expected text.
pub(super) struct Page {
    /// From the root of the source.
    pub(super) path: String,
    pub(super) text: String,
}

const CONFIGURATION: &str = "docs/operate/configuration.md";
const FLEET_API: &str = "docs/operate/fleet-api.md";
const ROUTES: &str = "docs/operate/routes.md";
const SCENARIOS: &str = "docs/simulate/scenarios.md";

/// All of them.
///
/// # Errors
/// When a page that is generated in part cannot be read, or asks for what there is not.
pub(super) fn all() -> anyhow::Result<Vec<Page>> {
    let schema = schema::schema();
    let mut pages = vec![
        filled(CONFIGURATION, &schema)?,
        filled(ROUTES, &schema)?,
        filled(SCENARIOS, &schema::of::<Scenario>())?,
        Page {
            path: "docs/operate/configuration.schema.json".to_owned(),
            text: serde_json::to_string_pretty(&schema)? + "\n",
        },
        Page { path: "docs/policies/reference.md".to_owned(), text: policies() },
        Page {
            path: "docs/operate/fleet.openapi.json".to_owned(),
            text: serde_json::to_string_pretty(&levada_fleet_api::description())? + "\n",
        },
        fleet_api()?,
        versioned("packaging/helm/levada/Chart.yaml", ": ", &["version", "appVersion"], "")?,
        versioned("python/Cargo.toml", " = ", &["version"], "\"")?,
    ];
    pages.extend(directives::pages()?);
    pages.extend(dashboards::pages()?);
    pages.push(house::page()?);
    Ok(pages)
}

/// The page at `path`, with its tables of keys as `schema` declares them.
fn filled(path: &'static str, schema: &Json) -> anyhow::Result<Page> {
    let written = fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
    Ok(Page { path: path.to_owned(), text: with_keys(&written, schema)? })
}

/// The page of the API of a fleet, with the table of its routes.
fn fleet_api() -> anyhow::Result<Page> {
    let written = fs::read_to_string(root().join(FLEET_API)).context(FLEET_API)?;
    let text =
        with_generated(&written, "<!-- generated: requests of ", |_| Ok(levada_fleet_api::table()));
    Ok(Page { path: FLEET_API.to_owned(), text: text? })
}

/// A file whose lines `keys` have the version of Cargo.toml, in `quotes`.
fn versioned(path: &str, separator: &str, keys: &[&str], quotes: &str) -> anyhow::Result<Page> {
    let written = fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
    let line = |line: &str| match line.split_once(separator) {
        Some((key, _)) if keys.contains(&key) => {
            format!("{key}{separator}{quotes}{}{quotes}\n", env!("CARGO_PKG_VERSION"))
        }
        _ => format!("{line}\n"),
    };
    Ok(Page { path: path.to_owned(), text: written.lines().map(line).collect() })
}

const KEYS: &str = "<!-- generated: keys of ";
const END: &str = "<!-- end -->";

/// `page` with a table of keys between each pair of marks.
fn with_keys(page: &str, schema: &Json) -> anyhow::Result<String> {
    with_generated(page, KEYS, |table| keys_of(table, schema))
}

/// `page` with what `make` makes of the words in each mark. The text outside the marks is written by hand.
pub(super) fn with_generated(
    page: &str,
    mark: &str,
    make: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, from)) = rest.split_once(mark) {
        let (what, after) = from.split_once(" -->").context("a mark without its end")?;
        let (_, after) = after.split_once(END).with_context(|| format!("no `{END}` of {what}"))?;
        text += &format!("{before}{mark}{what} -->\n{}{END}", make(what)?);
        rest = after;
    }
    Ok(text + rest)
}

/// A table, or the tables of a list.
fn fields(schema: &Json) -> &Json {
    if schema["items"].is_object() { &schema["items"] } else { schema }
}

fn keys_of(table: &str, schema: &Json) -> anyhow::Result<String> {
    let mut rows = String::from("\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n");
    if table == "(top)" {
        add_keys(&mut rows, "", schema, &Json::Null, false);
    } else {
        let property =
            table.split('.').fold(schema, |around, key| &fields(around)["properties"][key]);
        let inner = fields(property);
        if !inner["properties"].is_object() {
            bail!("there is no table `{table}`");
        }
        let mut own = inner.clone();
        // The keys that a table inherits are described where they come from.
        if let Some((around, _)) = table.rsplit_once('.') {
            let inherited = &fields(&schema["properties"][around])["properties"];
            let keys = own["properties"].as_object_mut().context("a table has keys")?;
            keys.retain(|key, described| inherited[key.as_str()] != *described);
        }
        add_keys(&mut rows, "", &own, &property["default"], true);
    }
    Ok(rows + "\n")
}

/// A row for each key of the table; those of inner tables follow theirs when `deep`. A key that has no
/// default of its own has that of the table around it.
fn add_keys(rows: &mut String, prefix: &str, table: &Json, defaults: &Json, deep: bool) {
    let required: Vec<_> = table["required"].as_array().into_iter().flatten().collect();
    for (key, property) in table["properties"].as_object().into_iter().flatten() {
        let around = &defaults[key.as_str()];
        let own = property.get("default").unwrap_or(around);
        let is_required = around.is_null() && required.contains(&&Json::from(key.as_str()));
        let default = match own {
            _ if is_required => "**required**".to_owned(),
            Json::Null | Json::Object(_) | Json::Array(_) => String::new(),
            value => format!("`{value}`"),
        };
        let value = cell(&schema::describe(property));
        let _ = writeln!(rows, "| `{prefix}{key}` | {value} | {default} | {} |", meaning(property));
        // A policy's own keys are in the reference of policies.
        if deep && property["allOf"].is_null() && property["x-page"].is_null() {
            add_keys(rows, &format!("{prefix}{key}."), property, own, true);
            add_keys(rows, &format!("{prefix}{key}[]."), &property["items"], &Json::Null, true);
            // A table that can be off.
            for branch in property["anyOf"].as_array().into_iter().flatten() {
                add_keys(rows, &format!("{prefix}{key}."), branch, &Json::Null, true);
            }
        }
    }
}

fn meaning(property: &Json) -> String {
    let text = |schema: &Json| cell(schema["description"].as_str().unwrap_or_default());
    let mut meaning = text(property);
    for word in property["oneOf"].as_array().into_iter().flatten() {
        let _ = write!(meaning, " `{}`: {}", word["const"], text(word));
    }
    meaning
}

/// As a cell of a table holds it.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

const POLICIES_HEAD: &str = "\
# Policies

<!-- generated by `cargo xtask docs` from the declarations in levada-policy -->

Which node serves a request. A policy is named in the `[policy]` table of the \
[configuration](../operate/configuration.md), together with its parameters; `levada policies` \
prints the same on a terminal.
";

fn policies() -> String {
    let entries = || POLICIES.iter().flat_map(|file| file.iter());
    let mut page = POLICIES_HEAD.to_owned();
    page += "\n| Policy | From | Runs in | How it chooses |\n|---|---|---|---|\n";
    for entry in entries() {
        let PolicyEntry { name, paper, summary, .. } = entry;
        let row = [*paper, runs_in(entry), *summary].map(cell).join(" | ");
        let _ = writeln!(page, "| [`{name}`](#{}) | {row} |", anchor(name));
    }
    for entry in entries() {
        add_policy(&mut page, entry);
    }
    page
}

fn add_policy(page: &mut String, entry: &PolicyEntry) {
    let _ = writeln!(page, "\n## {}\n\n{}. From {}.", entry.name, sentence(entry), entry.paper);
    if !entry.needs.is_empty() {
        let needs: Vec<_> = entry.needs.iter().map(|need| need.as_str()).collect();
        let _ = writeln!(page, "\nNeeds: {}.", needs.join(", "));
    }
    if entry.parameters.is_empty() {
        *page += "\nNo parameters.\n";
        return;
    }
    *page += "\n| Parameter | Value | Default | Meaning |\n|---|---|---|---|\n";
    for parameter in entry.parameters {
        let Parameter { name, kind, help, .. } = parameter;
        let default = cell(&schema::describe_default(parameter));
        let _ = writeln!(
            page,
            "| `{name}` | {} | {default} | {} |",
            cell(&kind.to_string()),
            cell(help)
        );
    }
}

/// The summary with a capital letter.
fn sentence(entry: &PolicyEntry) -> String {
    let mut letters = entry.summary.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn runs_in(entry: &PolicyEntry) -> &'static str {
    if entry.runs_on_an_edge() { "edge, simulator" } else { "simulator" }
}

/// The anchor that renderers of Markdown give a heading.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_by_hand_stays() {
        let schema = schema::schema();
        let page = "before\n<!-- generated: keys of admin -->\nold\n<!-- end -->\nafter\n";
        let made = with_keys(page, &schema).unwrap();
        assert!(made.starts_with("before\n") && made.ends_with("\nafter\n"), "{made}");
        assert!(made.contains("| `listen` |") && !made.contains("old"), "{made}");
        assert_eq!(with_keys(&made, &schema).unwrap(), made, "twice is once");
    }

    #[test]
    fn a_table_that_is_not_there_is_an_error() {
        assert!(
            with_keys("<!-- generated: keys of nothing -->\n<!-- end -->", &schema::schema())
                .is_err()
        );
    }

    #[test]
    fn every_policy_has_a_heading() {
        let page = policies();
        for entry in POLICIES.iter().flat_map(|file| file.iter()) {
            assert!(page.contains(&format!("\n## {}\n", entry.name)), "{}", entry.name);
        }
    }
}
