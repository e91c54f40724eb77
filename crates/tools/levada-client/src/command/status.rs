//! How a command ended.

use std::process::ExitCode;

/// The result of a command that could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStatus {
    /// Exit code 0.
    Success,
    /// The command ran and found something wrong: exit code 1.
    ProblemsFound,
    /// The command ran another program and ends with its exit code.
    Exit(u8),
}

impl CommandStatus {
    /// The result of a command that ran and found everything fine, or did not.
    pub fn of(is_fine: bool) -> Self {
        if is_fine { Self::Success } else { Self::ProblemsFound }
    }
}

impl From<CommandStatus> for ExitCode {
    fn from(status: CommandStatus) -> Self {
        match status {
            CommandStatus::Success => Self::SUCCESS,
            CommandStatus::ProblemsFound => Self::from(1),
            CommandStatus::Exit(code) => Self::from(code),
        }
    }
}
