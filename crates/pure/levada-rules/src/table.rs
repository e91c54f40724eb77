//! The routes of a site, in order, with an index over their paths: a request must not pay for the routes that
//! its path rules out.
//!
//! - Exact paths are found by hash.
//! - Patterns with a literal beginning are found by it (`prefixes`).
//! - Patterns without one are searched for all at once, by a set of regular expressions.
//! - Routes without a matcher for paths are candidates for every request.
//!
//! The candidates are then tried in the order of the file, with all their matchers.

use std::collections::HashMap;

use crate::{
    Conditions, RequestFacts,
    lazy_regex::LazySet,
    pattern::{Kind, PathPattern},
    prefixes::Prefixes,
};

/// The routes of a site, by their matchers.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    routes: Vec<Conditions>,
    exact: HashMap<String, Vec<u32>>,
    beginnings: Prefixes,
    /// Expressions of paths without a literal beginning, and the route of each.
    set: Option<(LazySet, Vec<u32>)>,
    /// Routes that the path does not rule out.
    always: Vec<u32>,
}

/// Why routes cannot be used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The patterns without a literal beginning are too large together.
    #[error(
        "the patterns that begin with `**` or have no literal beginning are too large together"
    )]
    TooLarge,
}

/// All else follows from the routes.
impl PartialEq for RouteTable {
    fn eq(&self, other: &Self) -> bool {
        self.routes == other.routes
    }
}

impl RouteTable {
    /// The table of these routes, in their order.
    ///
    /// # Errors
    /// If the index over their paths would be too large.
    pub fn new(routes: Vec<Conditions>) -> Result<Self, TableError> {
        let mut table = Self::default();
        let (mut beginnings, mut expressions) = (Vec::new(), Vec::new());
        for (number, route) in (0..).zip(&routes) {
            if !route.paths.is_empty() {
                for path in &route.paths {
                    match place(path) {
                        Place::Exact(text) => {
                            let known = table.exact.entry(text.to_owned()).or_default();
                            if known.last() != Some(&number) {
                                known.push(number);
                            }
                        }
                        Place::Beginning(text) => beginnings.push((text.to_owned(), number)),
                        Place::Expression(text) => expressions.push((text.to_owned(), number)),
                    }
                }
            } else if let Some(regex) = &route.path_regex {
                match regex.literal() {
                    "" => expressions.push((regex.as_str().to_owned(), number)),
                    text => beginnings.push((text.to_owned(), number)),
                }
            } else {
                table.always.push(number);
            }
        }
        if !expressions.is_empty() {
            let (texts, numbers): (Vec<String>, Vec<u32>) = expressions.into_iter().unzip();
            let set = LazySet::new(texts).map_err(|_| TableError::TooLarge)?;
            table.set = Some((set, numbers));
        }
        table.beginnings = Prefixes::new(beginnings);
        table.routes = routes;
        Ok(table)
    }

    /// The first route that takes the request.
    pub fn find(&self, facts: &RequestFacts<'_>) -> Option<usize> {
        self.find_from(0, facts)
    }

    /// The first route from this number on that takes the request.
    pub fn find_from(&self, start: u32, facts: &RequestFacts<'_>) -> Option<usize> {
        let mut candidates = Candidates::default();
        if let Some(routes) = self.exact.get(&*facts.path) {
            candidates.add(routes);
        }
        self.beginnings.visit(&facts.path, |routes| candidates.add(routes));
        if let Some((set, numbers)) = &self.set {
            set.visit(&facts.path, |at| candidates.add(&numbers[at..=at]));
        }
        let by_path = candidates.in_order();
        let holds = |number: &u32| *number >= start && self.routes[*number as usize].hold(facts);
        let first = by_path.iter().copied().find(holds);
        // A route for all paths counts if it stands before.
        let end = first.unwrap_or(u32::MAX);
        let of_all = self.always.iter().copied().take_while(|number| *number < end).find(holds);
        of_all.or(first).map(|number| number as usize)
    }

    /// The first route that takes the request, without the index.
    pub fn find_by_walk(&self, facts: &RequestFacts<'_>) -> Option<usize> {
        self.routes.iter().position(|route| route.hold(facts))
    }

    /// The matchers of all routes, in order.
    pub fn routes(&self) -> &[Conditions] {
        &self.routes
    }
}

enum Place<'a> {
    Exact(&'a str),
    Beginning(&'a str),
    Expression(&'a str),
}

/// The part of the index that a pattern belongs to.
fn place(pattern: &PathPattern) -> Place<'_> {
    match pattern.kind() {
        Kind::Exact => Place::Exact(pattern.literal()),
        Kind::Below => Place::Beginning(pattern.literal()),
        // `/a/*/c/**` and others whose literal ends with `/` may match without it.
        Kind::Regex(regex) => match pattern.literal().trim_end_matches('/') {
            "" => Place::Expression(regex.as_str()),
            literal => Place::Beginning(literal),
        },
    }
}

/// Candidates of one request: few, so that they need no memory of their own.
#[derive(Default)]
struct Candidates {
    few: [u32; 16],
    count: usize,
    many: Vec<u32>,
}

impl Candidates {
    fn add(&mut self, routes: &[u32]) {
        for route in routes {
            if self.count < self.few.len() {
                self.few[self.count] = *route;
                self.count += 1;
                continue;
            }
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(*route);
        }
    }

    fn in_order(&mut self) -> &[u32] {
        let all =
            if self.many.is_empty() { &mut self.few[..self.count] } else { &mut self.many[..] };
        all.sort_unstable();
        all
    }
}
