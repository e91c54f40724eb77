//! The sources of a site's origins, or of the servers of its switch, and the members that they stand for.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use levada_discovery::{Discovery, DiscoverySettings, DnsSource, Followed, Member, Source};
use levada_upstream::Origin;

use crate::{FoundBy, SwitchServer, SwitchSettings};

/// The sources of a list of servers: one place for each server of the configuration, `None` where that is a
/// server as it stands.
#[derive(Clone, Default)]
pub struct Sources(Vec<Option<Arc<Followed>>>);

/// A server of the configuration, or a member that a source has named in its place.
pub struct Found {
    /// Its address.
    pub origin: Origin,
    /// Its name in its source, if a source has named it.
    pub name: Option<Arc<str>>,
    /// Its capacity, relative to the other members.
    pub weight: f64,
    /// Members of a higher number get requests only while none of a lower number is up.
    pub priority: u16,
    /// The source that has named it.
    pub source: Option<Arc<str>>,
}

impl Sources {
    /// Follows the sources of these servers.
    pub fn follow<'a>(
        servers: impl Iterator<Item = &'a Origin>,
        settings: &DiscoverySettings,
        discovery: &Discovery,
    ) -> Self {
        let follow = |origin: &Origin| {
            let (source, label) = source_of(origin, settings)?;
            Some(discovery.follow(&source, &label))
        };
        Self(servers.map(follow).collect())
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Whether any of them is one of `changed`.
    pub fn are_among(&self, changed: &[Source]) -> bool {
        self.0.iter().flatten().any(|followed| changed.contains(followed.source()))
    }

    /// Why a source has named no member, if there is one that has not.
    pub fn silence(&self) -> Option<String> {
        self.0.iter().flatten().find_map(|followed| followed.silence())
    }

    /// The members in the places of these servers, each list for one of them.
    pub fn found<'a>(&self, servers: impl Iterator<Item = &'a Origin>) -> Vec<Vec<Found>> {
        let places = self.0.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        servers.zip(places).map(|(origin, followed)| found(origin, followed)).collect()
    }

    /// The settings of a switch with all members in the places of its servers.
    pub fn servers(&self, settings: &SwitchSettings) -> SwitchSettings {
        let found = self.found(settings.servers.iter().map(|server| &server.origin));
        let mut servers = Vec::with_capacity(settings.servers.len());
        for (place, (server, found)) in settings.servers.iter().zip(found).enumerate() {
            servers.extend(found.into_iter().map(|found| member(server, place, found)));
        }
        SwitchSettings { servers, ..settings.clone() }
    }
}

fn member(server: &SwitchServer, place: usize, found: Found) -> SwitchServer {
    let Found { origin, name, weight, priority, source } = found;
    match (name, source) {
        (Some(name), Some(source)) => SwitchServer {
            name: format!("{}/{name}", server.name),
            origin,
            weight: server.weight * weight,
            found: Some(FoundBy { source, place, priority }),
            ..server.clone()
        },
        _ => server.clone(),
    }
}

/// The source that a server of the configuration stands for, with its name for operators.
fn source_of(origin: &Origin, settings: &DiscoverySettings) -> Option<(Source, String)> {
    match origin {
        Origin::Tcp { host, .. } if host.parse::<IpAddr>().is_ok() => None,
        Origin::Tcp { host, port, .. } => {
            let host: Arc<str> = host.to_ascii_lowercase().into();
            let label = format!("{host}:{port}");
            Some((Source::Dns(DnsSource { host, port: *port, resolver: None }), label))
        }
        Origin::Discovered { source, .. } => {
            let named = settings.sources.iter().find(|named| named.name == *source)?;
            Some((named.source.clone(), named.name.to_string()))
        }
        Origin::Unix(_) | Origin::Member { .. } => None,
    }
}

fn found(origin: &Origin, followed: Option<&Arc<Followed>>) -> Vec<Found> {
    let Some(followed) = followed else {
        let origin = origin.clone();
        return vec![Found { origin, name: None, weight: 1.0, priority: 0, source: None }];
    };
    let source: Arc<str> = followed.label().into();
    let all = followed.members();
    let found = |member: &Member| Found {
        origin: reached(origin, member),
        name: Some(member.name.clone()),
        weight: member.weight,
        priority: member.priority,
        source: Some(source.clone()),
    };
    all.iter().map(found).collect()
}

/// The address of a member, by the name that the configuration or its source says.
fn reached(origin: &Origin, member: &Member) -> Origin {
    let at: SocketAddr = member.address;
    match origin {
        Origin::Tcp { tls, host, port } => {
            Origin::Member { tls: *tls, host: host.as_str().into(), port: *port, at }
        }
        origin => {
            let tls = matches!(origin, Origin::Discovered { tls: true, .. });
            let host = member.host.clone().unwrap_or_else(|| at.ip().to_string().into());
            Origin::Member { tls, host, port: at.port(), at }
        }
    }
}
