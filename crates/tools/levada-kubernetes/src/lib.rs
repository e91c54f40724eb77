//! `levada kubernetes`: resources of Kubernetes as the sites of a node.
//!
//! ```text
//! sites          the command: follows, writes, says what cannot be carried out
//! follow         all resources, by lists and watches
//! resources      their fields
//! from_ingress   ┐
//! from_gateway   ├─> rule ─> document: the base file with the sites of the rules
//! action         ┘           certificates, files
//! status         what the resources say of it
//! ```
//!
//! A rule that cannot be carried out as it is written is closed: nothing is served that its author did not write.

mod action;
mod certificates;
mod document;
mod files;
mod follow;
mod from_gateway;
mod from_ingress;
mod problem;
mod resources;
mod rule;
mod sites;
mod status;

use clap::{Args, Subcommand};
use levada_client::command::CommandStatus;

pub use sites::{SitesArgs, StartError};

/// Takes sites from the resources of a Kubernetes cluster: docs/operate/kubernetes.md.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct KubernetesArgs {
    #[command(subcommand)]
    order: KubernetesCommand,
}

#[derive(Debug, Subcommand)]
enum KubernetesCommand {
    Sites(SitesArgs),
}

/// Carries out one order. `start_error` says why a node could not start by settings, if it could not.
///
/// # Errors
/// As the order says.
pub fn run(args: &KubernetesArgs, start_error: StartError<'_>) -> anyhow::Result<CommandStatus> {
    let KubernetesCommand::Sites(sites) = &args.order;
    sites::run(sites, start_error)
}

const EXAMPLES: &str = "\
Examples:
  levada kubernetes sites -c levada.toml --output /run/levada/sites";

#[cfg(test)]
mod tests;
