//! `levada convert`: configurations of other proxies as a `levada.toml`, and those of a CDN as a fleet.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::bail;
use clap::{Args, Subcommand};
use http::Uri;
use levada_client::command::{CommandStatus, output};
use levada_config::{Settings, Source, Surroundings};
use levada_convert::Conversion;

use crate::{
    compare::{self, Former},
    files::{
        IncludedFrom, account, read, traffic_control_files, traffic_server_files, write_converted,
        write_fleet,
    },
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
    /// Starts the former server and a node, both at free ports, and shows where their responses differ: to a list of
    /// requests, or to those of an access log.
    #[arg(long, global = true, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// The scheme and the host of targets that have none.
    #[arg(long, global = true, value_name = "URL", value_parser = levada_client::parse_url, requires = "compare")]
    site: Option<Uri>,
    /// Prints the differences as JSON.
    #[arg(long, global = true, requires = "compare")]
    json: bool,
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
    /// From HAProxy: frontends, backends, their rules and servers, with lists and maps.
    Haproxy {
        /// The file, such as /etc/haproxy/haproxy.cfg.
        file: PathBuf,
    },
    /// From Caddy: a Caddyfile with its imports, or the JSON that `caddy adapt` writes.
    Caddy {
        /// The file, such as /etc/caddy/Caddyfile.
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
  levada convert haproxy /etc/haproxy/haproxy.cfg -o levada.toml
  levada convert caddy /etc/caddy/Caddyfile -o levada.toml
  levada convert trafficserver /etc/trafficserver > levada.toml
  levada convert traffic-control ./export -o ./fleet
  levada convert nginx /etc/nginx/nginx.conf --compare requests.txt
  levada convert nginx /etc/nginx/nginx.conf --compare access.log --site http://www.example.com

Exit codes:
  0  everything was converted, and answers alike
  1  something was left over or differs, or the new file has errors: see the list
  2  a file could not be read, or a server that is compared did not start";

/// Says why a node could not start by settings, if it could not.
type StartError<'a> = &'a dyn Fn(&Settings) -> Option<String>;

/// Converts, reports what was left over, and compares where that is asked for.
///
/// # Errors
/// When a file cannot be read, or is not written in the grammar that it should have; when one of the servers that are
/// compared does not start.
pub fn run(args: &ConvertArgs, start_error: StartError<'_>) -> anyhow::Result<CommandStatus> {
    // A list that cannot be read is said before all else.
    let requests = match &args.compare {
        Some(list) => Some(compare::read(list, args.site.as_ref())?),
        None => None,
    };
    let (conversion, former) = match &args.from {
        From::TrafficControl { paths } => {
            if requests.is_some() {
                bail!("--compare starts one server: a whole CDN cannot be compared");
            }
            let Some(output) = &args.output else {
                bail!("name the directory of the fleet: -o DIRECTORY")
            };
            let fleet = levada_convert::trafficcontrol(&traffic_control_files(paths)?)?;
            write_fleet(output, &fleet)?;
            return Ok(account(&fleet.ledger, ""));
        }
        From::Nginx { file } => {
            let (text, includes) = (read(file)?, IncludedFrom::file(file));
            (levada_convert::nginx(&text, &includes)?, Former::Nginx(text, includes))
        }
        From::Varnish { file } => {
            let conversion = levada_convert::varnish(&read(file)?, &IncludedFrom::file(file))?;
            (conversion, Former::Varnish(file.clone()))
        }
        From::Haproxy { file } => {
            let (text, includes) = (read(file)?, IncludedFrom::file(file));
            (levada_convert_haproxy::convert(&text, &includes)?, Former::Haproxy(text))
        }
        From::Caddy { file } => {
            let (text, includes) = (read(file)?, IncludedFrom::file(file));
            (levada_convert_caddy::convert(&text, &includes)?, Former::Caddy(file.clone()))
        }
        From::Trafficserver { paths } => {
            let files = traffic_server_files(paths)?;
            let directory = files.first().map_or(".", |file| file.name.as_str());
            let includes = IncludedFrom::file(Path::new(directory));
            (levada_convert::trafficserver(&files, &includes)?, Former::TrafficServer(files))
        }
    };
    let output = args.output.as_deref();
    if output.is_some() || requests.is_none() {
        write_converted(&conversion, output)?;
    }
    let directory = output.and_then(Path::parent).unwrap_or(Path::new(""));
    let errors = errors(&conversion, directory, start_error);
    let status = account(&conversion.ledger, &errors);
    let Some(requests) = requests else { return Ok(status) };
    if !errors.is_empty() {
        bail!("nothing is compared: no node starts with the new file");
    }
    let report = compare::compare(&former, &conversion.toml, directory, &requests)?;
    output::print(args.json, &report, |out| write!(out, "{report}"))?;
    Ok(if report.different.is_empty() { status } else { CommandStatus::ProblemsFound })
}

/// The errors of the new file, as the node sees them from its directory.
fn errors(conversion: &Conversion, directory: &Path, start_error: StartError<'_>) -> String {
    let source = Source { name: "the new file".to_owned(), text: conversion.toml.clone() };
    let surroundings =
        Surroundings { directory, variable: &|name| std::env::var(name).ok(), start_error };
    let report = levada_config::check(&source, &surroundings).report;
    if report.is_usable() { String::new() } else { report.to_string() }
}
