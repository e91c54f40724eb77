//! The sources of members: one kind each, with names of their own, which exist where they are used.

use std::{net::IpAddr, sync::Arc};

use levada_discovery::{DiscoverySettings, DnsSource, FileSource, NamedSource, Source, SrvSource};
use levada_types::document::{Path, did_you_mean};
use levada_types::format_duration;

use super::Check;
use crate::{
    file,
    text::{NodeName, Upstream},
};

/// The keys that say where members are to be found.
const KINDS: [&str; 5] = ["dns", "srv", "file", "etcd", "kubernetes"];

impl Check<'_, '_> {
    pub(super) fn discovery(&mut self) -> Option<DiscoverySettings> {
        let resolver = &self.file.resolver;
        if resolver.min_ttl > resolver.max_ttl {
            let path = self.root.key("resolver").key("min_ttl");
            let message = format!("is more than `max_ttl`, {}", format_duration(resolver.max_ttl));
            self.error(&path, message);
        }
        let list = self.root.key("discovery");
        let mut sources = Vec::new();
        let mut registration = None;
        for (position, table) in self.file.discovery.iter().enumerate() {
            let path = list.index(position);
            let before = &self.file.discovery[..position];
            if let Some(name) = &table.name
                && let Some(other) = before.iter().position(|t| t.name.as_ref() == Some(name))
            {
                let message = format!("{:?} is the name of discovery[{other}] already", name.0);
                self.error(&path.key("name"), message);
            }
            let source = self.source(table, &path);
            if let Some(Source::Etcd(etcd)) = source.as_ref().map(|named| &named.source) {
                registration = registration.or(self.registration(table, etcd, &path.key("etcd")));
            }
            sources.push(source);
        }
        let sources = sources.into_iter().collect::<Option<_>>()?;
        Some(DiscoverySettings { resolver: resolver.clone(), sources, registration })
    }

    fn source(&mut self, table: &file::Discovery, path: &Path) -> Option<NamedSource> {
        let given: Vec<_> =
            KINDS.into_iter().filter(|kind| self.findings.has(&path.key(*kind))).collect();
        match given[..] {
            [] => {
                self.error(path, format!("names no source: it needs one of {}", KINDS.join(", ")))
                    .help("for example `dns = \"app.internal:8000\"`");
                return None;
            }
            [one, other, ..] => {
                let message = format!("stands beside `{one}`: a source has one kind");
                self.error(&path.key(other), message)
                    .help("write a `[[discovery]]` table for each");
                return None;
            }
            [_] => {}
        }
        if let Some(NodeName(name)) = &table.name
            && name.bytes().all(|b| b.is_ascii_digit())
        {
            let message = "has digits only, and would be a port in `http://discovery:NAME`";
            self.error(&path.key("name"), message);
        }
        if table.resolver.is_some() && table.dns.is_none() && table.srv.is_none() {
            self.warning(&path.key("resolver"), "has no effect without `dns` or `srv`");
        }
        let source = self.kind(table, path)?;
        Some(NamedSource { name: table.name.as_ref()?.0.as_str().into(), source })
    }

    fn kind(&mut self, table: &file::Discovery, path: &Path) -> Option<Source> {
        let resolver = table.resolver.map(|address| address.0);
        if let Some(dns) = &table.dns {
            let (host, port) = host_and_port(&dns.0);
            if host.parse::<IpAddr>().is_ok() {
                let message = format!("{host} is an address, which needs no source");
                self.error(&path.key("dns"), message)
                    .help("write the address where the server is named");
                return None;
            }
            self.name(&host, &path.key("dns"))?;
            return Some(Source::Dns(DnsSource { host: lower(&host), port, resolver }));
        }
        if let Some(srv) = &table.srv {
            self.name(srv, &path.key("srv"))?;
            return Some(Source::Srv(SrvSource { name: lower(srv), resolver }));
        }
        if let Some(etcd) = &table.etcd {
            return self.etcd(etcd, &path.key("etcd")).map(Source::Etcd);
        }
        if let Some(kubernetes) = &table.kubernetes {
            return self.kubernetes(kubernetes, &path.key("kubernetes")).map(Source::Kubernetes);
        }
        let given = table.file.as_ref()?;
        let file = self.in_existing_directory(given, &path.key("file"))?;
        if !file.exists() {
            let message = format!("there is no file {} now", file.display());
            let help = "it may also be written later; until then the source has no members";
            self.warning(&path.key("file"), message).help(help);
        }
        Some(Source::File(FileSource { path: file }))
    }

    /// Checks that DNS can be asked for a name.
    fn name(&mut self, name: &str, path: &Path) -> Option<()> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
        let bare = name.strip_suffix('.').unwrap_or(name);
        if bare.len() <= 253 && bare.split('.').all(label) {
            return Some(());
        }
        let message = format!("{name:?} is no name that DNS can be asked for");
        let help = "labels of at most 63 letters, digits, `-` and `_`, with dots between them";
        self.error(path, message).help(help).none()
    }

    /// Checks that a server's source exists, if it is to come from one.
    pub(super) fn source_is_there(&mut self, server: &Upstream, path: &Path) {
        if let Upstream::Discovery { source, .. } = server {
            self.names_a_source(source, path);
        }
    }

    pub(super) fn names_a_source(&mut self, source: &str, path: &Path) {
        let names = || self.file.discovery.iter().filter_map(|t| Some(t.name.as_ref()?.0.as_str()));
        if names().any(|name| name == source) {
            return;
        }
        // The name of a table may be what could not be read.
        if self.file.discovery.iter().any(|table| table.name.is_none()) {
            return;
        }
        self.error(path, format!("no `[[discovery]]` has the name {source:?}")).help(
            did_you_mean(source, names()).unwrap_or_else(|| match names().next() {
                None => format!("add a `[[discovery]]` table with `name = \"{source}\"`"),
                Some(_) => format!("there is: {}", names().collect::<Vec<_>>().join(", ")),
            }),
        );
    }
}

/// DNS compares names without regard to case.
fn lower(name: &str) -> Arc<str> {
    name.to_ascii_lowercase().into()
}

/// The two parts of `host:port`, which was checked when the file was read.
fn host_and_port(address: &str) -> (String, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host.to_owned(), port.parse().unwrap_or(0))
}
