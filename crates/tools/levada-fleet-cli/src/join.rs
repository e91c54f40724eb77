//! `levada join`: a new machine becomes a node of a fleet.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use levada_client::command::{CommandStatus, block_on};
use levada_fleet::{
    Home, Membership, StatePlace, Token, enrol, model::Member, state::State, store::StoreError,
};

use crate::{
    access::{DEFAULT_DIRECTORY, from, host_name},
    keep_state,
};

/// Lets this machine join a fleet, and runs its node.
///
/// The node writes its configuration into its directory, and follows the fleet from then on. When the machine starts
/// again, `levada run --fleet DIRECTORY` runs it, also while the state of the fleet is away; the same command as before
/// does so too.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct JoinArgs {
    /// The token that `levada fleet init` or `token` has printed.
    token: String,
    /// The name of the node. Without it, that of the machine.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Its region, in a fleet with regions.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Its address for peers. Without it, port 7070 at the address by which this machine reaches the state.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<SocketAddr>,
    /// An address for clients, with which DNS answers; may be repeated. Without it, that of --address.
    #[arg(long, value_name = "IP")]
    public: Vec<IpAddr>,
    /// Its directory.
    #[arg(long, value_name = "DIRECTORY", default_value = DEFAULT_DIRECTORY)]
    directory: PathBuf,
    /// Joins only; `levada run --fleet DIRECTORY` runs the node.
    #[arg(long)]
    no_run: bool,
    /// As of `levada run`.
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

/// Joins, and becomes the node.
///
/// # Errors
/// If the state cannot be reached, or refuses.
pub fn run(args: &JoinArgs) -> anyhow::Result<CommandStatus> {
    let token: Token = args.token.parse()?;
    let home = Home::new(&args.directory);
    match home.membership()? {
        Some(known) if known.token.fleet == token.fleet => {
            println!("this machine has joined as {} already", known.node.name);
        }
        Some(known) => bail!(
            "{} has a node of the fleet {}: use another --directory",
            args.directory.display(),
            known.token.fleet
        ),
        None => {
            // The first machine keeps the state itself.
            keep_state(&args.directory)?;
            let node = block_on(enrolled(args, &token, &home))??;
            let region = node.region.map(|region| format!(" in {region}")).unwrap_or_default();
            println!(
                "{} has joined the fleet {}{region}, at {}",
                node.name, token.fleet, node.address
            );
        }
    }
    if args.no_run {
        return Ok(CommandStatus::Success);
    }
    let mut node = Command::new(std::env::current_exe()?);
    node.args(["run", "--fleet"]).arg(&args.directory);
    if args.stop_with_stdin {
        node.arg("--stop-with-stdin");
    }
    // The command line of the process says what it is, and an upgrade runs it again.
    Err(node.exec()).context("the node cannot be run")
}

/// Enrols this machine, and writes who it is into its directory.
async fn enrolled(args: &JoinArgs, token: &Token, home: &Home) -> anyhow::Result<Member> {
    let address = match args.address {
        Some(address) => address,
        None => SocketAddr::new(own_address(&token.place)?, USUAL_PORT),
    };
    let name = args.name.clone().unwrap_or_else(host_name);
    if !is_node_name(&name) {
        bail!(
            "{name:?} is no name of a node: give one of letters, digits, `-`, `_` and `.` by --name"
        );
    }
    let node = enrol::new_member(&name, args.region.as_deref(), address, &args.public);
    let own = joined(token, &node).await?;
    home.join(&Membership { node: node.clone(), token: own })?;
    Ok(node)
}

/// Joins by the state, which a machine that starts at the same time may not keep yet.
async fn joined(token: &Token, node: &Member) -> anyhow::Result<Token> {
    let (state, began) = (State::open(token)?, Instant::now());
    loop {
        match enrol::join(&state, token, node, &from()).await {
            Err(StoreError::Away(_)) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(RETRY_BACKOFF).await;
            }
            joined => return Ok(joined?),
        }
    }
}

/// The address of this machine towards the state.
fn own_address(place: &StatePlace) -> anyhow::Result<IpAddr> {
    let target = match place {
        StatePlace::Node { address, .. } => address.to_string(),
        StatePlace::Etcd { endpoints, .. } => {
            let first = endpoints.first().map(String::as_str).unwrap_or_default();
            let host = first.split("://").nth(1).unwrap_or(first).trim_end_matches('/');
            if host.contains(':') { host.to_owned() } else { format!("{host}:2379") }
        }
    };
    // No packet is sent: the system chooses the route.
    let route = UdpSocket::bind(if target.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" })?;
    let address = route.connect(&target).and_then(|()| route.local_addr());
    let address =
        address.with_context(|| format!("no route to the state at {target}; give --address"))?;
    Ok(address.ip())
}

fn is_node_name(name: &str) -> bool {
    name.parse::<levada_config::text::NodeName>().is_ok()
}

/// The port for peers where none is given.
const USUAL_PORT: u16 = 7070;
/// How long a state may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY_BACKOFF: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  levada join levada1.eyJ...
  levada join levada1.eyJ... --region eu --name eu-1 --address 10.1.0.1:7070

Exit codes:
  0  the node was stopped
  2  the machine cannot join, or the node cannot start";
