//! The former server and a node, with one list of requests: where do their responses differ?
//!
//! ```text
//! requests ─┬─> nginx, its own configuration at other ports ─┐
//!           └─> node, the new file at other ports ───────────┴─> difference ─> report
//! ```

mod caddy;
mod difference;
mod exchange;
mod front;
mod haproxy;
mod nginx;
mod node;
mod report;
mod requests;
mod stage;
mod trafficserver;
mod varnish;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use http::Method;
use levada_convert::InputFile;

use crate::files::IncludedFrom;
use difference::{Difference, between};
use exchange::{Answer, Sender};
use front::Front;
use report::Differing;
use stage::Stage;

use report::Report;
use requests::Asked;

pub(crate) use requests::read;

/// The server that is left.
pub(crate) enum Former {
    Nginx(InputFile, IncludedFrom),
    Varnish(PathBuf),
    Haproxy(InputFile),
    Caddy(PathBuf),
    TrafficServer(Vec<InputFile>),
}

impl Former {
    fn name(&self) -> &'static str {
        match self {
            Self::Nginx(..) => "nginx",
            Self::Varnish(_) => "Varnish",
            Self::Haproxy(_) => "HAProxy",
            Self::Caddy(_) => "Caddy",
            Self::TrafficServer(_) => "Traffic Server",
        }
    }

    /// Starts it. Of the two whose configuration names no listeners, one listens for all of those of the node.
    fn start(&self, stage: &Stage, node: &Front) -> anyhow::Result<Front> {
        match self {
            Self::Nginx(file, includes) => nginx::start(stage, file, includes),
            Self::Varnish(file) => varnish::start(stage, file, node),
            Self::Haproxy(file) => haproxy::start(stage, file),
            Self::Caddy(file) => caddy::start(stage, file),
            Self::TrafficServer(files) => trafficserver::start(stage, files, node),
        }
    }
}

/// Starts both and compares their responses. `directory` is where relative names in the new file begin.
///
/// # Errors
/// When one of them does not start.
pub(crate) fn compare(
    former: &Former,
    toml: &str,
    directory: &Path,
    requests: &[Asked],
) -> anyhow::Result<Report> {
    let stage = Stage::new()?;
    let ours = node::start(&stage, toml, directory)?;
    let theirs = former.start(&stage, &ours)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = Report { server: former.name(), ..Report::default() };
    runtime.block_on(all(requests, &theirs, &ours, report))
}

async fn all(
    requests: &[Asked],
    theirs: &Front,
    ours: &Front,
    mut report: Report,
) -> anyhow::Result<Report> {
    let sender = Sender::new()?;
    for asked in requests {
        let address = listener(asked, theirs);
        let first = ask(&sender, asked, theirs, address).await;
        let other = ask(&sender, asked, ours, address).await;
        let mut found = between(asked, &first, &other);
        if !found.is_empty() && [Method::GET, Method::HEAD].contains(&asked.method) {
            // A part that the former server itself answers in two ways says nothing about the new one.
            let again = ask(&sender, asked, theirs, address).await;
            let varies: Vec<Difference> = between(asked, &first, &again);
            let before = found.len();
            found.retain(|one| !varies.iter().any(|other| other.of == one.of));
            report.varying += usize::from(found.len() < before);
        }
        report.compared += 1;
        if !found.is_empty() {
            report.different.push(Differing::new(asked, found));
        }
    }
    Ok(report)
}

/// The address of the former configuration at which a request arrives.
fn listener<'a>(asked: &Asked, front: &'a Front) -> Option<&'a str> {
    let default = if asked.url.scheme_str() == Some("https") { 443 } else { 80 };
    let port = asked.url.port_u16().unwrap_or(default);
    let at_port =
        |address: &&String| address.parse().is_ok_and(|address: SocketAddr| address.port() == port);
    // One for all addresses comes before those of single ones.
    let found = front.listeners.keys().filter(at_port);
    found.min_by_key(|address| (!address.starts_with("0.0.0.0"), *address)).map(String::as_str)
}

async fn ask(sender: &Sender, asked: &Asked, front: &Front, address: Option<&str>) -> Answer {
    match address.and_then(|address| front.listeners.get(address)) {
        Some(to) => sender.send(asked, *to).await,
        None => Answer::None("no listener at this port"),
    }
}
