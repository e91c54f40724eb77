//! Scenarios: read, changed, checked and identified by the code of the command line.

use std::{error::Error as _, path::Path};

use levada_sim::scenario_file::{ChangeNames, Changes, SCENARIOS, SIMULATOR, Source};
use levada_sim::{METRICS, Outcome, Scenario};
use levada_trace::generate::GENERATORS;
use pyo3::{
    create_exception,
    exceptions::{PyOSError, PyValueError},
    prelude::*,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value as Json, json};

use crate::traces::Traces;

create_exception!(
    levada,
    ScenarioError,
    PyValueError,
    "A scenario that cannot be run, with all its mistakes."
);

/// Changes by keywords.
#[derive(FromPyObject)]
pub struct Overrides {
    policy: Option<String>,
    servers: Option<usize>,
    seed: Option<u64>,
    /// Other keys, and their values as JSON.
    sets: Vec<(String, String)>,
}

/// Checks a scenario file, or the listed scenario of this name. Returns the scenario as JSON.
#[pyfunction]
pub fn check(
    py: Python<'_>,
    path: &str,
    overrides: Overrides,
    traces: &Traces,
) -> PyResult<String> {
    let path = Path::new(path);
    let source = levada_sim::scenario_file::read(path).map_err(|error| {
        let reason = error.source().map(|reason| format!(": {reason}")).unwrap_or_default();
        PyOSError::new_err(format!("{error}{reason}"))
    })?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let changes = overrides.changes()?;
    let checked = py.detach(|| traces.check(&source, directory, &changes));
    match checked.scenario {
        Some(scenario) => to_json(&scenario),
        None => Err(cannot_be_run(&path.display().to_string(), &checked.errors.concat())),
    }
}

/// Checks a scenario that is given as JSON. Returns the whole scenario as JSON.
#[pyfunction]
pub fn check_tree(
    py: Python<'_>,
    tree: &str,
    overrides: Overrides,
    traces: &Traces,
) -> PyResult<String> {
    let mut tree: Json = from_json(tree)?;
    leave_out_nulls(&mut tree);
    let text = toml::to_string(&tree).map_err(|error| wrong_value("scenario", &error))?;
    let source = Source { name: "scenario".to_owned(), text };
    let changes = overrides.changes()?;
    let checked = py.detach(|| traces.check(&source, Path::new(""), &changes));
    match checked.scenario {
        Some(scenario) => to_json(&scenario),
        None => {
            let lines: Vec<_> = checked.errors.iter().flat_map(|error| error.lines()).collect();
            let lines = lines.into_iter().map(without_place).collect::<Vec<_>>();
            Err(cannot_be_run("scenario", &(lines.join("\n") + "\n")))
        }
    }
}

/// An error without its line in a text that nobody wrote.
fn without_place(line: &str) -> String {
    match line.split_once(": error: ") {
        Some((place, error)) if place.starts_with("scenario:") => {
            format!("scenario: error: {error}")
        }
        _ => line.to_owned(),
    }
}

fn cannot_be_run(name: &str, errors: &str) -> PyErr {
    ScenarioError::new_err(format!("{name} cannot be run\n{errors}").trim_end().to_owned())
}

fn wrong_value(key: &str, error: &dyn std::fmt::Display) -> PyErr {
    ScenarioError::new_err(format!("{key}: {error}"))
}

impl Overrides {
    fn changes(self) -> PyResult<Changes> {
        let sets = self.sets.into_iter().map(|(key, value)| {
            let value: Json = from_json(&value)?;
            let value = toml::Value::try_from(&value).map_err(|error| wrong_value(&key, &error))?;
            Ok((key, value.to_string()))
        });
        Ok(Changes {
            policy: self.policy,
            servers: self.servers,
            seed: self.seed,
            sets: sets.collect::<PyResult<_>>()?,
            names: ChangeNames {
                policy: "policy",
                servers: "servers",
                seed: "seed",
                set: "override",
            },
        })
    }
}

/// TOML has no null: a key that is None is a key that is not given.
fn leave_out_nulls(tree: &mut Json) {
    if let Json::Object(table) = tree {
        table.retain(|_, value| !value.is_null());
        table.values_mut().for_each(leave_out_nulls);
    }
}

/// The key of a run, as `levada sim run` stores its outcome.
#[pyfunction]
pub fn run_key(scenario: &str) -> PyResult<String> {
    Ok(levada_sim::scenario_file::run_key(&from_json(scenario)?))
}

/// The files that a scenario reads.
#[pyfunction]
pub fn files(scenario: &str) -> PyResult<Vec<String>> {
    let scenario: Scenario = from_json(scenario)?;
    let trace = Some(scenario.workload.trace).filter(|trace| {
        scenario.cap.is_none() && GENERATORS.iter().all(|generator| generator.name != *trace)
    });
    Ok(trace.into_iter().chain(scenario.topology.file).collect())
}

/// The scenario files that come with Levada: name and text.
#[pyfunction]
pub fn scenarios() -> Vec<(&'static str, &'static str)> {
    SCENARIOS.iter().map(|example| (example.name, example.text)).collect()
}

/// The hash of the simulator's code.
#[pyfunction]
pub fn simulator() -> &'static str {
    SIMULATOR
}

/// Every metric as JSON: name, title and unit.
#[pyfunction]
pub fn metrics() -> PyResult<String> {
    let described = |metric: &levada_sim::Metric| {
        json!({
            "name": metric.as_str(),
            "title": metric.title(),
            "unit": metric.unit().as_str(),
        })
    };
    to_json(&METRICS.iter().map(described).collect::<Vec<_>>())
}

/// The remarks of an outcome, as sentences.
#[pyfunction]
pub fn remarks(outcome: &str) -> PyResult<Vec<String>> {
    let outcome: Outcome = from_json(outcome)?;
    Ok(outcome.remarks.iter().map(ToString::to_string).collect())
}

/// # Errors
/// For a text that the Python modules did not get from here.
pub fn from_json<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// # Errors
/// For a value that has no JSON.
pub fn to_json<T: Serialize>(value: &T) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}
