//! Internal redirects: the place where a request goes on within its site, without its client.

use std::sync::Arc;

use crate::Rewrite;

/// The most internal redirects of one request, as in nginx.
pub const MOST_REDIRECTS: u8 = 10;

/// The place where a request goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    /// The first route after its own that takes it.
    Next,
    /// The route of this name, whatever its matchers say.
    Route(Arc<str>),
    /// Another path and query, which the routes of the site are tried with from the first one on.
    Path(Rewrite),
}

impl Destination {
    /// The route or the path, for operators.
    pub fn in_words(&self) -> String {
        match self {
            Self::Next => "the next route".to_owned(),
            Self::Route(name) => format!("route {name}"),
            Self::Path(Rewrite::Template(to)) => match to.fixed() {
                Some(path) => format!("the routes with {path}"),
                None => "the routes with another path".to_owned(),
            },
            Self::Path(_) => "the routes with another path".to_owned(),
        }
    }
}

/// The step of a request on its way through the routes of its site.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteStep {
    /// The route that the request leaves; `None`: the site itself.
    pub from: Option<Arc<str>>,
    /// Why it leaves: `reroute`, `no file`.
    pub why: &'static str,
    /// The path and query with which it goes on.
    pub target: String,
    /// The place where it goes on.
    pub to: String,
}
