//! Certificates by ACME: which ones are ordered, and whether the authority can reach what proves their names.

use std::net::IpAddr;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use levada_tls::acme::{AcmeSettings, DnsCommand, ExternalAccount, Proof, WantedCertificate};
use levada_types::document::Path;

use super::{Check, parts::maybe};
use crate::{
    file::{self, AcmeChallenge, OneOrMany},
    text::Root,
};

/// The names of one certificate that authorities accept.
const NAMES: usize = 100;

/// The ways that the listeners allow.
struct Ways {
    plain: bool,
    port_80: bool,
    port_443: bool,
}

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a node that orders nothing.
    pub(super) fn acme(&mut self) -> Option<Option<AcmeSettings>> {
        let listeners = self.file.listen.iter().enumerate();
        let showing = listeners.filter(|(_, listen)| listen.acme).map(|(at, _)| at).next();
        let path = self.root.key("acme");
        let Some(acme) = &self.file.acme else {
            let Some(at) = showing.filter(|_| !self.findings.has(&path)) else { return Some(None) };
            let place = self.root.key("listen").index(at).key("acme");
            self.error(&place, "there is no `[acme]`")
                .help("add a table [acme] with `agree = true` and your `email`");
            return None;
        };
        if showing.is_none() {
            self.warning(&path, "no listener shows these certificates")
                .help("write `acme = true` at the listener for HTTPS");
        }
        if !acme.agree {
            let message =
                "an account needs your agreement to the terms of service of the authority";
            // A key that is missing has been reported.
            if self.findings.has(&path.key("agree")) {
                self.error(&path.key("agree"), message)
                    .help("read them at the authority, then write `agree = true`");
            }
            return None;
        }
        let directory = self.directory_is_url(&acme.directory, &path.key("directory"));
        let at = path.key("authority");
        let authority =
            maybe(acme.authority.as_ref(), |_| self.pem(&acme.authority, "CERTIFICATE", &at));
        let external_account = self.external_account(acme, &path.key("external_account"));
        let certificates = self.wanted(acme, showing.is_some(), &path);
        directory?;
        Some(Some(AcmeSettings {
            directory: acme.directory.clone(),
            authority: authority?,
            email: acme.email.clone(),
            external_account: external_account?,
            profile: acme.profile.clone(),
            storage: self.directory.join(&acme.storage),
            dns: acme.dns_command.clone().map(|command| DnsCommand {
                command,
                timeout: acme.dns_timeout.0,
                wait: acme.dns_wait.0,
            }),
            certificates: certificates?,
        }))
    }

    fn directory_is_url(&mut self, url: &str, path: &Path) -> Option<()> {
        if Root::of_url(url, &['/']).0.is_some_and(|root| root.tls)
            && url.parse::<http::Uri>().is_ok()
        {
            return Some(());
        }
        self.error(path, format!("{url:?} is no URL with https"))
            .help("the authority names it in its documentation");
        None
    }

    fn external_account(
        &mut self,
        acme: &file::Acme,
        path: &Path,
    ) -> Option<Option<ExternalAccount>> {
        let Some(account) = &acme.external_account else { return Some(None) };
        let file::AcmeExternalAccount { id, key, key_file } = account;
        let given = self.secret(["key", "key_file"], key, key_file, path)?;
        let Some(given) = given else {
            self.error(path, "has no key").help("add `key_file`, or `key = \"${EAB_KEY}\"`");
            return None;
        };
        let Ok(key) = BASE64_URL_SAFE_NO_PAD.decode(given.trim_end_matches('=')) else {
            let at = if key.is_some() { "key" } else { "key_file" };
            self.error(&path.key(at), "is not a key in base64url")
                .help("copy it as the authority shows it");
            return None;
        };
        Some(Some(ExternalAccount { id: id.clone()?, key }))
    }

    /// One certificate for the hosts of each site.
    fn wanted(
        &mut self,
        acme: &file::Acme,
        is_shown: bool,
        path: &Path,
    ) -> Option<Vec<WantedCertificate>> {
        let ways = self.ways();
        let mut certificates = Some(Vec::new());
        let mut used = Vec::new();
        for (position, site) in self.file.site.iter().enumerate() {
            let own = site.acme.map_or(Some(acme.challenge), file::SiteAcme::challenge);
            let (Some(challenge), true) = (own, is_shown) else { continue };
            let hosts = site.hosts.as_ref().map(OneOrMany::as_slice).unwrap_or_default();
            let hosts = hosts.iter().map(|host| host.0.to_ascii_lowercase());
            let names: Vec<_> = hosts.filter(|host| is_certifiable(host)).collect();
            if names.is_empty() {
                continue;
            }
            let has_command = acme.dns_command.is_some();
            let proofs = ways.proofs(challenge, has_command, &names);
            used.extend(&proofs);
            let place = self.root.key("site").index(position);
            let place = if site.acme.is_some() { place.key("acme") } else { place.key("hosts") };
            if !self.can_be_proved(&names, &proofs, has_command, &place) {
                certificates = None;
            }
            let parts = names
                .chunks(NAMES)
                .map(|names| WantedCertificate { names: names.to_vec(), proofs: proofs.clone() });
            certificates.iter_mut().for_each(|all| all.extend(parts.clone()));
        }
        if certificates.is_some() {
            self.ports(&ways, &used, path);
        }
        certificates
    }

    fn ways(&self) -> Ways {
        let listen = &self.file.listen;
        let plain = || listen.iter().filter(|listen| listen.tls.is_empty() && !listen.acme);
        let has =
            |listen: &file::Listen, port| listen.address.is_some_and(|at| at.0.port() == port);
        Ways {
            plain: plain().next().is_some(),
            port_80: plain().any(|listen| has(listen, 80)),
            port_443: listen.iter().any(|listen| listen.acme && has(listen, 443)),
        }
    }

    fn can_be_proved(
        &mut self,
        names: &[String],
        proofs: &[Proof],
        has_command: bool,
        place: &Path,
    ) -> bool {
        let wildcard = names.iter().find(|name| name.starts_with('*'));
        let (message, help) = if let Some(name) = wildcard.filter(|_| proofs != [Proof::Dns01]) {
            let message = format!("only `dns-01` proves {name}");
            (message, "write `acme.dns_command`, or `acme = \"off\"` at the site")
        } else if proofs.contains(&Proof::Dns01) && !has_command {
            let message = "`dns-01` needs a command that makes records in DNS".to_owned();
            (message, "write `acme.dns_command`")
        } else if proofs == [Proof::Http01] && !self.ways().plain {
            let message = "`http-01` needs a listener without TLS, at port 80".to_owned();
            (
                message,
                "add [[listen]] with `address = \"0.0.0.0:80\"`, or choose another `challenge`",
            )
        } else {
            return true;
        };
        self.error(place, message).help(help);
        false
    }

    /// The authority connects to two ports only. Something in front of the node may forward them.
    fn ports(&mut self, ways: &Ways, used: &[Proof], path: &Path) {
        let by = |proof| used.contains(&proof);
        let message = match (by(Proof::Http01), by(Proof::TlsAlpn01)) {
            (true, false) if !ways.port_80 => {
                "the authority connects to port 80 (`http-01`), and no listener without TLS has it"
            }
            (false, true) if !ways.port_443 => {
                "the authority connects to port 443 (`tls-alpn-01`), and no listener with \
                 `acme = true` has it"
            }
            (true, true) if !ways.port_80 && !ways.port_443 => {
                "the authority connects to port 80 or 443, and no listener has one of them"
            }
            _ => return,
        };
        self.warning(path, message).help("listen there, or forward the port to a listener");
    }
}

impl Ways {
    fn proofs(&self, challenge: AcmeChallenge, has_command: bool, names: &[String]) -> Vec<Proof> {
        let has_wildcard = names.iter().any(|name| name.starts_with('*'));
        match challenge {
            AcmeChallenge::Http01 => vec![Proof::Http01],
            AcmeChallenge::TlsAlpn01 => vec![Proof::TlsAlpn01],
            AcmeChallenge::Dns01 => vec![Proof::Dns01],
            AcmeChallenge::Auto if has_wildcard && has_command => vec![Proof::Dns01],
            AcmeChallenge::Auto => {
                let ways = [
                    (Proof::Http01, self.port_80 || (self.plain && !self.port_443)),
                    (Proof::TlsAlpn01, self.port_443 || !self.port_80),
                    (Proof::Dns01, has_command),
                ];
                ways.into_iter().filter(|(_, there)| *there).map(|(proof, _)| proof).collect()
            }
        }
    }
}

/// Whether a certificate can have this host as a name: all hosts and addresses cannot.
fn is_certifiable(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    !name.is_empty() && !name.contains('*') && !is_address
}
