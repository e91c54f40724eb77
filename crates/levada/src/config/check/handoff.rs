//! TCP handoff: what hands connections over, and what takes them.

use std::net::{SocketAddr, SocketAddrV4};

use levada_edge::settings::{self, Handoff, KeyFrom, SwitchServer, Taking};

use super::Check;
use crate::config::{
    file::{self, After},
    text::Address,
    tree::Path,
};

impl Check<'_, '_> {
    /// The outer `None` when it is wrong, the inner when connections stay where they are.
    pub(super) fn handoff(&mut self) -> Option<Option<Handoff>> {
        let Some(handoff) = &self.file.handoff else { return Some(None) };
        let path = self.root.key("handoff");
        let file::Handoff { secret, secret_file, .. } = handoff;
        let secret = self.secret(["secret", "secret_file"], secret, secret_file, &path);
        if matches!(secret, Some(None)) {
            let help = "add `secret_file`, or `secret = \"${LEVADA_SECRET}\"`";
            let message = "has no secret, so that anyone could hand connections over";
            self.findings.error(&path, message, Some(help.to_owned()));
        }
        let interfaces = handoff.interfaces.as_slice();
        let taking = self.taking(handoff, &path);
        Some(Some(Handoff {
            secret: secret??,
            interfaces: (!interfaces.is_empty()).then(|| interfaces.to_vec())?,
            after: match handoff.after {
                After::Stay => settings::After::Stay,
                After::Back => settings::After::Back,
                After::On => settings::After::On,
            },
            taking: taking?,
        }))
    }

    fn taking(&mut self, handoff: &file::Handoff, path: &Path) -> Option<Option<Taking>> {
        let services = handoff.services.as_slice();
        let (listen_at, services_at) = (path.key("listen"), path.key("services"));
        let Some(listen) = handoff.listen else {
            if !services.is_empty() {
                let message = "has no effect without `listen`";
                self.findings.warning(&services_at, message, None);
            }
            return if self.findings.has(&listen_at) { None } else { Some(None) };
        };
        if services.is_empty() {
            if !self.findings.has(&services_at) {
                let message = "takes connections of no service";
                let help =
                    "write the addresses that clients connect to: services = \"192.0.2.10:80\"";
                self.findings.error(&listen_at, message, Some(help.to_owned()));
            }
            return None;
        }
        let listen = self.ipv4(listen, &listen_at);
        let services: Vec<_> =
            services.iter().map(|service| self.ipv4(*service, &services_at)).collect();
        let services = services.into_iter().collect::<Option<_>>();
        Some(Some(Taking { listen: listen?, services: services? }))
    }

    fn ipv4(&mut self, address: Address, path: &Path) -> Option<SocketAddrV4> {
        match address.0 {
            SocketAddr::V4(address) if !address.ip().is_unspecified() => Some(address),
            other => {
                let message = format!("{other} is no single address of IPv4");
                let help = "connections are handed off over IPv4, to one address".to_owned();
                self.findings.error(path, message, Some(help));
                None
            }
        }
    }

    /// Where connections can be handed to a server, if anywhere.
    pub(super) fn control(&mut self, server: &file::Server, path: &Path) -> Option<SocketAddrV4> {
        let at = path.key("handoff");
        let control = self.ipv4(server.handoff?, &at);
        if self.file.handoff.is_none() {
            let message = "needs the table `[handoff]`: the secret, and the interfaces";
            self.findings.error(&at, message, None);
        }
        control
    }

    /// A site whose connections are handed off leaves all else about its requests to the back-ends.
    pub(super) fn handing_over(
        &mut self,
        site: &file::Site,
        servers: &[SwitchServer],
        key: &KeyFrom,
        path: &Path,
    ) {
        if servers.iter().all(|server| server.handoff.is_none()) {
            return;
        }
        if site.cache {
            let message = "connections of a site that is cached here cannot be handed off";
            let help = "add `cache = false` to the site".to_owned();
            self.findings.error(&path.key("cache"), message, Some(help));
        }
        if matches!(key, KeyFrom::Body { .. }) {
            let message =
                "a body cannot decide where a connection goes: it comes after it has gone";
            self.findings.error(&path.key("key"), message, None);
        }
    }
}
