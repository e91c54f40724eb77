//! `levada fleet` and `levada join`: many nodes from one directory.
//!
//! ```text
//! access     the token of a command
//! init       a new fleet
//! join       a new machine
//! directory  check and diff
//! apply      apply and rollback
//! show       status and history
//! member     drain, remove, rotate
//! token      tokens
//! serve      the same orders over HTTP
//! ```

mod access;
mod apply;
mod directory;
mod init;
pub mod join;
mod member;
mod serve;
mod show;
mod token;

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use levada_client::command::{CommandStatus, block_on};
use levada_fleet::{FollowedNode, Follower, Home, StartError, model::Health, serve as keeping};

use access::Access;

/// Keeps many nodes at one directory under version control: docs/operate/fleet.md.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FleetArgs {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    order: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    Init(init::InitArgs),
    Token(token::TokenArgs),
    Check(directory::CheckArgs),
    Diff(directory::DiffArgs),
    Apply(apply::ApplyArgs),
    Rollback(apply::RollbackArgs),
    Status(show::StatusArgs),
    History(show::HistoryArgs),
    Drain(member::DrainArgs),
    Remove(member::RemoveArgs),
    Rotate(member::RotateArgs),
    Serve(serve::ServeArgs),
}

/// Carries out one order. `start_error` says why a node could not start by settings, if it could not.
///
/// # Errors
/// If the state cannot be reached, or refuses.
pub fn run(args: &FleetArgs, start_error: StartError<'static>) -> anyhow::Result<CommandStatus> {
    let FleetArgs { access, order } = args;
    match order {
        FleetCommand::Init(args) => block_on(init::run(args, access))?,
        FleetCommand::Token(args) => block_on(token::run(args, access))?,
        FleetCommand::Check(args) => directory::check(args, start_error),
        FleetCommand::Diff(args) => block_on(directory::diff(args, access, start_error))?,
        FleetCommand::Apply(args) => block_on(apply::run(args, access, start_error))?,
        FleetCommand::Rollback(args) => block_on(apply::roll_back(args, access, start_error))?,
        FleetCommand::Status(args) => block_on(show::status(args, access))?,
        FleetCommand::History(args) => block_on(show::history(args, access))?,
        FleetCommand::Drain(args) => block_on(member::drain(args, access))?,
        FleetCommand::Remove(args) => block_on(member::remove(args, access))?,
        FleetCommand::Rotate(args) => block_on(member::rotate(args, access))?,
        FleetCommand::Serve(args) => block_on(serve::run(args, access, start_error))?,
    }
}

/// The follower of the node that has joined in a directory, which has the revision that the node starts with.
///
/// # Errors
/// If no node has joined there, or it cannot use its first revision.
pub fn follower(directory: &Path, start_error: StartError<'_>) -> anyhow::Result<Follower> {
    let home = Home::new(directory);
    let membership = home.membership()?.with_context(|| {
        format!("no node has joined in {}: levada join TOKEN", directory.display())
    })?;
    keep_state(directory)?;
    let file = home.configuration();
    let follower = Follower::new(home, membership)?;
    block_on(follower.start(&Starting { file, start_error }))??;
    Ok(follower)
}

/// A node that has not started yet: it can use a revision if it could start by it.
struct Starting<'a> {
    file: PathBuf,
    start_error: StartError<'a>,
}

impl FollowedNode for Starting<'_> {
    fn reload(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let checked = levada_config::load(&self.file, self.start_error);
        let used = checked.map_err(|error| error.to_string()).and_then(|checked| {
            checked.settings.map(drop).ok_or_else(|| checked.report.to_string())
        });
        Box::pin(std::future::ready(used))
    }

    fn missing(&self) -> Vec<String> {
        vec!["start: the node has not started".to_owned()]
    }

    fn health(&self, _from_now: bool) -> Health {
        Health::default()
    }

    fn drain(&self, _drained: bool) {}
}

/// Keeps the fleet's state on a thread of its own, if it is in this directory.
///
/// # Errors
/// If it cannot be kept.
fn keep_state(directory: &Path) -> anyhow::Result<()> {
    let Some(kept) = keeping::kept(directory)? else { return Ok(()) };
    let directory = directory.to_owned();
    let (failed, failure) = mpsc::channel();
    let keep = move || {
        let ended = block_on(keeping::keep(&directory, &kept));
        let error = match ended {
            Ok(Err(error)) => anyhow!(error),
            Err(error) => anyhow!(error),
            Ok(Ok(never)) => match never {},
        };
        tracing::error!("the state of the fleet is not kept: {error:#}");
        let _ = failed.send(error);
    };
    thread::Builder::new().name("fleet-state".to_owned()).spawn(keep)?;
    // A state that cannot be kept at all is known at once.
    match failure.recv_timeout(START_TIMEOUT) {
        Ok(error) => Err(error),
        Err(_) => Ok(()),
    }
}

/// The state listens within this time, or something keeps it from that.
const START_TIMEOUT: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  levada fleet check ./fleet --node eu-1=eu=10.1.0.1:7070
  levada fleet init --name web --listen 10.1.0.1:7080
  levada fleet apply ./fleet --note 'new site'
  levada fleet status
  levada fleet rollback

Exit codes:
  0  done
  1  the directory has errors, a node does not use the revision, or the canary went back
  2  the state cannot be reached or refuses";
