//! The traces of scenarios, each loaded once while it is used.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use levada_sim::scenario_file::{Changes, CheckedScenario, Files, Source};
use levada_sim::{Library, Prepared, Problems, Scenario};
use levada_trace::Trace;
use pyo3::prelude::*;

/// A library of traces. One that has held many is emptied: each takes up to some ten megabytes.
#[pyclass(frozen, module = "levada._levada")]
pub struct Traces {
    /// Files that are at another path on this machine.
    moved: BTreeMap<String, String>,
    loaded: Mutex<Loaded>,
}

/// A library and the names of what it holds.
struct Loaded {
    library: Library,
    names: BTreeSet<(String, u64)>,
}

const MOST: usize = 6;

#[pymethods]
impl Traces {
    /// `moved` has the paths of files that are elsewhere on this machine.
    #[new]
    #[pyo3(signature = (moved = BTreeMap::new()))]
    fn new(moved: BTreeMap<String, String>) -> Self {
        let loaded = Mutex::new(Loaded::new(&moved));
        Self { moved, loaded }
    }
}

impl Traces {
    /// Checks the scenario in `source`. Other threads wait: most of them need the same trace.
    pub fn check(&self, source: &Source, directory: &Path, changes: &Changes) -> CheckedScenario {
        let mut loaded = self.lock();
        let checked =
            levada_sim::scenario_file::check(source, directory, changes, &mut loaded.library);
        if let Some(scenario) = &checked.scenario {
            self.bound(&mut loaded, scenario);
        }
        checked
    }

    /// Loads the inputs of the scenario.
    ///
    /// # Errors
    /// Every problem of the scenario.
    pub fn prepare(&self, scenario: &Scenario) -> Result<Prepared, Problems> {
        let mut loaded = self.lock();
        self.bound(&mut loaded, scenario);
        scenario.prepare(&mut loaded.library)
    }

    fn bound(&self, loaded: &mut Loaded, scenario: &Scenario) {
        let name = (scenario.workload.trace.clone(), scenario.seed);
        if loaded.names.len() >= MOST && !loaded.names.contains(&name) {
            *loaded = Loaded::new(&self.moved);
        }
        loaded.names.insert(name);
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loaded {
    fn new(moved: &BTreeMap<String, String>) -> Self {
        Self { library: Library::new(Box::new(Moved(moved.clone()))), names: BTreeSet::new() }
    }
}

/// The files of this machine, some of them at another path.
struct Moved(BTreeMap<String, String>);

impl Moved {
    fn place<'p>(&'p self, path: &'p str) -> &'p str {
        self.0.get(path).map_or(path, String::as_str)
    }
}

impl levada_sim::Source for Moved {
    fn trace(&mut self, path: &str) -> Result<Trace, String> {
        Files.trace(self.place(path))
    }

    fn text(&mut self, path: &str) -> Result<String, String> {
        Files.text(self.place(path))
    }
}
