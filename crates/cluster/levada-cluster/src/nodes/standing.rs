//! The words of a node about itself when a peer probes it.

use std::{fmt, str::FromStr};

/// A node that answers a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// It is being emptied: no new client should get to it.
    pub draining: bool,
    /// The part of its capacity that is in use, in 0..=1.
    pub load: f64,
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
        Self { draining, load: f64::from(held) / f64::from(capacity.max(1)) }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.draining { DRAINING } else { WELL };
        writeln!(f, "{state} {:.2}", self.load)
    }
}

impl FromStr for Standing {
    type Err = NoStanding;

    /// A node of a version that says no load has none.
    fn from_str(text: &str) -> Result<Self, NoStanding> {
        let mut words = text.split_ascii_whitespace();
        let draining = match words.next() {
            Some(WELL) => false,
            Some(DRAINING) => true,
            _ => return Err(NoStanding),
        };
        let load = words.next().map_or(Ok(0.0), |load| load.parse().map_err(|_| NoStanding))?;
        Ok(Self { draining, load })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_is_read_as_it_is_written() {
        for standing in [Standing::default(), Standing { draining: true, load: 0.25 }] {
            assert_eq!(standing.to_string().parse(), Ok(standing));
        }
        assert_eq!("well\n".parse(), Ok(Standing::default()));
        assert_eq!("<html>".parse::<Standing>(), Err(NoStanding));
    }
}
