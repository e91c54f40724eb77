//! `levada fleet init`: a new fleet, with its state in etcd or kept by this machine.

use std::{
    fs::File,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use levada_client::command::{CommandStatus, option::time};
use levada_fleet::{
    StatePlace, Token,
    enrol::{self, Grant},
    model::Role,
    serve::{self, Kept},
    state::State,
    store::Store,
};

use crate::access::{Access, from, token_file};

/// Makes a fleet, and prints the command by which machines join it.
///
/// The node of this machine keeps the state, in a file, and answers the others at --listen; or the state is in etcd.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InitArgs {
    /// The name of the fleet: letters, digits, - and _.
    #[arg(long, value_name = "NAME", value_parser = fleet_name)]
    name: String,
    /// The address at which the node of this machine answers the others.
    #[arg(long, value_name = "ADDRESS", required_unless_present = "etcd", conflicts_with = "etcd")]
    listen: Option<SocketAddr>,
    /// An endpoint of etcd, such as http://10.0.0.5:2379; may be repeated.
    #[arg(long, value_name = "URL")]
    etcd: Vec<String>,
    /// The user of etcd.
    #[arg(long, value_name = "USER", requires_all = ["etcd", "etcd_password_file"])]
    etcd_user: Option<String>,
    /// A file with the password of that user.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// How long machines can join by the token that is printed.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "24h")]
    join_within: Duration,
}

/// Makes the fleet.
///
/// # Errors
/// If there is one already, or the state cannot be written.
pub(crate) async fn run(args: &InitArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let directory = &access.directory;
    if serve::kept(directory)?.is_some() || token_file(directory).exists() {
        bail!("{} has a fleet already: use it, or another --directory", directory.display());
    }
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let (store, place) = store(args, directory)?;
    let admin = enrol::found(store.clone(), &args.name, &place, &from()).await?;
    write_token(&token_file(directory), &admin)?;
    // The state is not served yet: it is written here.
    let state = State::new(store, admin.key()?, &admin.id);
    let seconds = Some(args.join_within.as_secs());
    let grant =
        Grant { role: Role::Join, seconds, note: "made by init".to_owned(), sites: Vec::new() };
    let join = enrol::make_token(&state, &admin, &grant, &from()).await?;
    println!(
        "the fleet {} is made; its administrator's token is in {}",
        args.name,
        token_file(directory).display()
    );
    println!("let machines join within {} h by", args.join_within.as_secs() / 3600);
    println!("  levada join {}", join.text);
    Ok(CommandStatus::Success)
}

fn store(args: &InitArgs, directory: &Path) -> anyhow::Result<(Arc<dyn Store>, StatePlace)> {
    if let Some(listen) = args.listen {
        let (store, certificate) = serve::create(directory, &Kept { listen })?;
        return Ok((Arc::new(store), StatePlace::Node { address: listen, certificate }));
    }
    let user = match (&args.etcd_user, &args.etcd_password_file) {
        (Some(user), Some(file)) => {
            let password = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            Some((user.clone(), password.trim().to_owned()))
        }
        _ => None,
    };
    let store = enrol::etcd_store(&args.name, &args.etcd, &user)
        .map_err(|url| anyhow::anyhow!("{url} is no URL of etcd, such as http://10.0.0.5:2379"))?;
    Ok((store, StatePlace::Etcd { endpoints: args.etcd.clone(), user }))
}

fn write_token(file: &Path, token: &Token) -> anyhow::Result<()> {
    let mut open = File::options();
    let opened = open.write(true).create_new(true).mode(0o600).open(file);
    let mut opened = opened.with_context(|| format!("cannot write {}", file.display()))?;
    writeln!(opened, "{token}")?;
    Ok(opened.sync_all()?)
}

fn fleet_name(text: &str) -> Result<String, &'static str> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !text.is_empty() && text.len() <= 64 && text.chars().all(is_good) {
        true => Ok(text.to_owned()),
        false => Err("a name is 1 to 64 letters, digits, - and _"),
    }
}

const EXAMPLES: &str = "\
Examples:
  levada fleet init --name web --listen 10.1.0.1:7080
  levada fleet init --name web --etcd http://10.0.0.5:2379 --etcd http://10.0.0.6:2379

Exit codes:
  0  done
  2  there is a fleet already, or its state cannot be written";
