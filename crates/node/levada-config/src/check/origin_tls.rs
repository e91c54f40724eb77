//! TLS towards origins and servers.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use levada_tls::{
    origin::{Authorities, OriginTls},
    pem::TlsError,
};
use levada_types::document::Path;

use super::{Check, levels::KeyLevels, parts::each};
use crate::{
    file::{self, OneOrMany},
    text::Upstream,
};

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner an absent table.
    pub(super) fn origin_tls(
        &mut self,
        (site, of): (&file::Site, &file::SiteServers),
        levels: &KeyLevels,
    ) -> Option<Option<Arc<OriginTls>>> {
        let Some(table) = &of.origin_tls else { return Some(None) };
        let path = levels.key(self.findings, "origin_tls");
        self.has_encrypted_servers(site, &path);
        let authorities = self.authorities(table, &path);
        let identity = self.certificate_pair(&table.certificate, &table.key, &path);
        let pins = self.pins(table, &path);
        if table.insecure_skip_verification && table.pins.is_empty() {
            let message = "lets anyone between this node and the origin read and change everything";
            let help =
                "name the authority of the certificate in `authorities`, or its key in `pins`";
            let at = path.key("insecure_skip_verification");
            self.warning(&at, message).help(help);
        }
        let name = table.server_name.clone();
        if let Some(name) = name.as_ref().filter(|name| !levada_tls::origin::is_name(name)) {
            let message = format!("{name:?} is neither a host name nor an address");
            return self.error(&path.key("server_name"), message).none();
        }
        let tls = OriginTls {
            authorities: authorities?,
            server_name: name,
            identity: identity?,
            pins: pins?,
            unverified: table.insecure_skip_verification,
            min: Some(table.min_version),
        };
        if let Err(error) = tls.config(&[]) {
            let at = match error {
                TlsError::OtherKey { .. } => path.key("key"),
                _ => path,
            };
            return self.error(&at, error.to_string()).none();
        }
        Some(Some(Arc::new(tls)))
    }

    /// Routes inherit the table from their site, so that one with `https` is enough.
    fn has_encrypted_servers(&mut self, site: &file::Site, path: &Path) {
        let is_encrypted = |server: &Upstream| match server {
            Upstream::Root(root) => root.tls,
            Upstream::Discovery { tls, .. } => *tls,
            Upstream::Unix(_) => false,
        };
        let has_one = |of: &file::SiteServers| {
            let lists = [&of.origin, &of.servers].into_iter().flatten();
            let long = of.server.iter().flat_map(|server| &server.url);
            lists.flat_map(OneOrMany::as_slice).chain(long).any(is_encrypted)
        };
        if !has_one(&site.servers) && !site.route.iter().any(|route| has_one(&route.servers)) {
            self.warning(path, "has no effect: no origin or server has `https`");
        }
    }

    fn authorities(&mut self, table: &file::OriginTls, path: &Path) -> Option<Vec<Authorities>> {
        let at = path.key("authorities");
        each(table.authorities.placed(&at), |(at, given)| match given.as_str() {
            "system" => Some(Authorities::System),
            "mozilla" => Some(Authorities::Mozilla),
            _ => self.pem(&Some(given.clone()), "CERTIFICATE", &at).map(Authorities::File),
        })
    }

    fn pins(&mut self, table: &file::OriginTls, path: &Path) -> Option<Vec<[u8; 32]>> {
        self.read_each(&table.pins, &path.key("pins"), |pin| {
            let digest = pin.strip_prefix("sha256/").and_then(|text| STANDARD.decode(text).ok());
            let digest = digest.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            digest.ok_or_else(|| {
                let help = "openssl x509 -in cert.pem -pubkey -noout | openssl pkey -pubin -outform der | \
                            openssl dgst -sha256 -binary | base64";
                let message = "is not `sha256/` and 32 bytes in Base64".to_owned();
                (message, Some(help.to_owned()))
            })
        })
    }
}
