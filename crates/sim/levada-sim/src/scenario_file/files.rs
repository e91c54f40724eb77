//! Reads the files of scenarios for the simulator, which opens none itself.

use std::fs;

use crate::Source;
use levada_trace::{Trace, TraceLimits, open};

/// Source of files: this machine.
pub struct Files;

impl Source for Files {
    fn trace(&mut self, path: &str) -> Result<Trace, String> {
        let reader = open(path).map_err(|error| format!("{path}: {error}"))?;
        let (trace, skipped) = Trace::from_reader(reader, &TraceLimits::default());
        if trace.requests().is_empty() {
            return Err(format!("{path} has no request that counts: {skipped}"));
        }
        Ok(trace)
    }

    fn text(&mut self, path: &str) -> Result<String, String> {
        fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
    }
}
