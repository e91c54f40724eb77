//! `levada._levada`, the compiled part of the Python package: scenarios and outcomes cross as JSON,
//! and the Python modules next to it give them their form.

mod plan;
mod policy;
mod run;
mod scenario;
mod traces;

use pyo3::prelude::*;

/// The functions and classes that the Python modules use.
#[pymodule]
mod _levada {
    #[pymodule_export]
    use crate::{
        plan::{PlanError, plan},
        policy::{Pick, Policy, policies},
        run::{StopFlag, run},
        scenario::{
            ScenarioError, check, check_tree, files, metrics, remarks, run_key, scenarios,
            simulator,
        },
        traces::Traces,
    };
}
