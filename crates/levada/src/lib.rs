//! The parts of the `levada` command that its tests and the project's chores use as well.

pub mod config;
