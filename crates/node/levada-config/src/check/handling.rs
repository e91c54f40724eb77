//! The keys that can differ per route.

use std::sync::Arc;

use crate::settings::Handling;
use levada_access::access::AccessSettings;
use levada_cache::CacheRules;
use levada_rules::Conditions;

use super::{Check, levels::KeyLevels};
use crate::file;

impl Check<'_, '_> {
    /// The handling of a site or of a route, from keys that were laid over those of the levels around it.
    pub(super) fn handling(
        &mut self,
        of: &file::Handling,
        route: &Conditions,
        levels: &KeyLevels,
    ) -> Option<Handling> {
        self.rules(of, levels);
        let adjustments = self.adjustments(of, route, levels);
        let compress = self.compress(of, levels);
        let caching = self.caching(of, levels);
        let lifetimes = self.lifetimes(of, levels);
        let fetch_fields = self.fetch_fields(of, levels);
        let (ttl, status_ttl) = lifetimes?;
        Some(Handling {
            cache: of.cache,
            rules: CacheRules { ttl, status_ttl, ..of.into() },
            caching: caching?,
            debug: of.debug,
            compress,
            adjustments: adjustments?,
            // The caller knows which level states each rule.
            access: AccessSettings::default(),
            websocket: of.websocket,
            fetch_fields: fetch_fields?,
            deception_armour: of.deception_armour,
            // It follows from all routes of the site.
            space: None,
        })
    }

    /// A handling with these rules of access. Fields that `forward_auth` copies belong to the key: the origin may
    /// answer each value differently.
    pub(super) fn handled(
        &mut self,
        handling: Handling,
        access: AccessSettings,
        (site, levels): (&file::Site, &KeyLevels),
    ) -> Option<Handling> {
        let copied = access.forward.as_ref().map_or(&[][..], |forward| &forward.copy_headers);
        if copied.is_empty() {
            return Some(Handling { access, ..handling });
        }
        let path = levels.key(self.findings, "forward_auth").key("copy_headers");
        if site.delivery == file::Delivery::Redirect {
            let message =
                "cannot stand beside `delivery = \"redirect\"`: the client would bring the fields";
            return self.error(&path, message).help("deliver by \"proxy\"").none();
        }
        if site.large.enabled && handling.cache {
            self.error(&path, "cannot stand beside `large`: its pieces are the same for all")
                .help("set `cache = false` in this route, or copy nothing");
            return None;
        }
        let mut caching = handling.caching.as_deref().cloned().unwrap_or_default();
        let new = copied.iter().filter(|name| !caching.key.headers.contains(name)).cloned();
        let new: Vec<_> = new.collect();
        caching.key.headers.extend(new);
        Some(Handling { access, caching: Some(Arc::new(caching)), ..handling })
    }

    /// Warns about settings that cancel each other, or endanger a site's users.
    fn rules(&mut self, of: &file::Handling, levels: &KeyLevels) {
        let at = |check: &Self, key| levels.key(check.findings, key);
        if of.debug {
            self.warning(&at(self, "debug"), "shows every client how nodes are chosen")
                .help("meant for finding a mistake; switch it off afterwards");
        }
        if of.store_cookies == file::Cookies::Always {
            let message = "hands a cookie that is set for one client to all of them";
            self.warning(&at(self, "store_cookies"), message)
                .help("meant for origins whose cookies identify nobody");
        }
        for key in ["heuristic_percent", "heuristic_max"] {
            if of.default_ttl.is_some() && levels.have(self.findings, key) {
                let message = "has no effect beside `default_ttl`, which comes first";
                self.warning(&at(self, key), message);
            }
        }
    }
}
