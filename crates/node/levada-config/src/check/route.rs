//! The node's route: one BGP daemon, and values that the daemon accepts.

use crate::settings::{RouteLevel, RouteRules, RouteSettings, Speaker};
use levada_types::document::Path;

use super::Check;
use crate::file;

impl Check<'_, '_> {
    /// The outer `None` marks an error, the inner a node without a route.
    pub(super) fn route(&mut self) -> Option<Option<RouteSettings>> {
        let Some(route) = &self.file.route else { return Some(None) };
        let path = self.root.key("route");
        let speaker = match (&route.bird, &route.exabgp) {
            (Some(bird), None) => self.bird(bird, &path.key("bird")),
            (None, Some(exabgp)) => self.exabgp(exabgp, &path.key("exabgp")),
            (Some(_), Some(_)) => {
                self.error(&path.key("exabgp"), "one daemon has the route").none()
            }
            (None, None) if self.findings.has(&path.key("bird")) => None,
            (None, None) if self.findings.has(&path.key("exabgp")) => None,
            (None, None) => {
                self.error(&path, "no daemon announces it")
                    .help("add a table [route.bird] or [route.exabgp]");
                None
            }
        };
        let has_backup = route.bird.as_ref().is_some_and(|bird| bird.backup_protocol.is_some())
            || route.exabgp.as_ref().is_some_and(|exabgp| exabgp.backup_attributes.is_some());
        if route.load_low >= route.load_high {
            let message = format!("not below `load_high`, which is {}", route.load_high);
            self.error(&path.key("load_low"), message);
        }
        for key in ["load_high", "load_low"] {
            if !has_backup && speaker.is_some() && self.findings.has(&path.key(key)) {
                let message = "has no effect without a backup, which is what load makes of a route";
                self.warning(&path.key(key), message);
            }
        }
        let unwell = match route.unwell {
            None if has_backup => RouteLevel::Backup,
            None | Some(file::Unwell::Withdraw) => RouteLevel::Withdrawn,
            Some(file::Unwell::Backup) if has_backup => RouteLevel::Backup,
            Some(file::Unwell::Backup) => {
                self.error(&path.key("unwell"), "there is no backup")
                    .help("add `backup_protocol` or `backup_attributes`");
                return None;
            }
        };
        Some(Some(RouteSettings {
            speaker: speaker?,
            rules: RouteRules {
                dwell: route.dwell.0,
                load_high: has_backup.then_some(route.load_high),
                load_low: has_backup.then_some(route.load_low),
                unwell,
            },
            settle: route.settle.0,
            dry_run: route.dry_run,
        }))
    }

    fn bird(&mut self, bird: &file::Bird, path: &Path) -> Option<Speaker> {
        // A missing value has been reported.
        let protocol = bird.protocol.clone();
        if protocol.is_some() && bird.backup_protocol == protocol {
            return self.error(&path.key("backup_protocol"), "the same as `protocol`").none();
        }
        for (key, name) in [("protocol", &protocol), ("backup_protocol", &bird.backup_protocol)] {
            if name.as_ref().is_some_and(|name| !is_symbol(name)) {
                self.error(&path.key(key), "no name that BIRD takes without quotes")
                    .help("letters, digits and `_`, at most 64, no digit first");
                return None;
            }
        }
        Some(Speaker::Bird {
            socket: bird.socket.clone().into(),
            protocol: protocol?,
            backup: bird.backup_protocol.clone(),
        })
    }

    fn exabgp(&mut self, exabgp: &file::ExaBgp, path: &Path) -> Option<Speaker> {
        let prefixes = exabgp.prefixes.as_ref()?.as_slice();
        for (position, prefix) in prefixes.iter().enumerate() {
            if !is_prefix(prefix) {
                let message = format!("{prefix:?} is no prefix");
                let path = path.key("prefixes");
                self.error(&path.index(position), message)
                    .help("write one as 192.0.2.0/24 or 2001:db8::/48");
                return None;
            }
        }
        let attributes = [
            ("attributes", Some(&exabgp.attributes)),
            ("backup_attributes", exabgp.backup_attributes.as_ref()),
        ];
        for (key, text) in attributes {
            if text.is_some_and(|text| !text.bytes().all(|byte| matches!(byte, b' '..=b'~'))) {
                return self.error(&path.key(key), "ExaBGP is told one line of plain text").none();
            }
        }
        Some(Speaker::ExaBgp {
            prefixes: prefixes.to_vec(),
            attributes: exabgp.attributes.clone(),
            backup: exabgp.backup_attributes.clone(),
        })
    }
}

fn is_symbol(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(plain)
        && !name.as_bytes()[0].is_ascii_digit()
}

fn is_prefix(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}
