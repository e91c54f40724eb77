//! Members are the keys with a prefix in etcd: a lease that expires takes its member along.
//!
//! A list first, then a watch from the list's revision. Whatever ends the watch (a server that stops, a leader
//! that is lost, a compaction) leads to another list, from the next server.

mod client;
mod registration;

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use tokio::time::timeout;

pub use self::client::{Change, Etcd, Event, KeyValue, Listing, Quality, Watch, WatchError};
pub use self::registration::{Leave, NameState, register};
use crate::{Endpoint, EtcdSource, Member, Report, api::ApiError, backoff::Pauses};

/// A watch without news for so long is replaced by a list, since its server may hang.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reports the members of a prefix. It never returns.
pub(crate) async fn follow(source: &EtcdSource, report: &Report) {
    let mut members = Members { prefix: &source.prefix, known: None };
    let mut pauses = Pauses::new();
    // Servers that failed one after the other.
    let mut failed = 0;
    for endpoint in source.endpoints.iter().cycle() {
        let Err(error) = follow_server(source, endpoint, &mut members, &mut failed, report).await;
        tracing::debug!(%endpoint, %error, "asks another server of etcd");
        failed += 1;
        if failed >= source.endpoints.len() {
            if members.known.is_none() {
                read_without_majority(source, &mut members, report).await;
            }
            report.failed(format!("{endpoint}: {error}"));
        }
        pauses.pause().await;
    }
    // Without endpoints, which the configuration refuses.
    std::future::pending().await
}

/// Lists and watches by one server until that fails.
async fn follow_server(
    source: &EtcdSource,
    endpoint: &Endpoint,
    members: &mut Members<'_>,
    failed: &mut usize,
    report: &Report,
) -> Result<Infallible, WatchError> {
    let etcd = Etcd::new(source, endpoint, Quality::Agreed).await?;
    loop {
        let revision = members.list(&etcd).await?;
        report.members(members.all());
        *failed = 0;
        let mut watch = etcd.watch(&source.prefix, revision + 1).await?;
        while let Ok(events) = timeout(SILENCE_TIMEOUT, watch.next()).await {
            for event in events? {
                members.change(event);
            }
            report.members(members.all());
        }
    }
}

/// A node that starts while etcd has no majority takes the members that any server knows: they may be outdated,
/// but without them it would serve nothing.
async fn read_without_majority(source: &EtcdSource, members: &mut Members<'_>, report: &Report) {
    for endpoint in &source.endpoints {
        let listed: Result<i64, ApiError> =
            async { members.list(&Etcd::new(source, endpoint, Quality::Known).await?).await }.await;
        if listed.is_ok() {
            return report.members(members.all());
        }
    }
}

/// The members by name, as the keys have them.
struct Members<'a> {
    prefix: &'a str,
    /// `None` before the first list.
    known: Option<BTreeMap<String, Member>>,
}

impl Members<'_> {
    /// Reads all of them; the revision of the list.
    async fn list(&mut self, etcd: &Etcd) -> Result<i64, ApiError> {
        let listing = etcd.list(self.prefix).await?;
        let mut before = self.known.take().unwrap_or_default();
        let mut listed = BTreeMap::new();
        for pair in listing.keys {
            let Some(name) = self.name(&pair.key) else { continue };
            // A value that cannot be read does not remove a member.
            if let Some(member) = member(&name, &pair).or_else(|| before.remove(&name)) {
                listed.insert(name, member);
            }
        }
        self.known = Some(listed);
        Ok(listing.revision)
    }

    fn change(&mut self, event: Event) {
        let key = match &event {
            Event::Put(KeyValue { key, .. }) | Event::Delete(key) => key,
        };
        let Some(name) = self.name(key) else { return };
        let known = self.known.get_or_insert_default();
        match event {
            Event::Put(pair) => {
                if let Some(member) = member(&name, &pair) {
                    known.insert(name, member);
                }
            }
            Event::Delete(_) => drop(known.remove(&name)),
        }
    }

    /// The rest of a key behind the prefix.
    fn name(&self, key: &[u8]) -> Option<String> {
        let name = std::str::from_utf8(key).ok()?.strip_prefix(self.prefix)?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    fn all(&self) -> Vec<Member> {
        self.known.iter().flatten().map(|(_, member)| member.clone()).collect()
    }
}

