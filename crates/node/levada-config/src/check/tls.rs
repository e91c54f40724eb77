//! TLS towards clients: handshakes, certificates of clients, session tickets.

use std::sync::Arc;

use crate::settings::SiteTls;
use levada_tls::{
    client_certificates::{ClientCertificateSettings, ClientCertificates},
    handshake::{self, CIPHERS, CURVES, HandshakeSettings, TlsVersion},
    pem::{self, Certificate},
    tickets::TicketSettings,
};
use levada_types::document::{Path, did_you_mean};

use super::{
    Check,
    parts::{each, maybe},
};
use crate::file::{self, OneOrMany};

impl Check<'_, '_> {
    pub(super) fn handshake(
        &mut self,
        table: &file::Handshake,
        path: &Path,
    ) -> Option<HandshakeSettings> {
        let (min, max) = (table.min_version, table.max_version);
        if min > max {
            self.error(&path.key("min_version"), "is above `max_version`: no version is left");
        }
        let names: Vec<_> =
            CIPHERS.iter().flat_map(|(iana, openssl, _)| [*iana, *openssl]).collect();
        let ciphers = self.by_name(&table.ciphers, &path.key("ciphers"), handshake::cipher, &names);
        let names: Vec<_> = CURVES.iter().map(|(names, _)| names[0]).collect();
        let curves = self.by_name(&table.curves, &path.key("curves"), handshake::curve, &names);
        let tls13 = |cipher: &_| handshake::is_tls13(*cipher);
        if let Some(ciphers) = ciphers.as_ref().filter(|ciphers| !ciphers.is_empty()) {
            let only = |version| min == version && max == version;
            let (tls12, has13) = (TlsVersion::Tls12, ciphers.iter().any(tls13));
            let idle = match () {
                () if only(tls12) => ciphers.iter().all(tls13),
                () if min > tls12 => !has13,
                () => false,
            };
            if idle {
                let message = "has no effect: no suite belongs to a version that is spoken";
                self.warning(&path.key("ciphers"), message);
            }
        }
        (min <= max).then_some(())?;
        Some(HandshakeSettings { min, max, ciphers: ciphers?, curves: curves? })
    }

    fn by_name<T>(
        &mut self,
        names: &[String],
        path: &Path,
        find: fn(&str) -> Option<T>,
        known: &[&str],
    ) -> Option<Vec<T>> {
        self.read_each(names, path, |name| {
            find(name).ok_or_else(|| {
                let mut list = known.to_vec();
                list.dedup();
                let mut help = format!("there are {}", list.join(", "));
                if let Some(meant) = did_you_mean(name, known.iter().copied()) {
                    help = format!("{meant} {help}");
                }
                (format!("{name:?} is not known"), Some(help))
            })
        })
    }

    pub(super) fn site_tls(&mut self, site: &file::Site, path: &Path) -> Option<SiteTls> {
        let table = site.handshake.as_ref();
        let handshake = maybe(table, |table| self.handshake(table, &path.key("handshake")));
        let table = site.client_certificates.as_ref();
        let clients = maybe(table, |table| self.client_certificates(site, table, path));
        let has_tls = self.file.listen.iter().any(|listen| listen.acme || !listen.tls.is_empty());
        for (key, stands) in [
            ("handshake", site.handshake.is_some()),
            ("client_certificates", site.client_certificates.is_some()),
        ] {
            if stands && !has_tls {
                let message = "needs a `[[listen]]` with `tls`: no address speaks TLS";
                self.error(&path.key(key), message);
            }
        }
        Some(SiteTls { handshake: handshake?, clients: clients?.map(Arc::new) })
    }

    fn client_certificates(
        &mut self,
        site: &file::Site,
        table: &file::ClientCertificates,
        site_path: &Path,
    ) -> Option<ClientCertificateSettings> {
        let path = site_path.key("client_certificates");
        let authorities =
            self.pem_files(&table.authorities, "CERTIFICATE", &path.key("authorities"));
        let lists = &path.key("revocation_lists");
        let lists = self.pem_files(&table.revocation_lists, "X509 CRL", lists);
        if site.delivery == file::Delivery::Redirect {
            let message = "cannot stand beside `delivery = \"redirect\"`: the other node, under its \
                           own name, would not ask for the certificate";
            self.error(&path, message);
        }
        let settings = ClientCertificateSettings {
            mode: table.mode,
            authorities: authorities?,
            revocation_lists: lists?,
            fields: table.fields.clone(),
        };
        if settings.authorities.is_empty() {
            return None;
        }
        match ClientCertificates::new(&settings) {
            Err(error) => self.error(&path, error.to_string()).none(),
            Ok(rules) => {
                for reason in rules.old_lists() {
                    let message = format!("{reason}: no client of its authority can pass");
                    self.warning(&path.key("revocation_lists"), message)
                        .help("fetch the new list, and run `levada reload`");
                }
                Some(settings)
            }
        }
    }

    fn pem_files(
        &mut self,
        files: &OneOrMany<String>,
        kind: &str,
        path: &Path,
    ) -> Option<Vec<std::path::PathBuf>> {
        each(files.placed(path), |(at, file)| self.pem(&Some(file.clone()), kind, &at))
    }

    /// Checks that a certificate of a listener names servers and has its key, and that an OCSP answer is about it.
    pub(super) fn belongs_together(&mut self, files: &Certificate, path: &Path) -> Option<()> {
        let key = match pem::of_server(files) {
            Ok((key, _)) => key,
            Err(error) => {
                let at = match error {
                    pem::TlsError::OtherKey { .. } => path.key("key"),
                    pem::TlsError::Nameless { .. } => path.key("certificate"),
                    _ => path.clone(),
                };
                return self.error(&at, error.to_string()).none();
            }
        };
        let answer = files.ocsp.as_ref()?;
        if let Err((_, reason)) = levada_tls::ocsp::StapledKey::new(key, answer) {
            let message = format!("{reason}; it is not stapled");
            let help =
                "ask the authority's server for a new one (`openssl ocsp`), if it still has one";
            self.warning(&path.key("ocsp"), message).help(help);
        }
        Some(())
    }

    pub(super) fn session_tickets(&mut self) -> Option<TicketSettings> {
        let (path, table) = (self.root.key("session_tickets"), &self.file.session_tickets);
        let files: Vec<_> =
            table.key_file.as_slice().iter().map(|file| self.directory.join(file)).collect();
        let settings =
            TicketSettings { files, of_cluster: table.of_cluster, rotation: table.rotate.0 };
        if let Err(error) = settings.keys(None, None) {
            return self.error(&path.key("key_file"), error.to_string()).none();
        }
        Some(settings)
    }
}
