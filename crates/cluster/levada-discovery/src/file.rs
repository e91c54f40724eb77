//! The targets of a watched file as members, in the format of Prometheus' `file_sd`.
//!
//! The file is looked at each second. One that cannot be read or parsed changes nothing, and is read again until
//! it can.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Deserialize;
use tokio::task::JoinSet;

use crate::{
    FileSource, FileVersion, Member, Report,
    resolver::{Answer, FILES_INTERVAL, Resolvers, Resolving},
};

/// The wait before a name without an answer is asked for again.
const RETRY_BACKOFF: Duration = Duration::from_secs(10);
/// The largest file that is read.
const MOST: u64 = 64 << 20;

/// One group of targets.
#[derive(Debug, Deserialize)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// One target, before its host is resolved.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    name: Arc<str>,
    host: Arc<str>,
    port: u16,
    weight: f64,
    priority: u16,
    region: Option<Arc<str>>,
}

/// Follows the targets of a file.
pub(crate) async fn follow(source: &FileSource, resolvers: &Resolvers, report: &Report) {
    let mut read: Option<(FileVersion, Vec<Target>)> = None;
    let mut names = Names::default();
    let view = resolvers.follow();
    loop {
        match look(&source.path, read.as_ref().map(|(version, _)| *version)).await {
            Ok(newer) => {
                read = newer.or(read);
                let targets = read.as_ref().map_or(&[][..], |(_, targets)| targets);
                match names.members(targets, &view.now()).await {
                    Ok(members) => report.members(members),
                    Err(reason) => report.failed(reason),
                }
            }
            Err(reason) => {
                read = read.map(|(_, targets)| (FileVersion::default(), targets));
                report.failed(reason);
            }
        }
        tokio::time::sleep(FILES_INTERVAL).await;
    }
}

