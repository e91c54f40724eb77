//! `levada handoff-backend`: takes connections over for an unmodified server.

use std::{
    fmt, fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;
use levada_config::{
    Admin, AfterHandoff, DORMANT_RETRIES, HandoffBackendSettings, HandoffSettings, Settings,
    SettingsReader,
};
use levada_config::{Source, Surroundings, text::Upstream};
use levada_node::{Predecessor, WatchedFiles};

use levada_client::command::CommandStatus;

use super::configuration;

/// Takes connections over from a front-end, and passes their requests to the server on this machine.
///
/// It is a full node without a cache. It needs the capabilities NET_ADMIN and BPF, and the service's
/// address on this machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HandoffBackendArgs {
    /// The address for the front-end, on the network that this machine shares with it.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The server that answers requests: a URL such as http://127.0.0.1:8080, or unix:/run/app.sock
    /// for a Unix socket.
    #[arg(long, value_name = "SERVER", value_parser = server)]
    to: Upstream,
    /// A service address, to which clients connect. This machine must have it, too. May be repeated.
    #[arg(long = "service", value_name = "ADDRESS", required = true)]
    services: Vec<SocketAddr>,
    /// The network interface that receives the front-end's packets. May be repeated.
    #[arg(long = "interface", value_name = "NAME", required = true)]
    interfaces: Vec<String>,
    /// A file with the secret that the front-end has as well.
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// The number of unacknowledged retransmissions after which a client counts as gone and its connection is
    /// reset, or `off`.
    #[arg(long, value_name = "COUNT", value_parser = dormant_retries, default_value_t = DORMANT_RETRIES.into())]
    dormant_retries: Retries,
    /// Its name in `Via` and `Proxy-Status`.
    #[arg(long, value_name = "NAME", default_value = "back-end")]
    name: String,
    /// The address for operators: metrics, health, and `levada upgrade --admin ADDRESS`, which replaces this
    /// process without a request that fails.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
}

const EXAMPLES: &str = "\
Examples:
  levada handoff-backend --listen 10.0.1.1:7072 --interface eth0 --service 192.0.2.10:80 \\
      --secret-file /etc/levada/handoff-secret --to http://127.0.0.1:8080
  levada handoff-backend --listen 10.0.1.1:7072 --interface eth0 --service 192.0.2.10:80 \\
      --secret-file /etc/levada/handoff-secret --to unix:/run/app.sock
  levada upgrade --admin 127.0.0.1:9180

Exit codes:
  0  it was stopped
  2  it could not start: an address is taken, a capability is missing";

/// Runs until a signal ends it.
///
/// # Errors
/// If it cannot start.
pub(crate) fn run(args: &HandoffBackendArgs) -> anyhow::Result<CommandStatus> {
    let predecessor = Predecessor::meet()?;
    let settings = settings(args)?;
    for service in &args.services {
        let ip = service.ip();
        has(ip).with_context(|| match ip {
            IpAddr::V4(_) => format!("this machine does not have {ip}: ip addr add {ip}/32 dev lo"),
            IpAddr::V6(_) => {
                format!("this machine does not have {ip}: ip addr add {ip}/128 dev lo nodad")
            }
        })?;
    }
    let same = settings.clone();
    let reader = SettingsReader(Box::new(move || Ok(same.clone())));
    levada_node::run(settings, reader, predecessor, None, WatchedFiles::default(), |_| {})?;
    Ok(CommandStatus::Success)
}

fn settings(args: &HandoffBackendArgs) -> anyhow::Result<Settings> {
    let secret = fs::read_to_string(&args.secret_file)
        .with_context(|| format!("cannot read {}", args.secret_file.display()))?;
    let secret = secret.trim().to_owned();
    if secret.len() < SHORTEST_SECRET {
        bail!(
            "{} holds a secret of {} bytes; it needs {SHORTEST_SECRET}: openssl rand -base64 24",
            args.secret_file.display(),
            secret.len()
        );
    }
    let quoted = |text: &str| toml::Value::from(text).to_string();
    // No client uses this listener: remove it again.
    let text = format!(
        "name = {}\n[[listen]]\naddress = '127.0.0.1:0'\n\
         [[site]]\nhosts = '*'\ncache = false\norigin = {}\n",
        quoted(&args.name),
        quoted(&args.to.to_string())
    );
    let source = Source { name: "the command line".to_owned(), text };
    let surroundings = Surroundings {
        directory: Path::new(""),
        variable: &|_| None,
        start_error: &configuration::start_error,
    };
    let checked = levada_config::check(&source, &surroundings);
    let Some(settings) = checked.settings else {
        bail!("{}", checked.report.to_string().trim_end());
    };
    eprint!("{}", checked.report);
    Ok(Settings {
        listeners: Vec::new(),
        admin: args.admin.map(Admin::at),
        handoff: Some(HandoffSettings {
            secret,
            interfaces: args.interfaces.clone(),
            // The front-end decides about further requests of connections.
            after: AfterHandoff::default(),
            max_segment: None,
            min_size: 0,
            backend: Some(HandoffBackendSettings {
                listen: args.listen,
                services: args.services.clone(),
                dormant_retries: args.dormant_retries.0,
            }),
        }),
        ..settings
    })
}

/// A number, or `off`.
#[derive(Clone, Copy, Debug)]
struct Retries(Option<u8>);

impl From<u8> for Retries {
    fn from(count: u8) -> Self {
        Self(Some(count))
    }
}

impl fmt::Display for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(count) => count.fmt(f),
            None => f.write_str("off"),
        }
    }
}

fn dormant_retries(text: &str) -> Result<Retries, String> {
    match (text, text.parse()) {
        ("off", _) => Ok(Retries(None)),
        (_, Ok(count)) if count <= MOST_RETRIES => Ok(Retries(Some(count))),
        _ => Err(format!("it must be a number up to {MOST_RETRIES}, or `off`")),
    }
}

fn server(text: &str) -> Result<Upstream, String> {
    text.parse().map_err(|_| format!("it must be {}", Upstream::EXPECTED))
}

/// Whether this machine has an address.
fn has(address: IpAddr) -> std::io::Result<()> {
    std::net::UdpSocket::bind((address, 0)).map(drop)
}

/// The kernel gives up after as many.
const MOST_RETRIES: u8 = 15;
/// Shorter secrets can be guessed by trying.
const SHORTEST_SECRET: usize = 16;
