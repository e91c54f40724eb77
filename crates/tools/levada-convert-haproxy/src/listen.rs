//! `bind`: addresses, certificates, certificates of clients.

use levada_conversion::{
    gate::Concern,
    ledger::{Outcome, TAKEN, differs},
    rows::{Row, find},
    table::{Table, Value},
};

use crate::{converter::Converter, files, parse::Line};

/// The words of a `bind`, while they are read.
#[derive(Default)]
pub(crate) struct Bind {
    pub(crate) is_tls: bool,
    certificates: Vec<String>,
    clients: Table,
    handshake: Table,
    has_h2c: bool,
    differs: Option<&'static str>,
}

type Read = fn(&mut Converter<'_>, &mut Bind, &str) -> Result<(), String>;

/// A word: whether another one follows it, and how it is read.
#[derive(Clone, Copy)]
pub(crate) struct Param(bool, Read);

const fn ignored(takes: bool) -> Param {
    Param(takes, |_, _, _| Ok(()))
}

pub(crate) const BIND: &[Row<Param>] = &[
    Row::writes(
        "ssl",
        "listen.tls",
        Param(false, |_, bind, _| {
            bind.is_tls = true;
            Ok(())
        }),
    ),
    Row::writes(
        "crt",
        "listen.tls",
        Param(true, |c, bind, path| {
            bind.certificates.extend(c.certificates(path));
            Ok(())
        }),
    ),
    Row::writes(
        "crt-list",
        "listen.tls",
        Param(true, |c, bind, path| {
            for line in files::list(c.includes, path)? {
                if line.contains("verify") || line.contains("ca-file") {
                    return Err("a certificate of the list has rules of its own".to_owned());
                }
                let file = line.split_whitespace().next().unwrap_or_default().to_owned();
                bind.certificates.push(c.based("crt-base", &file));
            }
            Ok(())
        }),
    ),
    Row::writes(
        "ca-file",
        "client_certificates.authorities",
        Param(true, |c, bind, path| {
            let path = c.based("ca-base", path);
            bind.clients.set("authorities", path);
            Ok(())
        }),
    )
    .about(Concern::Access),
    Row::writes(
        "crl-file",
        "client_certificates.revocation_lists",
        Param(true, |c, bind, path| {
            let path = c.based("ca-base", path);
            bind.clients.set("revocation_lists", path);
            Ok(())
        }),
    )
    .about(Concern::Access),
    Row::writes(
        "verify",
        "client_certificates.mode",
        Param(true, |_, bind, mode| {
            match mode {
                "none" => {}
                "optional" | "required" => {
                    bind.clients.set("mode", mode);
                    bind.differs =
                        Some("over plain HTTP a site that requires certificates answers with 403");
                }
                _ => return Err("there is no such mode".to_owned()),
            }
            Ok(())
        }),
    )
    .about(Concern::Access),
    Row::writes(
        "ssl-min-ver",
        "listen.handshake.min_version",
        Param(true, |_, bind, version| {
            if version == "TLSv1.3" {
                bind.handshake.set("min_version", "1.3");
            }
            Ok(())
        }),
    ),
    Row::writes(
        "ssl-max-ver",
        "listen.handshake.max_version",
        Param(true, |_, bind, version| {
            match version {
                "TLSv1.2" => bind.handshake.set("max_version", "1.2"),
                "TLSv1.3" => {}
                _ => return Err("a node speaks TLS 1.2 and 1.3".to_owned()),
            }
            Ok(())
        }),
    ),
    Row::writes(
        "alpn",
        "HTTP/2 is spoken over TLS",
        Param(true, |_, bind, protocols| {
            if !protocols.contains("h2") && bind.is_tls {
                bind.differs = Some("HTTP/2 is offered as well");
            }
            Ok(())
        }),
    ),
    Row::writes(
        "proto",
        "listen.h2c",
        Param(true, |_, bind, protocol| {
            bind.has_h2c = protocol == "h2";
            Ok(())
        }),
    ),
    Row::writes(
        "strict-sni",
        "the first certificate is for clients without a name",
        Param(false, |_, bind, _| {
            bind.differs = Some("clients without a server name get the first certificate");
            Ok(())
        }),
    ),
    Row::writes(
        "name id maxconn backlog interface-name nice thread process shards level namespace ciphers ciphersuites ecdhe curves sigalgs tls-ticket-keys user group mode gid uid mss tcp-ut generate-certificates ca-sign-file ca-sign-pass crt-ignore-err ca-ignore-err quic-cc-algo severity-output",
        "a node has its own way for it",
        ignored(true),
    ),
    Row::writes(
        "v4v6 v6only defer-accept tfo no-tls-tickets prefer-client-ciphers no-sslv3 no-tlsv10 no-tlsv11 no-tlsv12 no-tlsv13 force-tlsv12 force-tlsv13 allow-0rtt no-alpn quic-force-retry expose-fd",
        "a node has its own way for it",
        ignored(false),
    ),
    Row::left("accept-proxy", "name the balancers: `[[trusted]]` with `proxy_protocol = true`"),
    Row::left(
        "accept-netscaler-cip transparent interface verify-hash ca-verify-file npn",
        "an address has no such key",
    )
    .about(Concern::Access),
    Row::left("*", "an address has no such key").about(Concern::Access),
];

/// The addresses of a `bind`, and the words after them.
pub(crate) fn read(
    converter: &mut Converter<'_>,
    line: &Line,
) -> Result<(Vec<(String, bool)>, Bind), String> {
    let mut addresses = Vec::new();
    for address in line.word(1).split(',') {
        addresses.push(address_of(address)?);
    }
    let mut bind = Bind::default();
    let mut at = 2;
    while at < line.words.len() {
        let name = line.word(at);
        let row = find(BIND, name, "").ok_or("an address has no such key")?;
        if let Some(Err(reason)) = row.without_keys() {
            return Err(format!("`{name}`: {reason}"));
        }
        let Some(Param(takes, read)) = row.keys() else { break };
        let text = if takes { line.word(at + 1) } else { "" };
        if takes && text.is_empty() {
            return Err(format!("`{name}` has no value"));
        }
        read(converter, &mut bind, text).map_err(|reason| format!("`{name}`: {reason}"))?;
        at += 1 + usize::from(takes);
    }
    if bind.is_tls && bind.certificates.is_empty() {
        return Err("an address with TLS has a certificate".to_owned());
    }
    match bind.clients.get("mode") {
        None => bind.clients = Table::default(),
        Some(_) if bind.clients.get("authorities").is_none() => {
            return Err("certificates of clients need their authorities".to_owned());
        }
        Some(_) => {}
    }
    Ok((addresses, bind))
}

impl Bind {
    /// The certificates of clients that are asked for.
    pub(crate) fn clients(&self) -> Option<Table> {
        (!self.clients.is_empty()).then(|| {
            let mut clients = self.clients.clone();
            clients.set("fields", Value::List(Vec::new()));
            clients
        })
    }

    /// Writes the keys of an address.
    pub(crate) fn write(
        &self,
        converter: &mut Converter<'_>,
        addresses: &[(String, bool)],
    ) -> Outcome {
        for (address, is_quic) in addresses {
            let pairs: Vec<_> = self.certificates.iter().map(|path| converter.pair(path)).collect();
            let min_version = converter.min_version;
            let listen = converter.plan.listener(address);
            if *is_quic {
                listen.set("http3", true);
            }
            for pair in pairs.into_iter().filter(|_| self.is_tls) {
                let known =
                    matches!(listen.get("tls"), Some(Value::List(list)) if list.contains(&pair));
                if !known {
                    listen.push("tls", pair);
                }
            }
            let mut handshake = self.handshake.clone();
            if let Some(version) = min_version.filter(|_| self.is_tls && handshake.is_empty()) {
                handshake.set("min_version", version);
            }
            if !handshake.is_empty() {
                listen.set("handshake", handshake);
            }
            if self.has_h2c && !self.is_tls {
                listen.set("h2c", true);
            }
        }
        self.differs.map_or(TAKEN, differs)
    }
}

/// The address, and whether it is one of QUIC.
fn address_of(text: &str) -> Result<(String, bool), String> {
    let (text, is_quic) = match text.strip_prefix("quic4@").or_else(|| text.strip_prefix("quic6@"))
    {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let text = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
    let (host, port) = text.rsplit_once(':').ok_or("clients come over TCP, to a port")?;
    let port = port.parse::<u16>().map_err(|_| "an address has one port")?;
    let host = host.trim_matches(['[', ']']);
    let host = match host {
        "" | "*" => "0.0.0.0".to_owned(),
        host => match host.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(_)) => host.to_owned(),
            Ok(std::net::IpAddr::V6(_)) => format!("[{host}]"),
            Err(_) => return Err("an address is an IP address and a port".to_owned()),
        },
    };
    Ok((format!("{host}:{port}"), is_quic))
}
