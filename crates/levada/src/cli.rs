//! The command line. Its doc comments are the texts of `--help`.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use levada_fleet_cli::{FleetArgs, join::JoinArgs};
use levada_kubernetes::KubernetesArgs;
use levada_lab::LabArgs;
use levada_migration::ConvertArgs;
use levada_plan::PlanArgs;
use levada_report::LogsArgs;

use crate::command::{
    classify::ClassifyArgs, completions::CompletionsArgs, default_config::DEFAULT_CONFIG,
    demo::args::DemoArgs, dns::DnsArgs, doctor::DoctorArgs, drain::DrainArgs, explain::ExplainArgs,
    get::args::GetArgs, handoff_backend::HandoffBackendArgs, health::HealthArgs, init::InitArgs,
    man::ManArgs, purge::PurgeArgs, reload::ReloadArgs, route::RouteArgs, servers::ServersArgs,
    sign::SignArgs, sim::args::SimArgs, status::StatusArgs, sync::SyncArgs, top::TopArgs,
    upgrade::UpgradeArgs, warm::WarmArgs,
};

/// A content delivery network that one can run.
#[derive(Debug, Parser)]
#[command(name = "levada", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of the event log, on standard error.
#[derive(Args, Debug)]
pub(crate) struct Logging {
    /// The level of the event log: off, error, warn, info, debug, trace, or a filter: `info,levada_edge=debug`.
    #[arg(long, global = true, value_name = "LEVEL", env = "LEVADA_LOG", default_value = "info")]
    pub(crate) log_level: String,
    /// More of the event log, whatever its level: -v is Levada's debug level, -vv everything.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Logging {
    /// The filter of the event log.
    pub(crate) fn filter(&self) -> &str {
        match self.verbose {
            0 => &self.log_level,
            1 => "info,levada=debug",
            _ => "trace",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
    Init(InitArgs),
    Run(RunArgs),
    Dns(DnsArgs),
    Validate(ValidateArgs),
    Doctor(DoctorArgs),
    Policies(PoliciesArgs),
    Explain(ExplainArgs),
    Sign(SignArgs),
    Purge(PurgeArgs),
    Warm(WarmArgs),
    Classify(ClassifyArgs),
    Convert(ConvertArgs),
    Reload(ReloadArgs),
    Upgrade(UpgradeArgs),
    Servers(ServersArgs),
    HandoffBackend(HandoffBackendArgs),
    Health(HealthArgs),
    Status(StatusArgs),
    Top(TopArgs),
    Drain(DrainArgs),
    Route(RouteArgs),
    Fleet(FleetArgs),
    Join(JoinArgs),
    Kubernetes(KubernetesArgs),
    Get(GetArgs),
    Sync(SyncArgs),
    Sim(SimArgs),
    Lab(LabArgs),
    Logs(LogsArgs),
    Plan(PlanArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// Runs a node until it is stopped.
///
/// TERM, INT and QUIT stop it gracefully: it accepts no new connections, and running requests have
/// `limits.drain_timeout` to end. HUP reloads the configuration, as `levada reload` does. `levada upgrade`
/// replaces the process. Listening sockets from systemd are used, and systemd is notified of every step.
#[derive(Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub(crate) config: PathBuf,
    /// The directory of a node that has joined a fleet, instead of a configuration file.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "config")]
    pub(crate) fleet: Option<PathBuf>,
    /// Reloads when this file or a file in this directory changes. May be repeated.
    #[arg(long, value_name = "PATH")]
    pub(crate) watch: Vec<PathBuf>,
    /// Ends at once when standard input does, for a parent that must leave no node behind, even if it is killed.
    #[arg(long, hide = true)]
    pub(crate) stop_with_stdin: bool,
}

/// Checks a configuration and reports all its problems.
#[derive(Args, Debug)]
#[command(after_help = VALIDATE_EXAMPLES)]
pub(crate) struct ValidateArgs {
    /// The configuration file.
    #[arg(value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub(crate) config: PathBuf,
    /// The same, as other commands name it.
    #[arg(short = 'c', long = "config", value_name = "FILE", conflicts_with = "config")]
    pub(crate) named: Option<PathBuf>,
    /// Prints the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints the JSON Schema of the configuration instead, for editors.
    #[arg(long, conflicts_with_all = ["config", "named", "json"])]
    pub(crate) schema: bool,
}

/// Lists the policies that choose the node of a request.
#[derive(Args, Debug)]
#[command(after_help = POLICIES_EXAMPLES)]
pub(crate) struct PoliciesArgs {
    /// Shows this policy and its parameters.
    pub(crate) name: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  it ran, and found something wrong
  2  it could not run: wrong arguments, an unreadable file

Documentation: docs/ in the source, `levada <COMMAND> --help` for examples";

const RUN_EXAMPLES: &str = "\
Examples:
  levada run -c examples/single-node.toml
  levada -v run -c levada.toml
  levada run -c levada.toml --log-level info,levada_upstream=debug
  NODE=a levada run -c cluster.toml
  levada run --fleet /var/lib/levada/node
  levada run -c levada.toml --watch levada.toml --watch /etc/levada/tls

Exit codes:
  0  it was stopped
  2  it could not start: the configuration has errors, an address is taken";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  levada validate levada.toml
  levada validate -c levada.toml --json | jq '.problems[].message'
  levada validate --schema > levada.schema.json

Exit codes:
  0  the configuration can be used; there may be warnings
  1  it has errors
  2  the file cannot be read";

const POLICIES_EXAMPLES: &str = "\
Examples:
  levada policies
  levada policies random
  levada policies --json | jq -r '.[].name'

Exit codes:
  0  done
  1  there is no policy of this name";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn verbosity_needs_no_level_and_stands_anywhere() {
        for (line, filter) in [
            ("levada policies", "info"),
            ("levada -v policies", "info,levada=debug"),
            ("levada policies -v", "info,levada=debug"),
            ("levada -vv policies", "trace"),
            ("levada --log-level warn policies", "warn"),
            ("levada --log-level warn --verbose policies", "info,levada=debug"),
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            // The level of the environment counts where none is given.
            if std::env::var_os("LEVADA_LOG").is_none() || filter != "info" {
                assert_eq!(cli.logging.filter(), filter, "{line}");
            }
        }
    }

    #[test]
    fn commands_of_the_documentation_are_understood() {
        let (mut pages, mut commands, mut wrong) = (vec![root().join("README.md")], 0, Vec::new());
        let mut directories = vec![root().join("docs")];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.extension() {
                    None if path.is_dir() => directories.push(path),
                    Some(extension) if extension == "md" => pages.push(path),
                    _ => {}
                }
            }
        }
        for page in pages {
            for command in written(&std::fs::read_to_string(&page).unwrap()) {
                commands += 1;
                // A placeholder may be no value, and a sentence may name a command without its values.
                let refused = Cli::try_parse_from(command.split_whitespace()).err();
                let is_wrong = refused.filter(|error| {
                    use clap::error::ErrorKind::*;
                    matches!(error.kind(), UnknownArgument | InvalidSubcommand | ArgumentConflict)
                });
                wrong.extend(
                    is_wrong.map(|error| format!("{}: {command}\n{error}", page.display())),
                );
            }
        }
        assert!(commands > 100, "{commands}");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn root() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    /// The commands in blocks of shell and in inline code, each without what the shell does with it.
    fn written(page: &str) -> Vec<String> {
        let (mut found, mut is_shell) = (Vec::new(), false);
        for line in page.replace("\\\n", " ").lines() {
            if let Some(kind) = line.trim().strip_prefix("```") {
                is_shell = !is_shell && ["sh", "console"].contains(&kind);
            } else if is_shell {
                found.push(line.trim().trim_start_matches("$ ").to_owned());
            } else {
                found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        let command = |line: &String| {
            let shell = [" #", " |", " &", " >", " <", ";", "$(", " ...", "|"];
            let end = shell.iter().filter_map(|sign| line.find(sign)).min();
            let parts = line[..end.unwrap_or(line.len())].trim().split(['\'', '"']).enumerate();
            // A quoted part is one word.
            let word = |(at, part): (usize, &str)| match at % 2 {
                0 => part.to_owned(),
                _ => part.replace(' ', "_"),
            };
            parts.map(word).collect::<String>()
        };
        found.iter().filter(|line| line.starts_with("levada ")).map(command).collect()
    }

    #[test]
    fn every_command_shows_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("levada {} ", command.get_name())), "{command}");
        }
    }
}
