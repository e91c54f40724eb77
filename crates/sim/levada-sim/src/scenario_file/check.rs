//! Scenarios of the simulator. Problems are reported as for a node's configuration: with file, line,
//! key and remedy, all at once.
//!
//! levada-sim checks the scenario. This module adds the place of each problem: a line of the file, or
//! the command-line option of the value.

use std::path::Path as FilePath;

use crate::{Library, Policy, Problem as Wrong, Problems, Scenario};
use levada_trace::generate::GENERATORS;
use levada_types::document::{Findings, Node, Path, Source};

/// Changes by the command line, or by the keywords of a call.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Another policy does not get the parameters of the file's policy.
    pub policy: Option<String>,
    /// Number of servers.
    pub servers: Option<usize>,
    /// Seed.
    pub seed: Option<u64>,
    /// Other keys and their values; they apply last.
    pub sets: Vec<(String, String)>,
    /// The words of errors for the changes.
    pub names: ChangeNames,
}

/// The name that an error has for each kind of change.
#[derive(Clone, Copy, Debug)]
pub struct ChangeNames {
    /// Of the policy.
    pub policy: &'static str,
    /// Of the number of servers.
    pub servers: &'static str,
    /// Of the seed.
    pub seed: &'static str,
    /// Of any other key.
    pub set: &'static str,
}

impl Default for ChangeNames {
    /// The options of the command line.
    fn default() -> Self {
        Self { policy: "--policy", servers: "--servers", seed: "--seed", set: "--set" }
    }
}

/// A scenario that was read.
pub struct CheckedScenario {
    /// `None` exactly when there are errors.
    pub scenario: Option<Scenario>,
    /// The errors, a paragraph each: first the file's, in the order of its lines.
    pub errors: Vec<String>,
}

/// Reads the scenario in `source`, changes it, and checks it. Relative paths in the file begin at
/// `directory`, those of the command line where the command runs.
pub fn check(
    source: &Source,
    directory: &FilePath,
    changes: &Changes,
    library: &mut Library,
) -> CheckedScenario {
    let (root, syntax_errors) = Node::parse(&source.text);
    let mut findings = Findings::new(source, &root);
    if !syntax_errors.is_empty() {
        for error in syntax_errors {
            findings.error_at(error.span, &Path::default(), error.message);
        }
        return CheckedScenario {
            scenario: None,
            errors: vec![findings.into_report().to_string()],
        };
    }
    let (mut scenario, mut problems) = Scenario::read_toml(&source.text);
    begin_paths_at(directory, &mut scenario);
    let options = changes.apply(&mut scenario, &mut problems);
    if let Err(Problems(further)) = scenario.prepare(library) {
        problems.0.extend(further);
    }
    let mut of_options = Vec::new();
    for Wrong { place, what } in problems.0 {
        match options.iter().find(|(key, _)| *key == place) {
            Some((_, option)) => of_options.push(format!("{option}: error: {place}: {what}\n")),
            None => drop(findings.error(&path_of(&place), what)),
        }
    }
    let report = findings.into_report().to_string();
    let of_file = (!report.is_empty()).then_some(report);
    let errors: Vec<String> = of_file.into_iter().chain(of_options).collect();
    CheckedScenario { scenario: errors.is_empty().then_some(scenario), errors }
}

impl Changes {
    /// Changes `scenario`. Returns the changed keys, each with its option.
    fn apply(
        &self,
        scenario: &mut Scenario,
        problems: &mut Problems,
    ) -> Vec<(String, &'static str)> {
        let flags = [
            ("policy.name", self.names.policy, self.policy.is_some()),
            ("servers.count", self.names.servers, self.servers.is_some()),
            ("seed", self.names.seed, self.seed.is_some()),
        ];
        let flags = flags.iter().filter(|flag| flag.2).map(|flag| (flag.0.to_owned(), flag.1));
        let sets = self.sets.iter().map(|(key, _)| (key.clone(), self.names.set));
        let options: Vec<_> = flags.chain(sets).collect();
        // The command line replaces these values, so their problems are gone.
        problems.0.retain(|problem| options.iter().all(|(key, _)| *key != problem.place));
        if let Some(name) = self.policy.as_ref().filter(|name| **name != scenario.policy.name) {
            scenario.policy = Policy { name: name.clone(), ..Policy::default() };
        }
        scenario.servers.count = self.servers.unwrap_or(scenario.servers.count);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        for set in &self.sets {
            match scenario.with([(&set.0, &set.1)]) {
                Ok(changed) => *scenario = changed,
                Err(Problems(wrong)) => problems.0.extend(wrong),
            }
        }
        options
    }
}

/// Makes file paths relative to `directory`; names of generated traces are no paths.
fn begin_paths_at(directory: &FilePath, scenario: &mut Scenario) {
    let trace = &mut scenario.workload.trace;
    let generated = GENERATORS.iter().any(|generator| generator.name == *trace);
    let trace = (!generated).then_some(trace);
    for path in trace.into_iter().chain(&mut scenario.topology.file) {
        *path = directory.join(&path).display().to_string();
    }
}

/// The path of a dotted key. A number is a place in a list.
fn path_of(key: &str) -> Path {
    key.split('.').fold(Path::default(), |path, step| match step.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.key(step.to_owned()),
    })
}
