//! `levada demo`: a small CDN of real processes on one machine, under real load.
//!
//! Read [`run`] and [`story`] first: they are the demo from top to bottom. Around them:
//!
//! ```text
//! args - setup                what is asked for, checked; what is left open, chosen
//! capacity                    how much of it this machine carries now
//! catalog - origin            what there is to be served
//! config - nodes              the nodes: this executable, once per node
//! plan - load - client        the phases, the requests, and who sends them
//! stage                       the phases, one after another, and what viewers order
//! watch - board               what is seen from outside, and where it is written down
//! view - screen - summary     what is shown
//! page                        the same in a browser
//! ```

pub(crate) mod args;
mod board;
mod capacity;
mod catalog;
mod client;
mod config;
mod load;
mod nodes;
mod origin;
mod page;
mod plan;
mod screen;
mod setup;
mod stage;
mod summary;
mod view;
mod watch;

use std::{
    io::{self, StdoutLock, Write as _},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use levada_client::command::{CommandStatus, StopSignals, node::Node, output};
use tokio::{sync::Semaphore, time::Instant};

use self::{
    args::DemoArgs,
    board::Board,
    client::Clients,
    config::HOST_NAME,
    load::MOST_UNDER_WAY,
    nodes::Cluster,
    origin::Origin,
    page::ServedPage,
    setup::{Part, Setup},
    stage::Stage,
    summary::Summary,
    view::View,
    watch::Watched,
};

/// Runs the demo.
///
/// # Errors
/// If an option is invalid, or the nodes cannot be started.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<CommandStatus> {
    let setup = Setup::new(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the demo")?;
    runtime.block_on(async {
        let mut stop = StopSignals::new(true)?;
        let prepared = tokio::select! {
            prepared = prepare(setup, args) => prepared?,
            () = stop.asked() => return Ok(CommandStatus::ProblemsFound),
        };
        let (setup, origin, mut cluster) = prepared;
        let verdict = story(&setup, &origin, &mut cluster, &mut stop).await;
        cluster.nodes.stop().await;
        verdict
    })
}

/// Measures what the machine carries, with nodes that end afterwards, and starts the demo that suits it.
async fn prepare(setup: Setup, args: &DemoArgs) -> anyhow::Result<(Arc<Setup>, Origin, Cluster)> {
    let origin = Origin::start(setup.catalog.clone()).await?;
    let trial = Cluster::start(&setup, origin.address).await?;
    let answers = capacity::measure(&setup, &clients(&setup, &trial)).await;
    trial.nodes.stop().await;
    let mut setup = rehearse(setup.within(answers, args)?, args).await?;
    // A lower rate has other objects.
    let origin = Origin::start(setup.catalog.clone()).await?;
    let cluster = Cluster::start(&setup, origin.address).await?;
    if cluster.restarts > 0 {
        let times = cluster.restarts;
        setup.notes.push(format!(
            "other programs took ports of the nodes, which were started again {times} times"
        ));
    }
    Ok((Arc::new(setup), origin, cluster))
}

/// Sends the first seconds of the trace to nodes that end afterwards, and lowers the load until answers come in time. A
/// rate that was chosen is kept.
async fn rehearse(mut setup: Setup, args: &DemoArgs) -> anyhow::Result<Setup> {
    while !setup.keeps_rate {
        // A lower load has other objects, and links that are slower.
        let origin = Origin::start(setup.catalog.clone()).await?;
        let trial = Cluster::start(&setup, origin.address).await?;
        let median = capacity::rehearse(&setup, &clients(&setup, &trial)).await;
        trial.nodes.stop().await;
        match setup.slower(median, args)? {
            Some(slower) => setup = slower,
            None => break,
        }
    }
    Ok(setup)
}

fn clients(setup: &Setup, cluster: &Cluster) -> Arc<Clients> {
    let nodes = cluster.nodes.all.iter();
    let addresses: Vec<_> = nodes.map(|n| (n.name.clone(), n.addresses.clients)).collect();
    Arc::new(Clients::new(&addresses, setup.catalog.clone()))
}

/// From the first request to the summary.
async fn story(
    setup: &Arc<Setup>,
    origin: &Origin,
    cluster: &mut Cluster,
    stop: &mut StopSignals,
) -> anyhow::Result<CommandStatus> {
    let listener = page::listener().await?;
    let addresses = addresses(setup, origin, cluster, listener.local_addr()?);
    announce(setup, &addresses)?;
    let clients = clients(setup, cluster);
    let board = Arc::new(Board::new(setup.duration, setup.hottest(), setup.nodes, origin.count()));
    let mut served = ServedPage::start(listener, setup, &board, watched(cluster));

    let begin = Instant::now();
    let view = View::start(setup, &board, begin, addresses.clone());
    let watch = tokio::spawn(watch::watch(watched(cluster), setup.clone(), board.clone()));
    let places = Arc::new(Semaphore::new(MOST_UNDER_WAY));
    let mut stage = Stage {
        setup,
        origin,
        cluster,
        clients,
        board: board.clone(),
        page: served.page.clone(),
        orders: &mut served.orders,
        places: places.clone(),
        begin,
        killed: None,
        away: Vec::new(),
    };
    let load = tokio::spawn(stage.send(Part::Story));
    let complete = tokio::select! {
        played = stage.play() => played.map(|()| true),
        () = stop.asked() => Ok(false),
    };
    let lasted = begin.elapsed().min(setup.duration);
    let complete = complete? && last_answers(setup.last_timeout(), &places, stop).await;
    board.finish(origin.count());
    load.abort();
    view.end().await;

    let end = (stage.killed.clone(), complete);
    let summary = Summary::new(setup, &board.look(), end, lasted);
    let unanswered = MOST_UNDER_WAY - places.available_permits();
    let text = |out: &mut StdoutLock<'_>| out.write_all(summary.text(setup).as_bytes());
    output::print(setup.json, &summary, text)?;
    if setup.hold && complete {
        hold(&mut stage, &addresses, stop).await?;
    }
    watch.abort();
    served.end().await;
    let fine = complete && summary.failed == 0 && unanswered == 0;
    Ok(CommandStatus::of(fine))
}

/// Waits for outstanding answers; returns whether all of them came.
async fn last_answers(timeout: Duration, places: &Semaphore, stop: &mut StopSignals) -> bool {
    tokio::select! {
        all = tokio::time::timeout(timeout, places.acquire_many(MOST_UNDER_WAY as u32)) => {
            all.is_ok()
        }
        () = stop.asked() => false,
    }
}

fn watched(cluster: &Cluster) -> Vec<Watched> {
    let watched = |node: &Node| Watched { name: node.name.clone(), admin: node.addresses.admin };
    cluster.nodes.all.iter().map(watched).collect()
}

/// Prints the addresses of the running demo.
fn addresses(setup: &Setup, origin: &Origin, cluster: &Cluster, page: SocketAddr) -> Vec<String> {
    let hottest = &setup.catalog.object(setup.hottest()).target;
    let all = cluster.nodes.all.iter().map(|n| format!("{} {}", n.name, n.addresses.clients));
    let first = &cluster.nodes.all[0];
    let (clients, admin) = (first.addresses.clients, first.addresses.admin);
    vec![
        format!("page     http://{page}/"),
        format!("nodes    {}", all.collect::<Vec<_>>().join(", ")),
        format!(
            "curl     curl -so /dev/null -D- -H 'Host: {HOST_NAME}' 'http://{clients}{hottest}'"
        ),
        format!("explain  levada explain 'http://{HOST_NAME}{hottest}' --admin {admin}"),
        format!("status   http://{admin}/status and /metrics; origin http://{}/", origin.address),
        format!("files    {}", cluster.nodes.directory().display()),
    ]
}

fn announce(setup: &Setup, addresses: &[String]) -> anyhow::Result<()> {
    let mut text = format!(
        "{} nodes with policy {}, {:.0} requests/s\n",
        setup.nodes, setup.policy.name, setup.rate
    );
    text += &format!("trace    {}\n{}\n", setup.catalog.source, summary::emulation(setup));
    setup.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    addresses.iter().for_each(|line| text += &format!("{line}\n"));
    Ok(say(setup, &text)?)
}

/// Says how the demo goes on. Standard output is for the summary if that is JSON.
fn say(setup: &Setup, text: &str) -> io::Result<()> {
    match setup.json {
        true => io::stderr().lock().write_all(text.as_bytes()),
        false => io::stdout().lock().write_all(text.as_bytes()),
    }
}

/// Goes on with the trace, and with what viewers order, until it is to end.
async fn hold(
    stage: &mut Stage<'_>,
    addresses: &[String],
    stop: &mut StopSignals,
) -> anyhow::Result<()> {
    let text = format!("\nstill running, until ctrl-c:\n{}\n", addresses.join("\n"));
    // If standard output is closed, ctrl-c still ends the demo.
    let _ = say(stage.setup, &text);
    tokio::select! {
        held = stage.hold() => held,
        () = stop.asked() => Ok(()),
    }
}
