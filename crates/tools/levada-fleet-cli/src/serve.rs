//! `levada fleet serve`: the same orders over HTTP.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::bail;
use clap::Args;
use levada_client::command::CommandStatus;
use levada_fleet::StartError;
use levada_fleet_api::{Certificate, Server};

use crate::access::Access;

/// Serves the orders of this command over HTTP, for pipelines and other programs: docs/operate/fleet-api.md.
///
/// Each request needs a token of the fleet, and does what that token may. By the token of an administrator, the
/// process knows those that are bound to sites, too.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// The address. Without --certificate it must be one of this machine alone, since tokens go over it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9190")]
    listen: SocketAddr,
    /// A file with the chain of certificates, in PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// A file with the key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
}

/// Serves until the process ends.
///
/// # Errors
/// If there is no token, or the address or the certificate cannot be used.
pub(crate) async fn run(
    args: &ServeArgs,
    access: &Access,
    start_error: StartError<'static>,
) -> anyhow::Result<CommandStatus> {
    let certificate = match (&args.certificate, &args.key) {
        (Some(chain), Some(key)) => Some(Certificate::read(chain, key)?),
        _ if args.listen.ip().is_loopback() => None,
        _ => bail!(
            "{}: tokens would go over the network as plain text: give --certificate and --key, or listen at 127.0.0.1 \
             behind a server with TLS",
            args.listen
        ),
    };
    let (token, _) = access.open()?;
    let fleet = token.fleet.clone();
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let listening = |at| println!("the API of the fleet {fleet} is at {scheme}://{at}/");
    match Server::new(token, start_error)?.serve(args.listen, certificate, listening).await? {}
}

const EXAMPLES: &str = "\
Examples:
  levada fleet serve
  levada fleet serve --listen 10.1.0.1:9190 --certificate fleet.pem --key fleet.key
  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:9190/v1/status

Exit codes:
  2  the address, the certificate or the token cannot be used";
