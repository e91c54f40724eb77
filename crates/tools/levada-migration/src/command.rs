//! `levada convert`: configurations of other proxies as a `levada.toml`, and those of a CDN as a fleet.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, Subcommand};
use levada_client::command::CommandStatus;
use levada_config::{Settings, Source, Surroundings};
use levada_convert::Conversion;

use crate::files::{
    IncludedFrom, account, read, traffic_control_files, traffic_server_files, write_converted,
    write_fleet,
};

/// Writes a `levada.toml` from the configuration of another proxy, and says what it could not convert.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConvertArgs {
    #[command(subcommand)]
    from: From,
    /// Writes the new configuration to this file instead of standard output; a fleet is written to this directory.
    #[arg(short, long, global = true, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum From {
    /// From nginx, with the files that are included.
    Nginx {
        /// The file, such as /etc/nginx/nginx.conf.
        file: PathBuf,
    },
    /// From Varnish: backends, directors and the common part of VCL.
    Varnish {
        /// The file, such as /etc/varnish/default.vcl.
        file: PathBuf,
    },
    /// From Traffic Server: remap.config, parent.config, and a few keys of records.yaml.
    Trafficserver {
        /// The directory with these files, or the files.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// From Traffic Control: a snapshot, answers of Traffic Ops and files of Traffic Router, as the directory of a
    /// fleet.
    TrafficControl {
        /// The directory with these files, or the files: *.json, and a database of countries, *.mmdb.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
}

const EXAMPLES: &str = "\
Standard error lists each statement that was not converted, with its place and the reason. The same list
is at the end of the new file, as comments. A place whose rules of access were not converted is closed.

Examples:
  levada convert nginx /etc/nginx/nginx.conf -o levada.toml
  levada convert varnish /etc/varnish/default.vcl
  levada convert trafficserver /etc/trafficserver > levada.toml
  levada convert traffic-control ./export -o ./fleet

Exit codes:
  0  everything was converted, and answers alike
  1  something was left over or differs, or the new file has errors: see the list
  2  a file could not be read";

/// Says why a node could not start by settings, if it could not.
type StartError<'a> = &'a dyn Fn(&Settings) -> Option<String>;

/// Converts, and reports what was left over.
///
/// # Errors
/// When a file cannot be read, or is not written in the grammar that it should have.
pub fn run(args: &ConvertArgs, start_error: StartError<'_>) -> anyhow::Result<CommandStatus> {
    let conversion = match &args.from {
        From::TrafficControl { paths } => {
            let Some(output) = &args.output else {
                bail!("name the directory of the fleet: -o DIRECTORY")
            };
            let fleet = levada_convert::trafficcontrol(&traffic_control_files(paths)?)?;
            write_fleet(output, &fleet)?;
            return Ok(account(&fleet.ledger, ""));
        }
        From::Nginx { file } => levada_convert::nginx(&read(file)?, &IncludedFrom::file(file))?,
        From::Varnish { file } => levada_convert::varnish(&read(file)?, &IncludedFrom::file(file))?,
        From::Trafficserver { paths } => {
            let files = traffic_server_files(paths)?;
            let directory = files.first().map_or(".", |file| file.name.as_str());
            levada_convert::trafficserver(&files, &IncludedFrom::file(Path::new(directory)))?
        }
    };
    let output = args.output.as_deref();
    write_converted(&conversion, output)?;
    Ok(account(&conversion.ledger, &errors(&conversion, output, start_error)))
}

/// The errors of the new file, as the node sees them from its directory.
fn errors(conversion: &Conversion, output: Option<&Path>, start_error: StartError<'_>) -> String {
    let source = Source { name: "the new file".to_owned(), text: conversion.toml.clone() };
    let surroundings = Surroundings {
        directory: output.and_then(Path::parent).unwrap_or(Path::new("")),
        variable: &|name| std::env::var(name).ok(),
        start_error,
    };
    let report = levada_config::check(&source, &surroundings).report;
    if report.is_usable() { String::new() } else { report.to_string() }
}
