//! Whether origins and servers speak with this node: TLS, and the version of HTTP.

use std::{thread, time::Duration};

use levada_config::{Origin, Settings, SiteServers};
use levada_tls::origin::OriginTls;
use levada_tls::probe::{probe, probe_plain};

use crate::Finding;

/// How long a server may take to answer a check. A node would wait longer; somebody waits for this report.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The most origins that are tried, all at the same time.
const MOST: usize = 64;
/// The days before the end of a certificate at which it is due.
const DUE: u64 = 14;

#[derive(PartialEq)]
struct Tried {
    host: String,
    port: u16,
    /// `None`: without TLS.
    tls: Option<OriginTls>,
    h2: bool,
}

/// Tries the origins and servers of all sites and routes.
pub fn check_origins(settings: &Settings) -> Vec<Finding> {
    let mut all: Vec<Tried> = Vec::new();
    for site in &settings.sites {
        let routes = site.routes.all.iter().filter_map(|route| route.servers.as_ref());
        for servers in routes.chain([&site.servers]) {
            for one in of(servers) {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
    }
    if all.is_empty() {
        return vec![Finding::skip("origins", "no origin or server has an address".to_owned())];
    }
    let left = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    let mut findings = thread::scope(|scope| {
        let trying: Vec<_> = all.iter().map(|one| scope.spawn(|| tried(one))).collect();
        trying.into_iter().filter_map(|one| one.join().ok()).collect::<Vec<_>>()
    });
    if left > 0 {
        findings.push(Finding::skip("origins", format!("{left} more were not tried")));
    }
    findings
}

fn of(servers: &SiteServers) -> impl Iterator<Item = Tried> {
    let switched = servers.switch.iter().flat_map(|switch| &switch.servers);
    let all = servers.origins.iter().chain(switched.map(|server| &server.origin));
    let rules = servers.tls.as_deref().cloned().unwrap_or_default();
    all.filter_map(move |origin| match origin {
        Origin::Tcp { tls, host, port } => {
            let tls = tls.then(|| rules.clone());
            Some(Tried { host: host.clone(), port: *port, tls, h2: servers.protocols.h2 })
        }
        _ => None,
    })
}

fn tried(one: &Tried) -> Finding {
    let Tried { host, port, tls, h2 } = one;
    let Some(tls) = tls else {
        let check = format!("origin http://{host}:{port}");
        return match probe_plain(host, *port, *h2, ANSWER_TIMEOUT) {
            Ok(words) => Finding::ok("origins", format!("{check}: {words}")),
            Err(reason) => Finding::fail("origins", format!("{check}: {reason}"))
                .meaning("requests to this origin fail")
                .remedy("start it, or mend `origin` and `protocol`: docs/operate/http2.md"),
        };
    };
    let check = format!("origin https://{host}:{port}");
    match probe(host, *port, tls, *h2, ANSWER_TIMEOUT) {
        Err(reason) => Finding::fail("origins", format!("{check}: {reason}"))
            .meaning("requests to this origin fail")
            .remedy("docs/operate/tls.md has the reasons and what helps"),
        Ok(probed) if probed.days.is_some_and(|days| days < DUE) => {
            Finding::warn("origins", format!("{check}: {}", probed.words))
                .meaning("the origin's certificate ends soon")
                .remedy("renew it at the origin")
        }
        Ok(probed) => Finding::ok("origins", format!("{check}: {}", probed.words)),
    }
}
