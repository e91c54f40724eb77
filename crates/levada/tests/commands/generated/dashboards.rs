//! The Grafana dashboards, made of a list of panels and their queries.

use std::fs;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{pages::Page, root};

const SOURCE: &str = "packaging/grafana/dashboards.toml";

#[derive(Deserialize)]
struct Dashboards {
    dashboard: Vec<Dashboard>,
}

#[derive(Deserialize)]
struct Dashboard {
    file: String,
    title: String,
    #[serde(default)]
    variables: Vec<String>,
    panel: Vec<Panel>,
}

#[derive(Deserialize)]
struct Panel {
    title: String,
    unit: String,
    /// The legend and the expression of each.
    queries: Vec<(String, String)>,
}

/// The files that Grafana reads.
///
/// # Errors
/// When the list cannot be read.
pub(super) fn pages() -> anyhow::Result<Vec<Page>> {
    let list = fs::read_to_string(root().join(SOURCE)).context(SOURCE)?;
    let list: Dashboards = toml::from_str(&list).context(SOURCE)?;
    let page = |dashboard: &Dashboard| {
        let path = format!("packaging/grafana/dashboards/{}.json", dashboard.file);
        Ok(Page { path, text: serde_json::to_string_pretty(&model(dashboard))? + "\n" })
    };
    list.dashboard.iter().map(page).collect()
}

fn model(dashboard: &Dashboard) -> Json {
    let panels: Vec<Json> = (0..).zip(&dashboard.panel).map(panel).collect();
    let variables: Vec<Json> = dashboard.variables.iter().map(|label| variable(label)).collect();
    json!({
        "uid": format!("levada-{}", dashboard.file),
        "title": dashboard.title,
        "tags": ["levada"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {"list": variables},
        "panels": panels,
    })
}

fn source() -> Json {
    json!({"type": "prometheus", "uid": "prometheus"})
}

fn panel((number, panel): (u32, &Panel)) -> Json {
    let names = "ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars();
    let target = |(name, (legend, expression)): (char, &(String, String))| json!({"refId": name.to_string(), "expr": expression, "legendFormat": legend});
    let targets: Vec<Json> = names.zip(&panel.queries).map(target).collect();
    json!({
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "gridPos": {"h": 8, "w": 12, "x": number % 2 * 12, "y": number / 2 * 8},
        "datasource": source(),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    })
}

fn variable(label: &str) -> Json {
    json!({
        "name": label,
        "label": label,
        "type": "query",
        "datasource": source(),
        "query": format!("label_values(levada_http_requests_total, {label})"),
        "refresh": 2,
        "includeAll": true,
        "allValue": ".*",
        "multi": true,
        "current": {"text": "All", "value": "$__all"},
    })
}
