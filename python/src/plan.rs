//! Plans from access logs, by the code of `levada plan`.

use std::{ops::ControlFlow, sync::atomic::Ordering};

use levada_plan::{PlanArgs, watched_plan};
use pyo3::{create_exception, exceptions::PyValueError, prelude::*};

use crate::{run::StopFlag, scenario::to_json};

create_exception!(
    levada,
    PlanError,
    PyValueError,
    "Options that cannot be, or logs from which nothing can be planned, with the remedy."
);

/// Plans with the words of the command line. Returns the plan as JSON and as text; None if it was stopped by the flag.
///
/// In Python's main thread a signal's handler runs meanwhile, and ends the plan if it raises.
#[pyfunction]
pub fn plan(
    py: Python<'_>,
    words: Vec<String>,
    stop: &StopFlag,
) -> PyResult<Option<(String, String)>> {
    let args = PlanArgs::from_words(words)
        .map_err(|error| PlanError::new_err(error.render().to_string().trim_end().to_owned()))?;
    let mut raised = None;
    let planned = py.detach(|| {
        watched_plan(&args, &mut |_| {
            raised = Python::attach(|py| py.check_signals()).err();
            if raised.is_some() || stop.0.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    match planned {
        Ok(plan) => Ok(Some((to_json(&plan)?, plan.to_string()))),
        Err(_) if stop.0.load(Ordering::Relaxed) => Ok(None),
        Err(error) => Err(PlanError::new_err(format!("{error:#}"))),
    }
}
