//! TCP handoff: the front-end, which hands connections over, and the back-end, which takes them.

use std::net::{IpAddr, SocketAddr};

use levada_redirector::handoff::{HandoffBackendSettings, HandoffControl, HandoffSettings};
use levada_redirector::{KeyFrom, SwitchServer};
use levada_types::document::Path;

use super::{Check, levels::KeyLevels};
use crate::{file, text::Address};

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a node without handoff.
    pub(super) fn handoff(&mut self) -> Option<Option<HandoffSettings>> {
        let Some(handoff) = &self.file.handoff else { return Some(None) };
        let path = self.root.key("handoff");
        let file::Handoff { secret, secret_file, .. } = handoff;
        let secret = self.secret(["secret", "secret_file"], secret, secret_file, &path);
        if matches!(secret, Some(None)) {
            let help = "add `secret_file`, or `secret = \"${LEVADA_SECRET}\"`";
            self.error(&path, "has no secret, so that anyone could hand connections over")
                .help(help);
        }
        let interfaces = handoff.interfaces.as_slice();
        let backend = self.backend(handoff, &path);
        Some(Some(HandoffSettings {
            secret: secret??,
            interfaces: (!interfaces.is_empty()).then(|| interfaces.to_vec())?,
            after: handoff.after,
            max_segment: handoff.max_segment,
            min_size: handoff.min_size,
            backend: backend?,
        }))
    }

    fn backend(
        &mut self,
        handoff: &file::Handoff,
        path: &Path,
    ) -> Option<Option<HandoffBackendSettings>> {
        let services = handoff.services.as_slice();
        let (listen_at, services_at) = (path.key("listen"), path.key("services"));
        let Some(listen) = handoff.listen else {
            if !services.is_empty() {
                self.warning(&services_at, "has no effect without `listen`");
            }
            return if self.findings.has(&listen_at) { None } else { Some(None) };
        };
        if services.is_empty() {
            if !self.findings.has(&services_at) {
                let message = "takes connections of no service";
                let help =
                    "write the addresses that clients connect to: services = \"192.0.2.10:80\"";
                self.error(&listen_at, message).help(help);
            }
            return None;
        }
        let listen = self.single(listen, &listen_at);
        let services: Vec<_> =
            services.iter().map(|service| self.single(*service, &services_at)).collect();
        let services = services.into_iter().collect::<Option<_>>();
        let dormant_retries = handoff.dormant_retries.into();
        Some(Some(HandoffBackendSettings { listen: listen?, services: services?, dormant_retries }))
    }

    fn single(&mut self, address: Address, path: &Path) -> Option<SocketAddr> {
        let link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        match address.0 {
            address if address.ip().is_unspecified() || link_local(address.ip()) => {
                let message = format!("{address} is no single address");
                let help = "connections are handed off to one address, the same from everywhere";
                self.error(path, message).help(help).none()
            }
            address => Some(address),
        }
    }

    /// The handoff addresses of a server, if it has any.
    pub(super) fn control(&mut self, server: &file::Server, path: &Path) -> Option<HandoffControl> {
        let at = path.key("handoff");
        let given = server.handoff.as_ref()?.as_slice();
        let addresses: Vec<_> =
            given.iter().filter_map(|address| self.single(*address, &at)).collect();
        if self.file.handoff.is_none() {
            self.error(&at, "needs the table `[handoff]`: the secret, and the interfaces");
        }
        match addresses[..] {
            [to] => Some(HandoffControl { to, also: None }),
            [to, also] if to.is_ipv4() != also.is_ipv4() => {
                Some(HandoffControl { to, also: Some(also.ip()) })
            }
            [] => None,
            _ => {
                self.error(&at, "has more than one address of a version of IP")
                    .help("at most one of IPv4 and one of IPv6: the channel's first");
                None
            }
        }
    }

    /// A site whose connections are handed off leaves all other work on its requests to the
    /// back-ends.
    pub(super) fn handing_over(
        &mut self,
        site: &file::Site,
        servers: &[SwitchServer],
        key: &KeyFrom,
        levels: &KeyLevels,
    ) {
        if servers.iter().all(|server| server.handoff.is_none()) {
            return;
        }
        self.versions(servers, levels);
        if site.handling.cache {
            let message = "connections of a site that is cached here cannot be handed off";
            self.error(&levels.key(self.findings, "cache"), message)
                .help("add `cache = false` to the site");
        }
        if matches!(key, KeyFrom::Body { .. }) {
            let message =
                "a body cannot decide where a connection goes: it comes after it has gone";
            self.error(&levels.key(self.findings, "key"), message);
        }
    }

    /// Checks that connections of each IP version that clients use can be handed to every server.
    fn versions(&mut self, servers: &[SwitchServer], levels: &KeyLevels) {
        let comes = |is_v4: bool| {
            let mut addresses = self.file.listen.iter().filter_map(|listen| listen.address);
            addresses.any(|address| {
                // A listener on all IPv6 addresses accepts IPv4 connections as well.
                address.0.is_ipv4() == is_v4 || (is_v4 && address.0.ip().is_unspecified())
            })
        };
        for (is_v4, version) in [(true, "IPv4"), (false, "IPv6")] {
            let lacks = |server: &&SwitchServer| {
                server
                    .handoff
                    .is_some_and(|control| control.to.is_ipv4() != is_v4 && control.also.is_none())
            };
            if let Some(server) = servers.iter().find(lacks).filter(|_| comes(is_v4)) {
                let message = format!(
                    "clients that come over {version} are proxied: {} has no address of it in \
                     `handoff`",
                    server.name
                );
                let help = "for example `handoff = [\"10.0.1.1:7072\", \"[fd00::1]:7072\"]`";
                self.warning(&levels.key(self.findings, "server"), message).help(help);
            }
        }
    }
}
