//! Figures of finished candidates in a file, so that a plan which was interrupted goes on.
//!
//! ```text
//! levada plan results 1 INPUTS
//! KEY CHECK { hit = { mean = 0.91, ... }, ... }
//! ```
//!
//! INPUTS is a hash of all that the candidates have in common, KEY one of a candidate's runs, CHECK one of the line.
//! A line that was cut off, as by a crash, is written again.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use levada_curves::CurveReport;
use levada_sim::scenario_file::{SIMULATOR, run_key};
use levada_types::hash64;

use crate::{
    evaluate::{Candidate, Figures, Surroundings, scenarios},
    peak::Load,
};

const FORMAT: &str = "levada plan results 1";

/// The figures of candidates that are known; those of a file among them, if there is one.
pub(crate) struct Finished {
    known: HashMap<String, Figures>,
    file: Option<(PathBuf, File)>,
}

impl Finished {
    /// The results of `file`, which is created if there is none.
    ///
    /// # Errors
    /// If the file has something else, other inputs, or is damaged; with the remedy.
    pub(crate) fn open(file: Option<&Path>, inputs: &str) -> anyhow::Result<Self> {
        let Some(path) = file else { return Ok(Self { known: HashMap::new(), file: None }) };
        let cannot = || format!("cannot write {}", path.display());
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true);
        let mut file = options.open(path).with_context(cannot)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
        let head = format!("{FORMAT} {inputs}\n");
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole == 0 && head.as_bytes().starts_with(&bytes) {
            // It is new, or its first line was cut off.
            file.set_len(0).with_context(cannot)?;
            file.write_all(head.as_bytes()).with_context(cannot)?;
            return Ok(Self { known: HashMap::new(), file: Some((path.to_owned(), file)) });
        }
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let mut lines = text.lines();
        match lines.next() {
            Some(first) if first == head.trim_end() => {}
            Some(first) if first.starts_with(FORMAT) => bail!(
                "{} has results for other logs, costs or options, or of another version: give --resume another file, or remove it",
                path.display()
            ),
            _ => bail!(
                "{} is no file of --resume: give another name, under which one is written",
                path.display()
            ),
        }
        let known = lines.enumerate().map(|(at, line)| {
            read(line).with_context(|| {
                format!(
                    "line {} of {} is damaged: remove it, and its candidate is simulated again",
                    at + 2,
                    path.display()
                )
            })
        });
        let known = known.collect::<anyhow::Result<_>>()?;
        file.set_len(whole as u64).with_context(cannot)?;
        Ok(Self { known, file: Some((path.to_owned(), file)) })
    }

    /// The figures of a candidate, if they are known.
    pub(crate) fn get(&self, key: &str) -> Option<Figures> {
        self.known.get(key).copied()
    }

    /// Keeps the figures of a candidate.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn keep(&mut self, key: String, figures: Figures) -> anyhow::Result<()> {
        if let Some((path, file)) = &mut self.file {
            let text = toml::Value::try_from(figures)?.to_string();
            let line = format!("{key} {} {text}\n", check(&key, &text));
            file.write_all(line.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.known.insert(key, figures);
        Ok(())
    }
}

fn read(line: &str) -> Option<(String, Figures)> {
    #[derive(serde::Deserialize)]
    struct Row {
        figures: Figures,
    }
    let mut parts = line.splitn(3, ' ');
    let (key, stated, text) = (parts.next()?, parts.next()?, parts.next()?);
    let row: Row = toml::from_str(&format!("figures = {text}")).ok()?;
    (check(key, text) == stated).then(|| (key.to_owned(), row.figures))
}

fn check(key: &str, text: &str) -> String {
    format!("{:016x}", hash64(format!("{key} {text}").as_bytes()))
}

/// A hash of all that candidates have in common: requests, costs, and the code of the simulator.
pub(crate) fn inputs(loads: &[(Load, CurveReport)], around: &Surroundings) -> String {
    let mut text = format!("{} {SIMULATOR} {around:?}", env!("CARGO_PKG_VERSION"));
    for (load, _) in loads {
        let (trace, warm, rate) = (&load.trace, load.warm, load.rate);
        let requests: Vec<u8> = trace.requests().iter().flat_map(|id| id.to_le_bytes()).collect();
        let times = trace.times().unwrap_or_default().iter();
        let times: Vec<u8> = times.flat_map(|time| time.0.to_le_bytes()).collect();
        let objects = trace.objects().iter();
        let objects: String =
            objects.map(|object| format!("{} {}\n", object.name, object.size)).collect();
        let hashes = [&requests[..], &times, objects.as_bytes()].map(hash64);
        text += &format!(" {} {warm} {rate} {hashes:x?}", load.model);
    }
    format!("{:016x}", hash64(text.as_bytes()))
}

/// The key of a candidate: a hash of the keys of its runs.
pub(crate) fn key(
    candidate: &Candidate,
    loads: &[(Load, CurveReport)],
    around: &Surroundings,
) -> String {
    let runs: String =
        scenarios(candidate, loads, around).map(|(_, _, run)| run_key(&run)).collect();
    format!("{:016x}", hash64(runs.as_bytes()))
}
