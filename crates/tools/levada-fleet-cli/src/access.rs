//! The token of a command, and who gives it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use levada_fleet::{Token, state::State};

/// The state of the fleet.
#[derive(Args, Debug)]
pub(crate) struct Access {
    /// A token of the fleet. Without it, the one that `levada fleet init` has written on this machine.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "LEVADA_FLEET_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// The directory of this machine's node, where `init` writes its token.
    #[arg(long, global = true, value_name = "DIRECTORY", default_value = DEFAULT_DIRECTORY)]
    pub(crate) directory: PathBuf,
}

/// The directory of a node of a fleet.
pub(crate) const DEFAULT_DIRECTORY: &str = "/var/lib/levada/node";

impl Access {
    /// The token, and the state that it opens.
    ///
    /// # Errors
    /// If there is no token.
    pub(crate) fn open(&self) -> anyhow::Result<(Token, State)> {
        let text = match &self.token {
            Some(token) => token.clone(),
            None => {
                let file = token_file(&self.directory);
                fs::read_to_string(&file).with_context(|| {
                    format!("{}: give a token by --token or LEVADA_FLEET_TOKEN", file.display())
                })?
            }
        };
        let token: Token = text.parse()?;
        let state = State::open(&token)?;
        Ok((token, state))
    }
}

/// The file in which `init` leaves the token of the administrator.
pub(crate) fn token_file(directory: &Path) -> PathBuf {
    directory.join("admin.token")
}

/// User and machine, for the audit.
pub(crate) fn from() -> String {
    let user =
        ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    format!("{}@{}", user.unwrap_or_else(|| "unknown".to_owned()), host_name())
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}