/// The targets of the file, if it is another one than the one known.
async fn look(
    path: &Path,
    known: Option<FileVersion>,
) -> Result<Option<(FileVersion, Vec<Target>)>, String> {
    let path = path.to_owned();
    let looking = tokio::task::spawn_blocking(move || {
        let unreadable = |error: io::Error| format!("{} cannot be read: {error}", path.display());
        let version = FileVersion::of(&path).map_err(unreadable)?;
        if known == Some(version) && !version.is_recent() {
            return Ok(None);
        }
        if version.size > MOST {
            return Err(format!("{} has more than {MOST} bytes", path.display()));
        }
        let text = fs::read(&path).map_err(unreadable)?;
        let targets = parse(&text).map_err(|reason| format!("{}: {reason}", path.display()))?;
        Ok(Some((version, targets)))
    });
    looking.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Reads the groups of targets.
fn parse(text: &[u8]) -> Result<Vec<Target>, String> {
    let groups: Vec<Group> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let (mut targets, mut taken) = (Vec::new(), BTreeSet::new());
    for group in &groups {
        for text in &group.targets {
            let target = target(text, group)?;
            if !taken.insert(target.name.clone()) {
                return Err(format!("two targets are called {:?}", target.name));
            }
            targets.push(target);
        }
    }
    Ok(targets)
}

fn target(text: &str, group: &Group) -> Result<Target, String> {
    let wrong = || format!("{text:?} is no target: write host:port");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    if host.is_empty() || (bare.is_none() && host.contains([':', '/', ' '])) {
        return Err(wrong());
    }
    let name = match group.labels.get("name") {
        Some(name) if group.targets.len() == 1 && !name.is_empty() => name.as_str(),
        Some(name) => return Err(format!("the name {name:?} needs a group of one target")),
        None => text,
    };
    let weight = match group.labels.get("weight") {
        None => 1.0,
        Some(weight) => match weight.parse() {
            Ok(weight) if (0.001..=1000.0).contains(&weight) => weight,
            _ => return Err(format!("the weight of {text} is {weight:?}: write 0.001 to 1000")),
        },
    };
    let priority = match group.labels.get("priority").map(|text| text.parse()) {
        None => 0,
        Some(Ok(priority)) => priority,
        Some(Err(_)) => return Err(format!("the priority of {text} is no number up to 65535")),
    };
    let host = bare.unwrap_or(host).into();
    let region = group.labels.get("region").filter(|region| !region.is_empty());
    let region = region.map(|region| region.as_str().into());
    Ok(Target { name: name.into(), host, port, weight, priority, region })
}

/// The addresses of the hosts that are names.
#[derive(Default)]
struct Names(BTreeMap<Arc<str>, KnownName>);

#[derive(Clone, Default)]
struct KnownName {
    addresses: BTreeSet<IpAddr>,
    /// When it is asked for again; `None`: at once.
    due: Option<Instant>,
}

impl Names {
    /// The members that the targets stand for.
    async fn members(
        &mut self,
        targets: &[Target],
        resolving: &Arc<Resolving>,
    ) -> Result<Vec<Member>, String> {
        let hosts = targets.iter().filter(|target| target.host.parse::<IpAddr>().is_err());
        let hosts: BTreeSet<Arc<str>> = hosts.map(|target| target.host.clone()).collect();
        self.0.retain(|host, _| hosts.contains(host));
        let failure = self.resolve(hosts, resolving).await?;
        let members: Vec<_> = targets.iter().flat_map(|target| self.of(target)).collect();
        match failure {
            Some(reason) if members.is_empty() => Err(reason),
            _ => Ok(members),
        }
    }

    /// Asks for the names whose time has come. Returns the reason why one of them has no answer.
    async fn resolve(
        &mut self,
        hosts: BTreeSet<Arc<str>>,
        resolving: &Arc<Resolving>,
    ) -> Result<Option<String>, String> {
        let now = Instant::now();
        let mut asking = JoinSet::new();
        for host in hosts {
            let known = self.0.entry(host.clone()).or_default().clone();
            if known.due.is_some_and(|due| due > now) {
                continue;
            }
            let (resolving, resolver) = (resolving.clone(), resolving.of(None)?);
            asking.spawn(async move {
                let answer = resolving.addresses(&resolver, &host, &known.addresses).await;
                (host, known.addresses, answer)
            });
        }
        let mut failure = None;
        while let Some(Ok((host, before, answer))) = asking.join_next().await {
            let (addresses, ttl) = match answer {
                Ok(Answer { found, ttl }) => (found, ttl),
                Err(no) => {
                    failure = Some(format!("{host}: {}", no.into_reason()));
                    (before, RETRY_BACKOFF)
                }
            };
            let due = Some(Instant::now() + resolving.wait(ttl));
            self.0.insert(host, KnownName { addresses, due });
        }
        Ok(failure)
    }

    fn of(&self, target: &Target) -> Vec<Member> {
        let member = |name: Arc<str>, ip, host| Member {
            weight: target.weight,
            priority: target.priority,
            region: target.region.clone(),
            host,
            ..Member::new(name, SocketAddr::new(ip, target.port))
        };
        if let Ok(ip) = target.host.parse() {
            return vec![member(target.name.clone(), ip, None)];
        }
        let addresses = self.0.get(&target.host).map(|known| &known.addresses);
        let (all, host) = (addresses.into_iter().flatten(), Some(target.host.clone()));
        if addresses.is_some_and(|all| all.len() == 1) {
            return all.map(|ip| member(target.name.clone(), *ip, host.clone())).collect();
        }
        let named = |ip: &IpAddr| format!("{}/{ip}", target.name).into();
        all.map(|ip| member(named(ip), *ip, host.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Target>, String> {
        parse(text.as_bytes())
    }

    #[test]
    fn file_of_prometheus_is_read() {
        let text = r#"[
            {"targets": ["10.0.0.1:80", "[::1]:81"], "labels": {"env": "prod", "weight": "2"}},
            {"targets": ["b.example:82"], "labels": {"name": "b", "priority": "1", "region": "eu"}},
            {"targets": []}
        ]"#;
        let seen: Vec<_> = parsed(text).unwrap();
        let regions: Vec<_> = seen.iter().map(|target| target.region.as_deref()).collect();
        assert_eq!(regions, [None, None, Some("eu")]);
        let seen: Vec<_> =
            seen.iter().map(|t| (&*t.name, &*t.host, t.port, t.weight, t.priority)).collect();
        assert_eq!(
            seen,
            [
                ("10.0.0.1:80", "10.0.0.1", 80, 2.0, 0),
                ("[::1]:81", "::1", 81, 2.0, 0),
                ("b", "b.example", 82, 1.0, 1),
            ]
        );
    }

    #[test]
    fn file_with_a_mistake_says_what_it_is() {
        for (text, reason) in [
            (r#"[{"targets": ["10.0.0.1:80"#, "EOF while parsing"),
            (r#"{"targets": []}"#, "invalid type: map"),
            (r#"[{"targets": ["10.0.0.1"]}]"#, "is no target: write host:port"),
            (r#"[{"targets": ["10.0.0.1:0"]}]"#, "is no target"),
            (r#"[{"targets": ["http://a:80"]}]"#, "is no target"),
            (r#"[{"targets": ["::1:80"]}]"#, "is no target"),
            (r#"[{"targets": ["a:80", "a:80"]}]"#, "two targets are called"),
            (r#"[{"targets": ["a:80"], "labels": {"weight": "0"}}]"#, "write 0.001 to 1000"),
            (r#"[{"targets": ["a:80"], "labels": {"weight": "NaN"}}]"#, "write 0.001 to 1000"),
            (r#"[{"targets": ["a:80"], "labels": {"priority": "-1"}}]"#, "no number up to 65535"),
            (r#"[{"targets": ["a:80", "b:80"], "labels": {"name": "x"}}]"#, "group of one target"),
        ] {
            let said = parsed(text).unwrap_err();
            assert!(said.contains(reason), "{text}: {said}");
        }
    }
}
