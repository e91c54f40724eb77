//! The `levada` command.

mod cli;
mod command;
mod logging;

use std::{io, process::ExitCode};

use clap::Parser as _;
use levada_client::command::CommandStatus;

use cli::{Cli, Command};
use command::configuration::start_error;

/// The system allocator took a tenth of the instructions of a proxied request, most for small pieces of HTTP.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs one command; its status is the exit code.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = logging::start(&cli.logging).and_then(|_log| match &cli.command {
        Command::Demo(args) => command::demo::run(args),
        Command::Init(args) => command::init::run(args),
        Command::Run(args) => command::run::run(args),
        Command::Dns(args) => command::dns::run(args),
        Command::Validate(args) => command::validate::run(args),
        Command::Doctor(args) => command::doctor::run(args),
        Command::Policies(args) => command::policies::run(args),
        Command::Explain(args) => command::explain::run(args),
        Command::Sign(args) => command::sign::run(args),
        Command::Get(args) => command::get::run(args),
        Command::Sync(args) => command::sync::run(args),
        Command::Purge(args) => command::purge::run(args),
        Command::Warm(args) => command::warm::run(args),
        Command::Classify(args) => command::classify::run(args),
        Command::Convert(args) => levada_migration::run(args, &start_error),
        Command::Reload(args) => command::reload::run(args),
        Command::Upgrade(args) => command::upgrade::run(args),
        Command::HandoffBackend(args) => command::handoff_backend::run(args),
        Command::Servers(args) => command::servers::run(args),
        Command::Status(args) => command::status::run(args),
        Command::Top(args) => command::top::run(args),
        Command::Health(args) => command::health::run(args),
        Command::Drain(args) => command::drain::run(args),
        Command::Route(args) => command::route::run(args),
        Command::Fleet(args) => levada_fleet_cli::run(args, &start_error),
        Command::Join(args) => levada_fleet_cli::join::run(args),
        Command::Kubernetes(args) => levada_kubernetes::run(args, &start_error),
        Command::Sim(args) => command::sim::run(args),
        Command::Lab(args) => levada_lab::run(args),
        Command::Logs(args) => levada_report::run(args),
        Command::Plan(args) => levada_plan::run(args),
        Command::Man(args) => command::man::run(args),
        Command::Completions(args) => command::completions::run(args),
    });
    match outcome {
        Ok(verdict) => verdict.into(),
        // The reader of the report closed the pipe, as `head` does.
        Err(error) if is_broken_pipe(&error) => CommandStatus::Success.into(),
        Err(error) => {
            eprintln!("levada: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
