//! Traffic Server: `remap.config`, `parent.config`, and the everyday keys of `records.yaml`; and the files that restrict
//! clients or the cache.

mod ip_allow;
mod keys;
mod parent;
mod records;
mod remap;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    conversion::Conversion,
    conversion::Unreadable,
    files::Includes,
    files::InputFile,
    gate::{self, Concern},
    ledger::{Ledger, Outcome, Place, TAKEN, left},
    matchers::narrowed,
    plan::{Plan, Route, Site},
    rows::{self, Described},
    table::{Table, Value},
    units, vocabulary,
};
use parent::Parent;
use remap::Mapping;
pub(crate) use remap::{HARMLESS, OF_THE_CACHE, access_options};

/// The files that are converted, in the order in which they are read.
pub const FILES: [&str; 11] = [
    "ip_allow.yaml",
    "ip_allow.config",
    "plugin.config",
    "cache.config",
    "sni.yaml",
    "records.yaml",
    "records.config",
    "storage.config",
    "ssl_multicert.config",
    "parent.config",
    "remap.config",
];

/// Converts these files; the name of each says which one it is.
///
/// # Errors
/// When a file is not one of [`FILES`], or is no text.
pub fn convert(files: &[InputFile], includes: &dyn Includes) -> Result<Conversion, Unreadable> {
    let mut converter = Converter { pristine_host: false, ..Converter::default() };
    let rank = |file: &&InputFile| FILES.iter().position(|name| is_named(&file.name, name));
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by_key(rank);
    for file in files {
        converter.file(file, includes)?;
    }
    converter.finish();
    Ok(Conversion::new(converter.plan, converter.ledger))
}

/// The fates of keys and lines, for the documentation.
pub fn described() -> Vec<Described> {
    [
        rows::described("records", keys::KEYS),
        rows::described("remap.config", remap::KINDS),
        rows::described("parent.config", parent::FIELDS),
    ]
    .concat()
}

fn is_named(path: &str, name: &str) -> bool {
    path.rsplit(['/', '\\']).next() == Some(name)
}

/// A line of a file, without its comment.
struct Line<'a> {
    place: Place,
    text: &'a str,
}

#[derive(Default)]
pub(crate) struct Converter {
    pub(crate) plan: Plan,
    ledger: Ledger,
    mappings: Vec<Mapping>,
    /// Named filters of `remap.config`, and those that hold for the mappings that follow.
    filters: BTreeMap<String, Vec<String>>,
    active: Vec<String>,
    /// Methods that are refused to everybody.
    refused_methods: Vec<String>,
    parents: Vec<Parent>,
    certificates: Vec<Value>,
    pub(crate) defaults: Table,
    pristine_host: bool,
    has_negative_caching: bool,
    negative_ttl: Option<Value>,
    /// Files that were read.
    files: usize,
}

impl Converter {
    fn enter(&mut self, line: &Line<'_>, outcome: Outcome) {
        self.ledger.enter_line(&line.place, line.text, outcome);
    }

    fn file(&mut self, file: &InputFile, includes: &dyn Includes) -> Result<(), Unreadable> {
        let name: Arc<str> = file.name.as_str().into();
        if let Some(error) = Unreadable::no_text(&name, &file.text) {
            return Err(error);
        }
        let known = FILES.iter().find(|known| is_named(&file.name, known));
        match known.copied() {
            Some("records.yaml") => self.records_yaml(&name, &file.text),
            Some("records.config") => self.each(&name, &file.text, Self::record),
            Some("ip_allow.yaml") => self.ip_allow_yaml(&name, &file.text),
            Some("ip_allow.config") => self.ip_allow_config(&name, &file.text),
            Some("plugin.config") => self.each_about(&name, &file.text, |words| {
                let plugin = words.split_whitespace().next().unwrap_or_default();
                (remap::plugin_concern(plugin), "the plugin is not there")
            }),
            Some("cache.config") => self.each_about(&name, &file.text, |_| {
                (Concern::Storing, "write `ttl`, `no_store` or `cache` of a site or a route")
            }),
            Some("sni.yaml") => self.each_about(&name, &file.text, |line| {
                let key = line.trim_start_matches("- ");
                let closes = ["verify_client", "ip_allow", "host_sni_policy"];
                match closes.iter().any(|start| key.starts_with(start)) {
                    true => (Concern::Access, "write `client_certificates` or `access`"),
                    false => (Concern::Other, "write `listen.tls` and `handshake`"),
                }
            }),
            Some("storage.config") => self.each(&name, &file.text, Self::storage),
            Some("ssl_multicert.config") => self.each(&name, &file.text, Self::certificate),
            Some("parent.config") => self.each(&name, &file.text, Self::parent),
            Some("remap.config") => self.remap(&name, &file.text, includes, 0),
            _ => {
                let message = format!("is none of {}", FILES.join(", "));
                return Err(Unreadable::at(&name, 1, &message));
            }
        }
        Ok(())
    }

