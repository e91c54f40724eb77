//! Runs a scenario without Python's lock, until its end, ctrl-C or a stop.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use levada_sim::{End, Scenario};
use pyo3::prelude::*;

use crate::{
    scenario::{ScenarioError, from_json, to_json},
    traces::Traces,
};

/// Stops the runs that watch it.
#[pyclass(frozen, module = "levada._levada")]
#[derive(Default)]
pub struct StopFlag(pub(crate) AtomicBool);

#[pymethods]
impl StopFlag {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Stops all runs that were given this flag.
    fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the scenario and returns the outcome as JSON; None if it was stopped by the flag.
///
/// In Python's main thread a signal's handler runs meanwhile, and ends the run if it raises.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    scenario: &str,
    traces: &Traces,
    stop: &StopFlag,
) -> PyResult<Option<String>> {
    let scenario: Scenario = from_json(scenario)?;
    let mut raised = None;
    let outcome = py.detach(|| {
        let prepared = traces.prepare(&scenario)?;
        let outcome = levada_sim::run(&prepared, &mut |_| {
            if stop.0.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            raised = Python::attach(|py| py.check_signals()).err();
            if raised.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        Ok(outcome)
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    let outcome = outcome
        .map_err(|problems: levada_sim::Problems| ScenarioError::new_err(problems.to_string()))?;
    if outcome.end == End::Stopped {
        return Ok(None);
    }
    to_json(&outcome).map(Some)
}
