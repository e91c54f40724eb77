//! The servers that stand side by side: for each, how one that is installed is configured.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Result, case::Setting, server};

mod h2o;
mod haproxy;
mod levada;
mod nginx;
mod trafficserver;
mod varnish;

/// One kind of server.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Its program, or why there is none.
    pub(crate) find: fn() -> std::result::Result<PathBuf, String>,
    /// Writes what it reads into the site's directory, and returns the command that starts it in the
    /// foreground, on one core.
    pub(crate) configure: fn(&Path, &Site) -> Result<Command>,
}

/// Where one server stands.
pub(crate) struct Site<'a> {
    /// A directory of its own. `files` in it has the objects of cases that have few.
    pub(crate) dir: &'a Path,
    /// Its port, on 127.0.0.1.
    pub(crate) port: u16,
    /// The origin's port.
    pub(crate) origin: u16,
    pub(crate) setting: Setting,
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
}

/// Columns of the table; the first two are what ratios compare.
pub(crate) const PEERS: &[Peer] =
    &[levada::PEER, nginx::PEER, haproxy::PEER, h2o::PEER, varnish::PEER, trafficserver::PEER];

fn installed(program: &str) -> std::result::Result<PathBuf, String> {
    server::program(program).ok_or_else(|| format!("{program} is not installed"))
}
