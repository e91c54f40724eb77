//! `levada fleet token`: makes, lists and revokes tokens.

use std::{io::Write as _, time::Duration};

use clap::{Args, ValueEnum};
use levada_client::command::{CommandStatus, option::time, output};
use levada_fleet::{
    enrol::{self, Grant},
    model::{Role, TokenRecord},
    state::unix_time,
};
use levada_types::format_duration;

use crate::access::{Access, from};

/// Makes a token, or lists or revokes those that there are.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    /// The rights of a new token. Without it and --revoke, the tokens are listed.
    #[arg(long, value_name = "ROLE")]
    role: Option<TokenRole>,
    /// When the new token ends. One without end is for pipelines that keep it in a safe place.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "role")]
    expires: Option<Duration>,
    /// A site that the new token is bound to, by its host; may be repeated.
    #[arg(long, value_name = "HOST", requires = "role")]
    site: Vec<String>,
    /// What the new token is for.
    #[arg(long, value_name = "TEXT", default_value = "", requires = "role")]
    note: String,
    /// Revokes the token with this identifier.
    #[arg(long, value_name = "ID", conflicts_with = "role")]
    revoke: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TokenRole {
    /// Purges, at any node: all sites, or those of --site.
    Purge,
    /// Sees status and history.
    Read,
    /// Lets machines join.
    Join,
    /// Applies, rolls back, drains and removes.
    Apply,
    /// The same, and makes and revokes tokens.
    Admin,
}

/// Makes, lists or revokes.
///
/// # Errors
/// If the state refuses.
pub(crate) async fn run(args: &TokenArgs, access: &Access) -> anyhow::Result<CommandStatus> {
    let (own, state) = access.open()?;
    if let Some(id) = &args.revoke {
        enrol::revoke_token(&state, id, &from()).await?;
        println!("revoked {id}");
    } else if let Some(role) = args.role {
        let role = match role {
            TokenRole::Purge => Role::Purge,
            TokenRole::Read => Role::Read,
            TokenRole::Join => Role::Join,
            TokenRole::Apply => Role::Apply,
            TokenRole::Admin => Role::Admin,
        };
        let seconds = args.expires.map(|time| time.as_secs());
        let grant = Grant { role, seconds, note: args.note.clone(), sites: args.site.clone() };
        println!("{}", enrol::make_token(&state, &own, &grant, &from()).await?.text);
    } else {
        let tokens = state.tokens().await?.into_iter().map(|(_, record)| record);
        let tokens: Vec<TokenRecord> = tokens.collect();
        output::print(args.json, &tokens, |out| {
            tokens.iter().try_for_each(|token| writeln!(out, "{}", line(token)))
        })?;
    }
    Ok(CommandStatus::Success)
}

fn line(token: &TokenRecord) -> String {
    let now = unix_time();
    let end = match token.expires {
        _ if token.revoked => "revoked".to_owned(),
        Some(end) if end <= now => "expired".to_owned(),
        Some(end) => format!("ends in {}", format_duration(Duration::from_secs(end - now))),
        None => "no end".to_owned(),
    };
    let sites = token.sites.join(", ");
    let bound = if sites.is_empty() { sites } else { format!("for {sites}  ") };
    format!("{:<20} {:<6} {end:<16} {bound}{}", token.id, token.role.as_str(), token.note)
}

const EXAMPLES: &str = "\
Examples:
  levada fleet token --role join --expires 1h
  levada fleet token --role apply --note 'pipeline of the web team'
  levada fleet token --role purge --site www.example.com
  levada fleet token
  levada fleet token --revoke apply-3f9a01

Exit codes:
  0  done
  2  the state cannot be reached or refuses";
