//! `levada convert`: reads the files of other servers, writes the new one, and says what became of each statement.

mod command;
mod compare;
mod files;

pub use command::{ConvertArgs, run};
