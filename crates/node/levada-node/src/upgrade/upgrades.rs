//! How far the upgrade of a process has come, and its result.

use std::{io, sync::Mutex, sync::PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::upgrade::{
    message::TakenOver,
    program::{Program, UntrustedProgram},
    successor::{SuccessorFailed, SuccessorProcess},
};

/// The upgrades of a process.
#[derive(Debug)]
pub(crate) struct Upgrades {
    program: Program,
    /// The process that is being started.
    starting: Mutex<Option<SuccessorProcess>>,
    phase: watch::Sender<UpgradePhase>,
}

/// How far an upgrade has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UpgradePhase {
    /// This process serves.
    Here,
    /// Another one does.
    Succeeded,
    /// It has all that it gets.
    Over,
}

/// The result of an upgrade, for the operator.
#[derive(Debug, Serialize)]
pub(crate) struct Upgraded {
    /// The process that was replaced.
    pub old: u32,
    /// The process that serves.
    pub new: u32,
    /// The entries that it got.
    #[serde(flatten)]
    pub taken: TakenOver,
}

/// Why a node is not upgraded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotUpgraded {
    /// Something else is changing the node.
    #[error("this node is being reloaded or upgraded at this moment: try again")]
    Busy,
    /// The end of this process would end more.
    #[error(
        "this is process 1: its end would end the container. Start a second node beside it instead"
    )]
    First,
    /// The program may not be run.
    #[error(transparent)]
    Program(#[from] UntrustedProgram),
    /// The new process has failed.
    #[error(transparent)]
    Failed(#[from] SuccessorFailed),
    /// This process has failed.
    #[error("this node cannot let go of its state: {0}")]
    Io(#[from] io::Error),
}

impl Default for Upgrades {
    fn default() -> Self {
        let phase = watch::Sender::new(UpgradePhase::Here);
        Self { program: Program::of_this_process(), starting: Mutex::default(), phase }
    }
}

impl Upgrades {
    /// The program that is to run.
    ///
    /// # Errors
    /// When this process must not be replaced, or not by this one.
    pub(crate) fn program(&self, binary: Option<&std::path::Path>) -> Result<Program, NotUpgraded> {
        if std::process::id() == 1 {
            return Err(NotUpgraded::First);
        }
        Ok(match binary {
            Some(path) => self.program.at(path)?,
            None => self.program.clone(),
        })
    }

    /// Another process is being started, or none any more.
    pub(crate) fn starts(&self, process: Option<SuccessorProcess>) {
        *self.starting.lock().unwrap_or_else(PoisonError::into_inner) = process;
    }

    /// The upgrade has come so far.
    pub(crate) fn is_at(&self, phase: UpgradePhase) {
        self.phase.send_replace(phase);
    }

    /// Returns when the upgrade has come so far.
    pub(crate) async fn until(&self, phase: UpgradePhase) {
        // The sender lives as long as this does.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Whether another process serves.
    pub(crate) fn has_succeeded(&self) -> bool {
        *self.phase.borrow() > UpgradePhase::Here
    }

    /// Gives an upgrade up that has not succeeded.
    pub(crate) fn give_up(&self) {
        let starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(process) = starting.filter(|_| !self.has_succeeded()) {
            process.end();
        }
    }
}
