//! `levada fleet drain` and `remove`: nodes that go.

use std::time::Duration;

use clap::Args;
use levada_client::command::{CommandStatus, option::time};
use levada_fleet::{
    enrol,
    rotate::{self, Rotated},
};

use crate::access::{Access, from};

/// Moves the clients of a node to other nodes, also after a restart of it, until that is undone.
#[derive(Args, Debug)]
#[command(after_help = DRAIN_EXAMPLES)]
pub(crate) struct DrainArgs {
    /// The node.
    node: String,
    /// Takes it into service again.
    #[arg(long)]
    undo: bool,
}

/// Removes a node: it drains, the others ask it no more, and its token ends.
#[derive(Args, Debug)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct RemoveArgs {
    /// The node.
    node: String,
}

/// Gives the nodes another secret for each other, in three rounds, without a failed request.
///
/// A command that was cut or has missed a node is run again, and goes on where it was.
#[derive(Args, Debug)]
#[command(after_help = ROTATE_EXAMPLES)]
pub(crate) struct RotateArgs {
    /// How long nodes may take in each round.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    timeout: Duration,
}

/// Changes the secret of the cluster.
///
/// # Errors
/// If another command holds the lock, or the state refuses.
pub(crate) async fn rotate(args: &RotateArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (_, state) = access.open()?;
    Ok(match rotate::rotate(&state, &from(), args.timeout).await? {
        Rotated::Done => {
            println!("all nodes have another secret; the former one opens nothing any more");
            CommandStatus::Success
        }
        Rotated::Missing(nodes) => {
            println!("these nodes have not taken the secrets yet: {}", nodes.join(", "));
            println!(
                "both secrets are good meanwhile; bring the nodes back or remove them, and run it again"
            );
            CommandStatus::ProblemsFound
        }
    })
}

/// Drains, or undoes it.
///
/// # Errors
/// If there is no such node, or the state refuses.
pub(crate) async fn drain(args: &DrainArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (_, state) = access.open()?;
    enrol::drain(&state, &args.node, !args.undo, &from()).await?;
    match args.undo {
        true => println!("{} is in service again", args.node),
        false => println!("{} drains", args.node),
    }
    Ok(CommandStatus::Success)
}

/// Removes.
///
/// # Errors
/// If there is no such node, or the state refuses.
pub(crate) async fn remove(args: &RemoveArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (_, state) = access.open()?;
    enrol::remove(&state, &args.node, &from()).await?;
    println!("{} is removed; stop it, and delete its directory", args.node);
    Ok(CommandStatus::Success)
}

const ROTATE_EXAMPLES: &str = "\
Examples:
  levada fleet rotate

Exit codes:
  0  done
  1  a node has not taken the secrets of a round
  2  another command holds the lock, or the state cannot be reached or refuses";

const DRAIN_EXAMPLES: &str = "\
Examples:
  levada fleet drain eu-2
  levada fleet drain eu-2 --undo

Exit codes:
  0  done
  2  there is no such node, or the state cannot be reached or refuses";

const REMOVE_EXAMPLES: &str = "\
Examples:
  levada fleet remove eu-2

Exit codes:
  0  done
  2  there is no such node, or the state cannot be reached or refuses";