fn member(name: &str, pair: &KeyValue) -> Option<Member> {
    let read = value::read(name, &pair.value);
    if let Err(why) = &read {
        let value = String::from_utf8_lossy(&pair.value);
        tracing::warn!(key = name, %value, %why, "a key in etcd does not name a member");
    }
    read.ok()
}

mod value {
    //! The value of a key: `10.0.0.1:80`, or `{"address": "10.0.0.1:80", "weight": 2, "region": "eu"}`.

    use std::{net::SocketAddr, ops::RangeInclusive};

    use serde::{Deserialize, Serialize};

    use crate::Member;

    /// Why a value is no member.
    #[derive(Debug, thiserror::Error)]
    pub(super) enum ValueError {
        #[error("it is neither an IP address and a port, such as 10.0.0.1:80, nor such JSON: {0}")]
        Json(#[from] serde_json::Error),
        #[error("its weight is not from 0.001 to 1000")]
        Weight,
    }

    #[derive(Deserialize, Serialize)]
    struct Value {
        // etcd's own library for clients writes `Addr`.
        #[serde(alias = "Addr")]
        address: SocketAddr,
        #[serde(default = "usual")]
        weight: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    }

    const WEIGHTS: RangeInclusive<f64> = 0.001..=1000.0;

    fn usual() -> f64 {
        1.0
    }

    pub(super) fn read(name: &str, text: &[u8]) -> Result<Member, ValueError> {
        let plain = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        let value = match plain {
            Some(address) => Value { address, weight: usual(), region: None },
            None => serde_json::from_slice(text)?,
        };
        if !WEIGHTS.contains(&value.weight) {
            return Err(ValueError::Weight);
        }
        let region = value.region.filter(|region| !region.is_empty()).map(Into::into);
        Ok(Member { weight: value.weight, region, ..Member::new(name, value.address) })
    }

    pub(super) fn write(member: &Member) -> Vec<u8> {
        let (address, weight) = (member.address, member.weight);
        let value = Value { address, weight, region: member.region.as_deref().map(str::to_owned) };
        serde_json::to_vec(&value).unwrap_or_default()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn written(text: &str) -> Result<(String, f64), String> {
            let read = read("a", text.as_bytes()).map_err(|error| error.to_string());
            read.map(|member| (member.address.to_string(), member.weight))
        }

        #[test]
        fn value_is_an_address_or_json() {
            assert_eq!(written("10.0.0.1:80"), Ok(("10.0.0.1:80".to_owned(), 1.0)));
            assert_eq!(written("[::1]:80\n"), Ok(("[::1]:80".to_owned(), 1.0)));
            let json = r#"{"address": "10.0.0.1:80", "weight": 2.5, "zone": "x"}"#;
            assert_eq!(written(json), Ok(("10.0.0.1:80".to_owned(), 2.5)));
            let of_etcd = r#"{"Op":0,"Addr":"10.0.0.1:80","Metadata":null}"#;
            assert_eq!(written(of_etcd), Ok(("10.0.0.1:80".to_owned(), 1.0)));
        }

        #[test]
        fn other_values_are_refused() {
            for wrong in ["", "a", "10.0.0.1", "web-1:80", "{}", r#"{"address": "web-1:80"}"#] {
                assert!(written(wrong).unwrap_err().contains("IP address and a port"), "{wrong}");
            }
            for weight in ["0", "-1", "1e9"] {
                let json = format!(r#"{{"address": "10.0.0.1:80", "weight": {weight}}}"#);
                assert!(written(&json).unwrap_err().contains("weight"), "{weight}");
            }
        }

        #[test]
        fn registration_is_read_as_it_was_written() {
            let mut member = Member::new("a", "[2001:db8::1]:7070".parse().unwrap());
            member.weight = 3.5;
            for region in [None, Some("eu".into())] {
                member.region = region;
                assert_eq!(read("a", &write(&member)).unwrap(), member);
            }
        }
    }
}
