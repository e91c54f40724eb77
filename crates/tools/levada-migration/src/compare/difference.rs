//! Where two responses to one request differ.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, Method};
use serde::Serialize;

use super::{exchange::Answer, requests::Asked};

/// A part of two responses that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// `status`, `body`, or the name of a field.
    pub(super) of: String,
    /// At the other server.
    pub(super) theirs: String,
    /// At the node.
    pub(super) ours: String,
}

/// Fields about the connection, the server itself and the moment: docs/coming-from/README.md has them.
const NOT_COMPARED: &[&str] = &[
    "accept-ranges",
    "age",
    "cache-status",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-status",
    "server",
    "transfer-encoding",
    "via",
    "x-varnish",
];

/// Bodies of errors that a server has written itself.
const OWN_PAGES: &[&[u8]] =
    &[b"<hr><center>nginx", b"<hr><center>openresty", b"Guru Meditation", HAPROXY_PAGE];

/// The beginning of HAProxy's.
const HAPROXY_PAGE: &[u8] = b"<html><body><h1>";

/// Fields about such a body.
const OF_PAGES: &[&str] = &["content-encoding", "content-type", "etag", "retry-after", "vary"];

/// All differences of two answers to a request.
pub(super) fn between(asked: &Asked, theirs: &Answer, ours: &Answer) -> Vec<Difference> {
    let (first, other) = match (theirs, ours) {
        (Answer::None(first), Answer::None(other)) if first == other => return Vec::new(),
        (
            Answer::Response { status, fields, body },
            Answer::Response { status: s, fields: f, body: b },
        ) => ((status, fields, body), (s, f, b)),
        _ => {
            let shown = |answer: &Answer| match answer {
                Answer::None(why) => (*why).to_owned(),
                Answer::Response { status, .. } => status.to_string(),
            };
            return vec![difference("status", shown(theirs), shown(ours))];
        }
    };
    let mut found = Vec::new();
    if first.0 != other.0 {
        found.push(difference("status", first.0.to_string(), other.0.to_string()));
    }
    // A response to HEAD does not show whose page it is about, and Caddy's errors are empty.
    let is_bare = first.2.is_empty() && !first.1.contains_key("content-type");
    let is_own_page = OWN_PAGES.iter().any(|mark| contains(first.2, mark))
        || asked.method == Method::HEAD && *first.0 >= 300
        || is_bare && *first.0 >= 300
        || (300..400).contains(first.0);
    let names = first.1.keys().chain(other.1.keys()).map(HeaderName::as_str);
    for name in names.collect::<BTreeSet<_>>() {
        if NOT_COMPARED.contains(&name) || is_own_page && OF_PAGES.contains(&name) {
            continue;
        }
        let values = [first.1, other.1].map(|fields| shown(asked, fields, name));
        let [mut theirs, mut ours] = values;
        // A refusal of the node is not to be stored.
        if is_own_page && name == "cache-control" {
            ours = ours.replace("no-store | ", "");
            ours.truncate(if ours == "no-store" { 0 } else { ours.len() });
            // So is HAProxy's.
            theirs.truncate(
                if theirs == "no-cache" && is_bare || first.2.starts_with(HAPROXY_PAGE) {
                    0
                } else {
                    theirs.len()
                },
            );
        }
        if theirs != ours {
            found.push(difference(name, theirs, ours));
        }
    }
    if first.2 != other.2 && !is_own_page {
        found.push(body(first.2, other.2));
    }
    found
}

fn difference(of: &str, theirs: String, ours: String) -> Difference {
    Difference { of: of.to_owned(), theirs, ours }
}

fn contains(body: &[u8], mark: &[u8]) -> bool {
    body.windows(mark.len()).any(|part| part == mark)
}

/// The values of a field, in a form in which equal ones are equal.
fn shown(asked: &Asked, fields: &HeaderMap, name: &str) -> String {
    let values = fields.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let values = values.map(|value| comparable(asked, name, &value));
    values.filter(|value| !value.is_empty()).collect::<Vec<_>>().join(" | ")
}

fn comparable(asked: &Asked, name: &str, value: &str) -> String {
    match name {
        // Both name the type and the charset in their own way.
        "content-type" => {
            let value = value.to_ascii_lowercase().replace("; ", ";");
            let value = value.replace(";charset=utf-8", "");
            value.replace("application/javascript", "text/javascript")
        }
        // It says whether there is one: the text is the server's own.
        "etag" => "a tag".to_owned(),
        // It may be relative. nginx sends spaces of `$uri` as they are.
        "location" if value.starts_with('/') && !value.starts_with("//") => {
            let scheme = asked.url.scheme_str().unwrap_or_default();
            format!("{scheme}://{}{value}", asked.host()).replace(' ', "%20")
        }
        "location" => value.replace(' ', "%20"),
        "www-authenticate" => value.replace(", charset=\"UTF-8\"", ""),
        // A node always says so, nginx with `gzip_vary` only.
        "vary" => {
            let names = value.split(',').map(|name| name.trim().to_ascii_lowercase());
            names.filter(|name| name != "accept-encoding").collect::<Vec<_>>().join(", ")
        }
        _ => value.to_owned(),
    }
}

/// Two bodies, by their lengths and the text where they part.
fn body(theirs: &[u8], ours: &[u8]) -> Difference {
    let part = theirs.iter().zip(ours).take_while(|(one, other)| one == other).count();
    let shown = |body: &[u8]| {
        let from = part.saturating_sub(10);
        let excerpt = &body[from.min(body.len())..(part + 30).min(body.len())];
        let excerpt = String::from_utf8_lossy(excerpt);
        format!("{} bytes, {excerpt:?} from byte {from}", body.len())
    };
    difference("body", shown(theirs), shown(ours))
}
