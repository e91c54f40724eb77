//! `levada top`: the running cluster on a terminal, every second.

mod picture;

use std::{
    io::{self, IsTerminal as _, stdin, stdout},
    time::{Duration, Instant},
};

use clap::Args;
use levada_client::command::{CommandStatus, admin_client, color};
use levada_cluster::events::Event;
use levada_control::status::ClusterNode;
use levada_types::AdminAddress;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};

use super::{
    admin::{ANSWER_TIMEOUT, AdminArgs},
    status,
};
use picture::{Pane, Picture};

/// Shows a running node and its cluster on the terminal, and again every second.
///
/// Without --config and --admin it asks the node of levada.toml or /etc/levada/levada.toml, or the one at
/// 127.0.0.1:9180. That node asks its peers.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    node: AdminArgs,
}

/// Shows, until `q`.
///
/// # Errors
/// Without a terminal, or when no node answers at the beginning.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<CommandStatus> {
    if !stdout().is_terminal() || !stdin().is_terminal() {
        anyhow::bail!(
            "`levada top` needs a terminal; `levada status --cluster` prints the same once"
        );
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let admin = runtime.block_on(answering(status::addresses(&args.node)?))?;
    let mut picture = Picture::new(color::is_wanted(&stdout()));
    let mut terminal = ratatui::try_init()?;
    let shown = show(&runtime, &admin, &mut terminal, &mut picture);
    ratatui::restore();
    shown?;
    Ok(CommandStatus::Success)
}

/// The first of these addresses at which a node answers.
async fn answering(addresses: Vec<AdminAddress>) -> anyhow::Result<AdminAddress> {
    let mut tried = Vec::new();
    for admin in addresses {
        match admin_client::get(&admin, "/healthz", ANSWER_TIMEOUT).await {
            Ok(_) => return Ok(admin),
            Err(error) => tried.push(format!("{admin}: {error:#}")),
        }
    }
    anyhow::bail!(
        "no node answers; tried:\n  {}\nname one with --admin ADDRESS",
        tried.join("\n  ")
    )
}

/// The last answers of the node.
type Answer = anyhow::Result<(Vec<ClusterNode>, Vec<Event>)>;

async fn ask(admin: AdminAddress) -> Answer {
    let nodes = admin_client::get(&admin, "/cluster", ANSWER_TIMEOUT).await?;
    let events = admin_client::get(&admin, "/events", ANSWER_TIMEOUT).await?;
    Ok((serde_json::from_slice(&nodes)?, serde_json::from_slice(&events)?))
}

/// Draws and obeys keys until one ends it. A node that is slow to answer delays no key.
fn show(
    runtime: &tokio::runtime::Runtime,
    admin: &AdminAddress,
    terminal: &mut ratatui::DefaultTerminal,
    picture: &mut Picture,
) -> io::Result<()> {
    let (sender, answers) = std::sync::mpsc::channel();
    let (mut asked, mut is_asking) = (None::<Instant>, false);
    loop {
        if !is_asking && asked.is_none_or(|at| at.elapsed() >= ASK_INTERVAL) {
            (asked, is_asking) = (Some(Instant::now()), true);
            let (sender, admin) = (sender.clone(), admin.clone());
            runtime.spawn(async move { drop(sender.send(ask(admin).await)) });
        }
        if let Ok(answer) = answers.try_recv() {
            is_asking = false;
            picture.update(answer.map_err(|error| format!("{error:#}")));
        }
        terminal.draw(|frame| picture.draw(frame))?;
        if !event::poll(KEY_INTERVAL)? {
            continue;
        }
        let Input::Key(key) = event::read()? else { continue };
        let is_control_c =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            _ if is_control_c => return Ok(()),
            KeyCode::Tab | KeyCode::Right => picture.turn(1),
            KeyCode::BackTab | KeyCode::Left => picture.turn(Pane::ALL.len() - 1),
            KeyCode::Up => picture.scroll(-1),
            KeyCode::Down => picture.scroll(1),
            KeyCode::Char('s') => picture.sort_by_next(),
            KeyCode::Char('?' | 'h') => picture.has_help = !picture.has_help,
            _ => {}
        }
    }
}

/// The node is asked once a second: its rates are those of seconds.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which the screen is drawn while no key is pressed, so that an answer shows at once.
const KEY_INTERVAL: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  levada top
  levada top --admin 127.0.0.1:9180
  ssh -t edge-1 levada top

Keys: Tab or the arrows change the pane, Up and Down scroll, s sorts by the next column, ? explains, q ends.

Exit codes:
  0  it was ended
  2  there is no terminal, or no node answers";
