//! One file per command. Each takes its arguments, writes its report to standard output, and returns
//! a verdict.

mod admin;
mod ask;
pub(crate) mod classify;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod handoff_backend;
pub(crate) mod lab;
pub(crate) mod policies;
pub(crate) mod purge;
pub(crate) mod reload;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod servers;
pub(crate) mod sim;
pub(crate) mod sync;
pub(crate) mod validate;

use std::process::ExitCode;

/// What a command that could run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing to complain about.
    Done,
    /// It ran, and found something wrong.
    FoundWrong,
    /// It ran another program, and ends as that did.
    Exit(u8),
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::SUCCESS,
            Verdict::FoundWrong => Self::from(1),
            Verdict::Exit(code) => Self::from(code),
        }
    }
}
