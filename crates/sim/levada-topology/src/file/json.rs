//! Topologies as JSON.
//!
//! ```json
//! {
//!   "places": [{ "name": "hub", "role": "redirector" }, { "name": "s0", "role": "server" },
//!              { "name": "c0", "role": "client" }],
//!   "links": [{ "a": "s0", "b": "hub", "latency": "2ms", "mbps": 100 },
//!             { "a": "c0", "b": "hub", "latency": "20ms", "mbps": 10, "queue": 64 }]
//! }
//! ```
//!
//! A place without a role is a router; a link without a queue has 512 packets.

use std::time::Duration;

use levada_types::format_duration;
use serde::{Deserialize, Serialize};

use super::{
    super::{Routes, Topology},
    FileError, Problem, RawLink, RawPlace, assemble, too_large,
};

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    places: Vec<FilePlace>,
    links: Vec<FileLink>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FilePlace {
    name: String,
    role: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    a: String,
    b: String,
    latency: String,
    mbps: serde_json::Number,
    queue: Option<serde_json::Number>,
}

/// Reads a topology from JSON.
///
/// # Errors
/// All problems, each with its place in the file.
pub fn from_json(text: &str) -> Result<(Topology, Routes), Vec<FileError>> {
    if let Some(error) = too_large(text.len()) {
        return Err(error);
    }
    let file: File = serde_json::from_str(text).map_err(|error| {
        let at = format!("line {}, column {}", error.line(), error.column());
        let said = error.to_string();
        // The message ends with the place, which is reported separately.
        let what = said.split(" at line ").next().unwrap_or(&said).to_owned();
        vec![FileError { at, problem: Problem::Format(what) }]
    })?;
    let place = |(n, place): (usize, FilePlace)| RawPlace {
        at: format!("places[{n}]"),
        name: place.name,
        role: place.role,
    };
    let link = |(n, link): (usize, FileLink)| RawLink {
        at: format!("links[{n}]"),
        a: link.a,
        b: link.b,
        latency: Some(link.latency),
        mbps: Some(link.mbps.to_string()),
        queue: link.queue.map(|queue| queue.to_string()),
    };
    let places: Vec<_> = file.places.into_iter().enumerate().map(place).collect();
    let links: Vec<_> = file.links.into_iter().enumerate().map(link).collect();
    assemble(&places, &links)
}

/// Writes a topology in the format of [`from_json`], to inspect a built one or to start from it.
pub fn to_json(topology: &Topology) -> String {
    let name = |place: u32| topology.places[place as usize].name.to_string();
    let place = |place: &crate::Place| FilePlace {
        name: place.name.to_string(),
        role: Some(place.role.as_str().to_owned()),
    };
    let link = |link: &crate::Link| FileLink {
        a: name(link.a),
        b: name(link.b),
        latency: format!("{}", format_duration(Duration::from_nanos(link.latency_ns))),
        mbps: serde_json::Number::from_f64(link.bits_per_second as f64 / 1e6)
            .expect("a quotient of two numbers above 0 is a number"),
        queue: Some(link.queue_packets.into()),
    };
    let file = File {
        places: topology.places.iter().map(place).collect(),
        links: topology.links.iter().map(link).collect(),
    };
    serde_json::to_string_pretty(&file).expect("texts and numbers can be written")
}
