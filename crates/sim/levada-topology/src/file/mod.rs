//! A user's own topology, from a JSON or GraphML file with the same keys.
//!
//! Files are untrusted: their size is bounded, and all problems are reported at once, each with its
//! place and the remedy.

mod graphml;
mod json;

pub use graphml::from_graphml;
pub use json::{from_json, to_json};

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use levada_types::parse_duration;

use super::{
    Link, PlaceIndex, Role, RouteError, Routes, Topology,
    access::{QUEUE, link},
};

/// The largest size of a file.
pub const MAX_FILE_BYTES: usize = 64 << 20;
const MAX_PLACES: usize = 200_000;
const MAX_LINKS: usize = 1_000_000;
const MAX_QUEUE: u32 = 1 << 20;
const MAX_MBPS: f64 = 1e6;
const MAX_LATENCY: Duration = Duration::from_secs(10);
/// Reading continues after a mistake, up to this number of messages.
const MAX_ERRORS: usize = 20;

/// A problem of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct FileError {
    /// Its place in the file.
    pub at: String,
    /// The problem and the remedy.
    pub problem: Problem,
}

/// A problem of a file, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file violates the syntax of its format.
    #[error("{0}")]
    Format(String),
    /// The file has more entries than allowed.
    #[error("more than {most} {what}: leave some out")]
    TooMany {
        /// The kind of entry.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Two places have one name.
    #[error("the name `{0}` is taken: give each place one of its own")]
    NameTaken(String),
    /// The name is empty.
    #[error("a place needs a name")]
    NoName,
    /// The role is unknown.
    #[error("`{0}` is no role: use router, redirector, server or client")]
    Role(String),
    /// An end of a link is unknown.
    #[error("there is no place `{0}`: name one of the places")]
    NoPlace(String),
    /// Both ends of a link are the same place.
    #[error("both ends are `{0}`: a link is between two places")]
    Loop(String),
    /// A link lacks a required value.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// The latency is invalid.
    #[error("latency must be a duration from 0s to 10s such as \"5ms\", not `{0}`")]
    Latency(String),
    /// The bandwidth is invalid.
    #[error("mbps must be a number above 0 and at most {MAX_MBPS}, not `{0}`")]
    Mbps(String),
    /// The queue is invalid.
    #[error("queue must be a whole number from 1 to {MAX_QUEUE}, not `{0}`")]
    Queue(String),
    /// The topology has no routes.
    #[error(transparent)]
    Routes(#[from] RouteError),
}

/// A place in a file.
struct RawPlace {
    at: String,
    name: String,
    role: Option<String>,
}

/// A link in a file.
struct RawLink {
    at: String,
    a: String,
    b: String,
    latency: Option<String>,
    mbps: Option<String>,
    queue: Option<String>,
}

/// The problems so far.
#[derive(Default)]
struct Errors(Vec<FileError>);

impl Errors {
    fn add(&mut self, at: &str, problem: Problem) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(FileError { at: at.to_owned(), problem });
        }
    }

    /// The value; an error is recorded.
    fn take<T>(&mut self, at: &str, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.add(at, problem)).ok()
    }
}

/// A topology and its routes; both exist only if the topology is connected.
fn assemble(places: &[RawPlace], links: &[RawLink]) -> Result<(Topology, Routes), Vec<FileError>> {
    let mut errors = Errors::default();
    for (what, count, most) in
        [("places", places.len(), MAX_PLACES), ("links", links.len(), MAX_LINKS)]
    {
        if count > most {
            errors.add("file", Problem::TooMany { what, most });
        }
    }
    if !errors.0.is_empty() {
        return Err(errors.0);
    }
    let mut topology = Topology::default();
    let mut names: BTreeMap<&str, PlaceIndex> = BTreeMap::new();
    // Places with an error of their own: their links need no further message.
    let mut mistaken = BTreeSet::new();
    for place in places {
        let Some(role) = errors.take(&place.at, role(place.role.as_deref())) else {
            mistaken.insert(&*place.name);
            continue;
        };
        if place.name.is_empty() {
            errors.add(&place.at, Problem::NoName);
        } else if names.contains_key(&*place.name) {
            errors.add(&place.at, Problem::NameTaken(place.name.clone()));
        } else {
            names.insert(&place.name, topology.place(&*place.name, role));
        }
    }
    for raw in links {
        let ends = [&raw.a, &raw.b].map(|name| names.get(&**name).copied());
        for (name, _) in [&raw.a, &raw.b].into_iter().zip(ends).filter(|(_, end)| end.is_none()) {
            if !mistaken.contains(&**name) {
                errors.add(&raw.at, Problem::NoPlace(name.clone()));
            }
        }
        let figures = read_figures(raw, &mut errors);
        let ([Some(a), Some(b)], Some(figures)) = (ends, figures) else { continue };
        if a == b {
            errors.add(&raw.at, Problem::Loop(raw.a.clone()));
        } else {
            topology.links.push(Link { a, b, ..figures });
        }
    }
    if errors.0.is_empty() {
        match topology.routes() {
            Ok(routes) => return Ok((topology, routes)),
            Err(error) => errors.add("file", error.into()),
        }
    }
    Err(errors.0)
}

fn role(word: Option<&str>) -> Result<Role, Problem> {
    let Some(word) = word else { return Ok(Role::Router) };
    let known = Role::ALL.into_iter().find(|role| role.as_str() == word);
    known.ok_or_else(|| Problem::Role(word.to_owned()))
}

/// Latency, bandwidth and queue of a link whose ends are not resolved yet.
fn read_figures(raw: &RawLink, errors: &mut Errors) -> Option<Link> {
    let latency = raw.latency.as_deref().ok_or(Problem::Missing("latency"));
    let latency = errors.take(&raw.at, latency.and_then(read_latency));
    let mbps = raw.mbps.as_deref().ok_or(Problem::Missing("mbps"));
    let mbps = errors.take(&raw.at, mbps.and_then(read_mbps));
    let queue = errors.take(&raw.at, raw.queue.as_deref().map_or(Ok(QUEUE), read_queue));
    let figures = link(0, 0, 0.0, mbps?, queue?);
    Some(Link { latency_ns: latency?.as_nanos() as u64, ..figures })
}

fn read_latency(text: &str) -> Result<Duration, Problem> {
    let latency = parse_duration(text).ok().filter(|latency| *latency <= MAX_LATENCY);
    latency.ok_or_else(|| Problem::Latency(text.to_owned()))
}

fn read_mbps(text: &str) -> Result<f64, Problem> {
    let mbps = text.trim().parse().ok().filter(|mbps| *mbps > 0.0 && *mbps <= MAX_MBPS);
    mbps.ok_or_else(|| Problem::Mbps(text.to_owned()))
}

fn read_queue(text: &str) -> Result<u32, Problem> {
    let queue = text.trim().parse().ok().filter(|queue| (1..=MAX_QUEUE).contains(queue));
    queue.ok_or_else(|| Problem::Queue(text.to_owned()))
}

fn too_large(bytes: usize) -> Option<Vec<FileError>> {
    let problem = Problem::Format(format!(
        "{bytes} bytes are more than the {MAX_FILE_BYTES} that are read: leave something out"
    ));
    (bytes > MAX_FILE_BYTES).then(|| vec![FileError { at: "file".to_owned(), problem }])
}

#[cfg(test)]
mod tests;
