//! The lines of `records.yaml` and `records.config`.

use std::sync::Arc;

use super::{Converter, Line};
use crate::{
    gate::Concern,
    ledger::{Outcome, Place, left, needless},
};

impl Converter {
    /// `CONFIG proxy.config.http.server_ports STRING 80 443:ssl`
    pub(super) fn record(&mut self, line: &Line<'_>) -> Outcome {
        let mut words = line.text.split_whitespace();
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let value = words.skip(1).collect::<Vec<_>>().join(" ");
        let name = name.strip_prefix("proxy.config.").or_else(|| name.strip_prefix("proxy."));
        match (kind, name) {
            ("CONFIG" | "LOCAL", Some(name)) => self.key(name, &value),
            _ => left("is no line of this file"),
        }
    }

    /// The subject of a line of `records.config`; lines of other files have no key.
    pub(super) fn concern_of_record(line: &str) -> Concern {
        let mut words = line.split_whitespace().skip(1);
        let (name, value) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        name.strip_prefix("proxy.config.").map_or(Concern::Other, |name| Self::concern(name, value))
    }

    /// Keys below each other by their indentation; the first two words of a name are left out in this form.
    pub(super) fn records_yaml(&mut self, name: &Arc<str>, text: &str) {
        let mut above: Vec<(usize, String)> = Vec::new();
        let mut sections = Vec::new();
        for (index, whole) in text.lines().enumerate() {
            let text = whole.split(" #").next().unwrap_or_default().trim_end();
            let trimmed = text.trim_start();
            if trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "---" {
                continue;
            }
            let depth = text.len() - trimmed.len();
            let place = Place { file: name.clone(), line: index + 1 };
            let line = Line { place, text: trimmed };
            self.enter_empty(&mut sections, depth);
            let Some((key, value)) = trimmed.split_once(':') else {
                self.enter(&line, left("lists are not read"));
                continue;
            };
            above.retain(|(own, _)| *own < depth);
            let path: Vec<_> = above.iter().map(|(_, key)| key.as_str()).chain([key]).collect();
            let full = path.join(".");
            let value = value.trim().trim_matches(['"', '\'']).to_owned();
            if value.is_empty() {
                above.push((depth, key.to_owned()));
                sections.push((depth, line));
                continue;
            }
            let setting = full.trim_start_matches("records.").trim_start_matches("ts.");
            let outcome = self.key(setting, &value);
            self.close(&line, Self::concern(setting, &value), outcome);
        }
        self.enter_empty(&mut sections, 0);
    }

    /// Enters the last key without a value if nothing stands below it; otherwise it is the name of a section.
    fn enter_empty(&mut self, sections: &mut Vec<(usize, Line<'_>)>, depth: usize) {
        if let Some((_, line)) = sections.pop().filter(|(own, _)| *own >= depth) {
            self.enter(&line, needless("the key has no value"));
        }
    }
}
