//! The options of the command line.

use std::path::PathBuf;

use crate::{CASES, Result};

const USAGE: &str = "\
Large files in pieces through eight nodes on an emulated network, beside the ways without.

Usage: large [OPTIONS]      (as root: the hosts are network namespaces)

  --only NAME     cases whose name contains NAME; may be repeated
  --part NAME     parts of a case: `direct` of one and many clients, a retry mode of slow and
                  killed node, a window of the sweep, rates of nodes and origin in full links and
                  ways (10/50); may be repeated
  --rounds N      pairs or fetches of which the median is shown [default: 3]
  --quick         smaller files, fewer clients, a coarse grid: to see that everything works
  --json          tables as JSON
  --logs DIR      keep what the nodes log, at level debug, one file for each
  -h, --help      this text

The binary that is measured is `levada` beside this program, or what the environment's LEVADA
names. A figure that misses its target is marked MISSED; a case that cannot be measured fails.
";

pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// Parts of the names of cases that are wanted; all without any.
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    /// Which parts of a case are wanted; all without any.
    pub(crate) parts: Vec<String>,
    pub(crate) logs: Option<PathBuf>,
}

/// Reads the command line. `None` when it only asked what there is.
pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Option<Options>> {
    let mut options = Options {
        quick: false,
        json: false,
        only: Vec::new(),
        rounds: 3,
        parts: Vec::new(),
        logs: None,
    };
    let names: Vec<_> = CASES.iter().map(|(name, _)| *name).collect();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value; see --help"));
        match word.as_str() {
            "-h" | "--help" => {
                println!("{USAGE}\nCases: {}", names.join(", "));
                return Ok(None);
            }
            "--quick" => options.quick = true,
            "--json" => options.json = true,
            "--only" => options.only.push(value()?),
            "--part" => options.parts.push(value()?),
            "--logs" => options.logs = Some(value()?.into()),
            "--rounds" => {
                let value = value()?;
                let number = value.parse().ok().filter(|rounds| *rounds > 0);
                let wanted = || format!("--rounds {value}: not a whole number above 0");
                options.rounds = number.ok_or_else(wanted)?;
            }
            _ => return Err(format!("no option {word:?}; see --help").into()),
        }
    }
    let unknown = |wanted: &&String| !names.iter().any(|name| name.contains(wanted.as_str()));
    if let Some(unknown) = options.only.iter().find(unknown) {
        return Err(format!("no case {unknown:?}; there are: {}", names.join(", ")).into());
    }
    Ok(Some(options))
}
