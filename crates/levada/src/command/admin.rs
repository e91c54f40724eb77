//! The admin address of a running node, from an option or from its configuration.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use levada_client::command::{admin_client, block_on};
use levada_types::AdminAddress;
use serde_json::json;

use super::configuration;

/// The admin address of the examples and of `levada init`.
pub(super) const USUAL_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9180);
/// The timeout for an answer that a node has at hand. A node that is silent for longer hangs.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for an order that a node carries out before it answers: with many sites it reads and checks
/// for seconds.
pub(super) const ORDER_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which a node is asked how far an order is. A person sees no delay, and the node no load.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The node to connect to.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// The configuration file of the running node, which has the admin address.
    #[arg(short, long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The admin address of the running node: an IP address and a port, or unix: and a path.
    #[arg(long, value_name = "ADDRESS", global = true)]
    admin: Option<AdminAddress>,
    /// A file with the token for orders, if the node requires one; with --config it is that of the
    /// configuration.
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

impl AdminArgs {
    /// The address. A file with errors can still have it.
    ///
    /// # Errors
    /// If neither option is given.
    pub(crate) fn address(&self) -> anyhow::Result<AdminAddress> {
        match (&self.admin, &self.config) {
            (Some(admin), _) => Ok(admin.clone()),
            (None, Some(file)) => admin_address(file),
            (None, None) => bail!("say which node: --config FILE or --admin ADDRESS"),
        }
    }

    /// The address, which is that of the file `default` if neither option is given.
    ///
    /// # Errors
    /// If the file cannot be read, or has none.
    pub(crate) fn address_or(&self, default: &str) -> anyhow::Result<AdminAddress> {
        match (&self.admin, &self.config) {
            (None, None) => admin_address(Path::new(default)),
            _ => self.address(),
        }
    }

    /// Whether an option names the node.
    pub(crate) fn is_named(&self) -> bool {
        self.admin.is_some() || self.config.is_some()
    }

    /// The token for orders, if there is one.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        match (&self.token_file, &self.config) {
            (Some(file), _) => read_token(file).map(Some),
            (None, Some(file)) => Ok(configuration::load(file)?.admin_token),
            (None, None) => Ok(None),
        }
    }

    /// The answer of the node to an order, or the text of its refusal.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub(crate) fn order(
        &self,
        target: &str,
        timeout: Duration,
    ) -> anyhow::Result<Result<Bytes, String>> {
        let (admin, token) = (self.address()?, self.token()?);
        let nothing = json!({});
        block_on(admin_client::try_post(&admin, target, &nothing, token.as_deref(), timeout))?
    }
}

/// The token in a file.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn read_token(file: &Path) -> anyhow::Result<String> {
    let content = std::fs::read_to_string(file);
    let content = content.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(content.trim().to_owned())
}

fn admin_address(file: &Path) -> anyhow::Result<AdminAddress> {
    configuration::load(file)?.admin.with_context(|| {
        format!("{} has no admin address: set `listen` in [admin]", file.display())
    })
}
