//! The servers of a service as members: records SRV (RFC 2782), and the addresses of their targets.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    proto::rr::{Name, RData, RecordType, rdata::SRV},
};
use tokio::task::JoinSet;

use crate::{
    Member, Report, SrvSource,
    resolver::{Answer, NoAnswer, Resolvers, Resolving, Rounds, data},
};

/// The addresses of the targets.
type Targets = BTreeMap<Name, BTreeSet<IpAddr>>;

/// The weight of a record with weight 0 among others: a very small chance (RFC 2782).
const LEAST_WEIGHT: f64 = 0.01;

/// Follows the servers of a service.
pub(crate) async fn follow(source: &SrvSource, resolvers: &Resolvers, report: &Report) {
    let mut rounds = Rounds::new(resolvers);
    let mut known = Targets::new();
    loop {
        let asked = ask(source, &rounds.resolving(), &mut known).await;
        rounds.end(asked, report).await;
    }
}

async fn ask(
    source: &SrvSource,
    resolving: &Arc<Resolving>,
    known: &mut Targets,
) -> Result<Answer<Vec<Member>>, String> {
    let resolver = resolving.of(source.resolver)?;
    let name: Name = source.name.parse().map_err(|_| "it is no name".to_owned())?;
    let answer = resolving.ask(&resolver, name, RecordType::SRV).await;
    let answer = answer.map_err(NoAnswer::into_reason)?;
    let records: Vec<SRV> = data(&answer.found)
        .filter_map(|data| match data {
            // A single dot says that there is no such service.
            RData::SRV(record) if !record.target.is_root() => Some(record.clone()),
            _ => None,
        })
        .collect();
    let (targets, ttl) = targets(&records, resolving, &resolver, known).await;
    *known = targets;
    Ok(Answer { found: members(&records, known), ttl: ttl.min(answer.ttl) })
}

/// The addresses of all targets. A target without an answer keeps those that it had.
async fn targets(
    records: &[SRV],
    resolving: &Arc<Resolving>,
    resolver: &TokioResolver,
    known: &Targets,
) -> (Targets, Duration) {
    let names: BTreeSet<&Name> = records.iter().map(|record| &record.target).collect();
    let mut asking = JoinSet::new();
    for name in names {
        let (resolving, resolver, name) = (resolving.clone(), resolver.clone(), name.clone());
        let before = known.get(&name).cloned().unwrap_or_default();
        asking.spawn(async move {
            let answer = resolving.addresses(&resolver, &name.to_ascii(), &before).await;
            (name, before, answer)
        });
    }
    let (mut targets, mut ttl) = (Targets::new(), Duration::MAX);
    while let Some(Ok((name, before, answer))) = asking.join_next().await {
        let found = match answer {
            Ok(answer) => {
                ttl = ttl.min(answer.ttl);
                answer.found
            }
            Err(_) => {
                ttl = Duration::ZERO;
                before
            }
        };
        targets.insert(name, found);
    }
    (targets, ttl)
}

/// The members that the records stand for. Weights are relative to the mean of their priority, so that records
/// of one weight give members of weight 1.
fn members(records: &[SRV], targets: &Targets) -> Vec<Member> {
    let mut means: BTreeMap<u16, (f64, f64)> = BTreeMap::new();
    for record in records {
        let (sum, count) = means.entry(record.priority).or_default();
        (*sum, *count) = (*sum + f64::from(record.weight), *count + 1.0);
    }
    let mut places: BTreeMap<&Name, usize> = BTreeMap::new();
    for record in records {
        *places.entry(&record.target).or_default() +=
            targets.get(&record.target).map_or(0, BTreeSet::len);
    }
    let of_record = |record: &SRV| {
        let (sum, count) = means[&record.priority];
        let weight = match sum > 0.0 {
            true => (f64::from(record.weight) * count / sum).max(LEAST_WEIGHT),
            false => 1.0,
        };
        let host: Arc<str> =
            record.target.to_ascii().trim_end_matches('.').to_ascii_lowercase().into();
        let addresses = targets.get(&record.target).cloned().unwrap_or_default();
        let weight = weight / addresses.len().max(1) as f64;
        let is_alone = places[&record.target] == 1;
        let (port, priority) = (record.port, record.priority);
        addresses.into_iter().map(move |ip| {
            let address = SocketAddr::new(ip, port);
            let name = if is_alone { host.clone() } else { format!("{host}/{address}").into() };
            Member { weight, priority, host: Some(host.clone()), ..Member::new(name, address) }
        })
    };
    records.iter().flat_map(of_record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn record(priority: u16, weight: u16, port: u16, target: &str) -> SRV {
        SRV::new(priority, weight, port, name(target))
    }

    fn targets(all: &[(&str, &[&str])]) -> Targets {
        let addresses = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
        all.iter().map(|(target, list)| (name(target), addresses(list))).collect()
    }

    #[test]
    fn weights_are_relative_to_their_priority() {
        let records = [
            record(10, 30, 80, "a.example."),
            record(10, 10, 80, "B.example."),
            record(20, 0, 80, "c.example."),
        ];
        let targets = targets(&[
            ("a.example.", &["10.0.0.1"]),
            ("b.example.", &["10.0.0.2"]),
            ("c.example.", &["10.0.0.3"]),
        ]);
        let all = members(&records, &targets);
        let seen: Vec<_> = all.iter().map(|m| (&*m.name, m.weight, m.priority)).collect();
        assert_eq!(seen, [("a.example", 1.5, 10), ("b.example", 0.5, 10), ("c.example", 1.0, 20)]);
    }

    #[test]
    fn target_with_several_addresses_has_a_member_for_each() {
        let records = [record(1, 1, 80, "a.example."), record(1, 1, 81, "a.example.")];
        let all = members(&records, &targets(&[("a.example.", &["10.0.0.1", "::1"])]));
        let seen: Vec<_> = all.iter().map(|m| (&*m.name, m.weight)).collect();
        assert_eq!(
            seen,
            [
                ("a.example/10.0.0.1:80", 0.5),
                ("a.example/[::1]:80", 0.5),
                ("a.example/10.0.0.1:81", 0.5),
                ("a.example/[::1]:81", 0.5),
            ]
        );
    }

    #[test]
    fn record_of_weight_0_has_a_small_chance_beside_others() {
        let records = [record(1, 0, 80, "a.example."), record(1, 10, 80, "b.example.")];
        let targets = targets(&[("a.example.", &["10.0.0.1"]), ("b.example.", &["10.0.0.2"])]);
        let weights: Vec<f64> = members(&records, &targets).iter().map(|m| m.weight).collect();
        assert_eq!(weights, [LEAST_WEIGHT, 2.0]);
    }
}
