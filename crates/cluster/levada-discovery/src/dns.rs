//! The addresses of a name as members, asked for again whenever the TTL of its records has passed.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use crate::{
    DnsSource, Member, Report,
    resolver::{Answer, NoAnswer, Resolvers, Resolving, Rounds},
};

/// Follows the addresses of a name.
pub(crate) async fn follow(source: &DnsSource, resolvers: &Resolvers, report: &Report) {
    let mut rounds = Rounds::new(resolvers);
    let mut known = BTreeSet::new();
    loop {
        let asked = ask(source, &rounds.resolving(), &known).await;
        if let Ok(answer) = &asked {
            known.clone_from(&answer.found);
        }
        let members = |found: BTreeSet<IpAddr>| found.into_iter().map(|ip| member(source, ip));
        let asked =
            asked.map(|Answer { found, ttl }| Answer { found: members(found).collect(), ttl });
        rounds.end(asked, report).await;
    }
}

async fn ask(
    source: &DnsSource,
    resolving: &Resolving,
    known: &BTreeSet<IpAddr>,
) -> Result<Answer<BTreeSet<IpAddr>>, String> {
    let resolver = resolving.of(source.resolver)?;
    resolving.addresses(&resolver, &source.host, known).await.map_err(NoAnswer::into_reason)
}

fn member(source: &DnsSource, ip: IpAddr) -> Member {
    let member = Member::new(ip.to_string(), SocketAddr::new(ip, source.port));
    Member { host: Some(source.host.clone()), ..member }
}
