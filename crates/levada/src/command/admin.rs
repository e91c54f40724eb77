//! The admin address of a running node, from an option or from its configuration.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

/// The node to connect to.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// The configuration file of the running node, which has the admin address.
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The admin address of the running node.
    #[arg(long, value_name = "ADDRESS", global = true)]
    admin: Option<SocketAddr>,
}

impl AdminArgs {
    /// The address. A file with errors can still have it.
    ///
    /// # Errors
    /// If neither option is given.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        let file = match (&self.admin, &self.config) {
            (Some(admin), _) => return Ok(*admin),
            (None, Some(file)) => file,
            (None, None) => bail!("say which node: --config FILE or --admin ADDRESS"),
        };
        let unreadable = || format!("cannot read {}", file.display());
        let checked = levada_config::load(file).with_context(unreadable)?;
        checked.admin.with_context(|| {
            format!("{} has no admin address: set `listen` in [admin]", file.display())
        })
    }
}
