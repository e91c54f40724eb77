//! The inputs of scenarios that are not numbers: traces, read or generated, each loaded once.

use std::{collections::BTreeMap, sync::Arc};

use levada_trace::{Trace, generate::GENERATORS};

/// Reads files for this crate, which opens none itself.
pub trait Source {
    /// The requests in the access log or trace `path`.
    ///
    /// # Errors
    /// The problem and its remedy, as a user should read them.
    fn trace(&mut self, path: &str) -> Result<Trace, String>;

    /// The text of the file `path`, such as a topology.
    ///
    /// # Errors
    /// As above.
    fn text(&mut self, path: &str) -> Result<String, String>;
}

/// Traces by name. They are kept because generating one takes seconds and scenarios share them.
pub struct Library {
    source: Box<dyn Source + Send>,
    traces: BTreeMap<(String, u64), Arc<Trace>>,
}

impl Library {
    /// An empty library that reads files from `source`.
    pub fn new(source: Box<dyn Source + Send>) -> Self {
        Self { source, traces: BTreeMap::new() }
    }

    /// A library without files: scenarios can name only generated traces and listed topologies.
    pub fn without_files() -> Self {
        Self::new(Box::new(NoFiles))
    }

    /// The trace `name`: one that levada-trace generates from `seed`, or a file.
    ///
    /// # Errors
    /// The source's error for a file.
    pub fn trace(&mut self, name: &str, seed: u64) -> Result<Arc<Trace>, String> {
        let generator = GENERATORS.iter().find(|generator| generator.name == name);
        let key = (name.to_owned(), if generator.is_some() { seed } else { 0 });
        if let Some(known) = self.traces.get(&key) {
            return Ok(known.clone());
        }
        let trace = Arc::new(match generator {
            Some(generator) => (generator.generate)(seed),
            None => self.source.trace(name)?,
        });
        self.traces.insert(key, trace.clone());
        Ok(trace)
    }

    /// The text of a file.
    ///
    /// # Errors
    /// The source's error.
    pub fn text(&mut self, path: &str) -> Result<String, String> {
        self.source.text(path)
    }

    /// Stores `trace` under `name`, for tests and benchmarks.
    pub fn keep(&mut self, name: &str, trace: Trace) {
        self.traces.insert((name.to_owned(), 0), Arc::new(trace));
    }
}

struct NoFiles;

impl Source for NoFiles {
    fn trace(&mut self, path: &str) -> Result<Trace, String> {
        let known: Vec<_> = GENERATORS.iter().map(|generator| generator.name).collect();
        Err(format!("no trace `{path}` is at hand; generated ones are {}", known.join(", ")))
    }

    fn text(&mut self, path: &str) -> Result<String, String> {
        Err(format!("`{path}` cannot be read here"))
    }
}
