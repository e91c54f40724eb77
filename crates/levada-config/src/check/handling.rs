//! The keys that can differ per route.

use levada_edge::settings::{AccessSettings, CacheRules, Handling};
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
        let (ttl, status_ttl) = lifetimes?;
        Some(Handling {
            cache: of.cache,
            rules: CacheRules { ttl, status_ttl, ..of.into() },
            caching: caching?,
            debug: of.debug,
            compress: compress?,
            adjustments: adjustments?,
            // The caller knows which level states each rule.
            access: AccessSettings::default(),
        })
    }

    /// Warns about settings that cancel each other, or endanger a site's users.
    fn rules(&mut self, of: &file::Handling, levels: &KeyLevels) {
        let at = |check: &Self, key| levels.key(check.findings, key);
        if of.debug {
            let message = "shows every client how nodes are chosen";
            let help = "meant for finding a mistake; switch it off afterwards".to_owned();
            self.findings.warning(&at(self, "debug"), message, Some(help));
        }
        if of.store_cookies == file::Cookies::Always {
            let message = "hands a cookie that is set for one client to all of them";
            let help = "meant for origins whose cookies identify nobody".to_owned();
            self.findings.warning(&at(self, "store_cookies"), message, Some(help));
        }
        for key in ["heuristic_percent", "heuristic_max"] {
            if of.default_ttl.is_some() && levels.have(self.findings, key) {
                let message = "has no effect beside `default_ttl`, which comes first";
                self.findings.warning(&at(self, key), message, None);
            }
        }
    }
}
