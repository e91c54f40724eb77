//! Scenario files of the simulator, as people write, name and change them.
//!
//! [`read`] finds a file or a listed scenario, [`check`] applies changes and names every mistake with
//! its line, [`Files`] reads traces and topologies, and [`run_key`] identifies the run, so that its
//! outcome can be stored. The command line and the Python package share this module, and with it every
//! error message and every key.

mod check;
mod files;
mod listed;
mod run_key;

pub use check::{ChangeNames, Changes, CheckedScenario, check};
pub use files::Files;
pub use levada_types::document::Source;
pub use listed::{Example, SCENARIOS, Unreadable, matrix, read};
pub use run_key::{SIMULATOR, run_key};
