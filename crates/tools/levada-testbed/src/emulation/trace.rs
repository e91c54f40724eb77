//! Traces for back-ends, whose URLs tell the size of the file.

use levada_sim::prototype::HOST;
use levada_trace::{Trace, TraceObject};

/// The same trace with URLs that contain the size of the file, for back-ends. The front-end's policy
/// hashes the same key as the simulator's.
pub fn renamed(trace: &Trace) -> Trace {
    let renamed = |(number, object): (usize, &TraceObject)| TraceObject {
        name: url(&number.to_string(), object.size),
        size: object.size,
    };
    let objects = trace.objects().iter().enumerate().map(renamed).collect();
    Trace::new(objects, trace.requests().to_vec())
}

/// The URL of a back-end's file.
pub fn url(name: &str, size: u64) -> Box<str> {
    format!("http://{HOST}/file/{name}/{size}").into()
}

/// Offset of the path in such a URL.
pub const ROOT: usize = "http://".len() + HOST.len();
