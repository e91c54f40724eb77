//! The words of a node about itself when a peer probes it.

use std::{fmt, str::FromStr};

use crate::announce::{Route, RouteStanding};

/// A node that answers a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// It is being emptied: no new client should get to it.
    pub draining: bool,
    /// The part of its capacity that is in use, in 0..=1.
    pub load: f64,
    /// Its anycast route, if it has one.
    pub route: Option<RouteStanding>,
}

/// The text is no answer to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer to a probe")]
pub struct NoStanding;

const WELL: &str = "well";
const DRAINING: &str = "draining";

impl Standing {
    /// The standing of a node with so many requests of its capacity.
    pub fn new(draining: bool, held: u32, capacity: u32) -> Self {
        Self { draining, load: f64::from(held) / f64::from(capacity.max(1)), route: None }
    }

    /// The same with the words about its route.
    pub fn with(self, route: Option<&Route>, capacity: u32) -> Self {
        Self { route: route.map(|route| route.standing(capacity)), ..self }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.draining { DRAINING } else { WELL };
        let route = self.route.map(|route| format!(" {route}")).unwrap_or_default();
        writeln!(f, "{state} {:.2}{route}", self.load)
    }
}

impl FromStr for Standing {
    type Err = NoStanding;

    /// A node of a version that says no load has none, and one without the words about a route has no route.
    fn from_str(text: &str) -> Result<Self, NoStanding> {
        let mut words = text.split_ascii_whitespace();
        let draining = match words.next() {
            Some(WELL) => false,
            Some(DRAINING) => true,
            _ => return Err(NoStanding),
        };
        let load = words.next().map_or(Ok(0.0), |load| load.parse().map_err(|_| NoStanding))?;
        let route = words.collect::<Vec<_>>().join(" ").parse().ok();
        Ok(Self { draining, load, route })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announce::RouteLevel;

    #[test]
    fn standing_is_read_as_it_is_written() {
        let route = RouteStanding { level: RouteLevel::Backup, load: 0.5, capacity: 9 };
        let full = Standing { draining: true, load: 0.25, route: Some(route) };
        for standing in [Standing::default(), Standing { route: None, ..full }, full] {
            assert_eq!(standing.to_string().parse(), Ok(standing));
        }
        assert_eq!("well\n".parse(), Ok(Standing::default()));
        assert_eq!("<html>".parse::<Standing>(), Err(NoStanding));
    }
}