    /// Enters each line of a file that is not converted, by what it is about: it holds for all sites.
    fn each_about(
        &mut self,
        name: &Arc<str>,
        text: &str,
        about: fn(&str) -> (Concern, &'static str),
    ) {
        for (number, text) in joined_lines(text) {
            let line = Line { place: Place { file: name.clone(), line: number }, text: &text };
            let (concern, reason) = about(&text);
            self.close(&line, concern, left(reason));
        }
    }

    /// Enters a line; what it restricts holds for all sites.
    fn close(&mut self, line: &Line<'_>, concern: Concern, outcome: Outcome) {
        let outcome = match outcome {
            // Its mapping is closed.
            Err(reason) if reason.contains(gate::REFUSED) => Err(reason),
            outcome => {
                gate::pass_line(concern, &line.place, line.text, outcome, &mut self.defaults)
            }
        };
        self.enter(line, outcome);
    }

    /// Hands over each line that is no comment; a `\` at the end goes on with the next line.
    fn each(&mut self, name: &Arc<str>, text: &str, read: fn(&mut Self, &Line<'_>) -> Outcome) {
        for (number, line) in joined_lines(text) {
            let line = Line { place: Place { file: name.clone(), line: number }, text: &line };
            let outcome = read(self, &line);
            self.close(&line, Self::concern_of_record(line.text), outcome);
        }
    }

    /// `/var/cache/trafficserver 256G`
    fn storage(&mut self, line: &Line<'_>) -> Outcome {
        let (path, size) = line.text.split_once(char::is_whitespace).unwrap_or((line.text, ""));
        if self.plan.cache.has_any(&["disk"]) {
            return left("a node has one directory for its cache");
        }
        let bytes = size.split_whitespace().next().and_then(units::byte_size);
        let bytes = bytes.ok_or("a raw device: the cache of a node is a directory with a size")?;
        let disk = self.plan.cache.inline("disk");
        disk.set("path", path);
        disk.set("size", units::size(bytes.max(16 << 20)));
        TAKEN
    }

    /// `dest_ip=* ssl_cert_name=a.pem ssl_key_name=a.key`
    fn certificate(&mut self, line: &Line<'_>) -> Outcome {
        let value =
            |name: &str| pairs(line.text).find(|(own, _)| own == name).map(|(_, value)| value);
        let (Some(certificate), Some(key)) = (value("ssl_cert_name"), value("ssl_key_name")) else {
            return left("a certificate has a file, and another one with its key");
        };
        let pair = Table::from_iter([("certificate", certificate.into()), ("key", key.into())]);
        let is_default = value("dest_ip").is_some_and(|ip| ip == "*");
        let place = if is_default { 0 } else { self.certificates.len() };
        self.certificates.insert(place, pair.into());
        TAKEN
    }

    /// Sets what two keys decide together.
    pub(crate) fn settle(&mut self) {
        if let (true, Some(time)) = (self.has_negative_caching, self.negative_ttl.take()) {
            self.defaults.set("negative_ttl", time);
        }
    }

    /// A site for each host of the mappings.
    fn finish(&mut self) {
        self.plan.top.set("name", "edge");
        self.settle();
        if self.plan.listen.is_empty() {
            self.plan.listen.push(Table::from_iter([("address", "0.0.0.0:8080".into())]));
        }
        for listen in &mut self.plan.listen {
            if listen.remove("tls").is_some() && !self.certificates.is_empty() {
                listen.set("tls", Value::List(self.certificates.clone()));
            }
        }
        let mut hosts: Vec<String> = Vec::new();
        for mapping in &self.mappings {
            if !hosts.contains(&mapping.host) {
                hosts.push(mapping.host.clone());
            }
        }
        for host in hosts {
            let site = self.site(&host);
            self.plan.sites.extend(site);
        }
    }

    fn site(&mut self, host: &str) -> Option<Site> {
        let mut mappings: Vec<_> =
            self.mappings.iter().filter(|mapping| mapping.host == host).cloned().collect();
        // Redirects are looked at after all mappings.
        mappings.sort_by_key(|mapping| mapping.origin_host.is_none());
        let mut site = Site { comment: mappings.first()?.place.to_string(), ..Site::default() };
        site.table.set("hosts", host);
        site.table.lay_over(self.defaults.clone());
        if !self.refused_methods.is_empty() {
            let methods = Value::from(self.refused_methods.clone());
            let mut table = Table::from_iter([("method", methods)]);
            vocabulary::respond(&mut table, 403, None);
            site.routes.push(Route { comment: "ip_allow".to_owned(), table });
        }
        let mut whole = None;
        for mapping in mappings {
            let mut keys = self.keys(&mapping);
            for refused in &mapping.refused {
                let outcome = match narrowed(&mapping.matchers(), refused) {
                    Some(mut table) => {
                        vocabulary::respond(&mut table, 403, None);
                        site.routes.push(Route { comment: mapping.place.to_string(), table });
                        continue;
                    }
                    None => left("there is no matcher for its methods"),
                };
                let line = Line { place: mapping.place.clone(), text: "filter by methods" };
                let outcome =
                    gate::pass_line(Concern::Access, &line.place, line.text, outcome, &mut keys);
                self.enter(&line, outcome);
            }
            // The first mapping in the file counts: nothing comes after one for the whole host.
            if mapping.path == "/" && mapping.scheme.is_none() {
                whole = Some(keys);
                break;
            }
            let mut table = mapping.matchers();
            table.lay_over(keys);
            site.routes.push(Route { comment: mapping.place.to_string(), table });
        }
        match whole {
            Some(keys) => site.table.lay_over(keys),
            // As Traffic Server answers what no mapping takes.
            None => vocabulary::respond(&mut site.table, 404, None),
        }
        Some(site)
    }

    /// The keys of a mapping; a parent stands in the place of its origin.
    fn keys(&self, mapping: &Mapping) -> Table {
        let mut keys = mapping.keys.clone();
        if keys.has_any(&["access"]) && self.defaults.has_any(&["access"]) {
            let reason = "ip_allow and the filter of the mapping are one list: write it";
            let _ = gate::pass_line(Concern::Access, &mapping.place, "", left(reason), &mut keys);
        }
        if let Some(origin_host) = &mapping.origin_host {
            let name = origin_host.split(':').next().unwrap_or_default();
            if let Some(parent) = self.parents.iter().find(|parent| parent.is_for(name)) {
                keys.remove("origin");
                keys.lay_over(parent.keys());
            }
            if !self.pristine_host {
                keys.set("origin_host", origin_host.as_str());
            }
        }
        keys
    }
}

/// The lines that say something, with their numbers.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            goes_on = false;
            continue;
        }
        let (line, next) =
            line.strip_suffix('\\').map_or((line, false), |line| (line.trim_end(), true));
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => {
                last.push(' ');
                last.push_str(line);
            }
            None => lines.push((index + 1, line.to_owned())),
        }
        goes_on = next;
    }
    lines
}

/// `name=value` and `name="value with spaces"`.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let name_end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let name = rest[..name_end].to_owned();
        let Some(after) = rest[name_end..].strip_prefix('=') else {
            rest = &rest[name_end..];
            return Some((name, String::new()));
        };
        let (value, after) = match after.strip_prefix('"').and_then(|inner| inner.split_once('"')) {
            Some(parts) => parts,
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        rest = after;
        Some((name, value.to_owned()))
    })
}
