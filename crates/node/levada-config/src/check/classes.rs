//! Rules of service classes: whether they are valid, whether each can ever be the first to match, and
//! whether the policy uses classes at all.

use levada_policy::Need;
use levada_policy::classify::{ClassRule, ClassRules};
use levada_redirector::{ClassSettings, PolicyChoice};
use levada_types::ServiceClass;
use levada_types::document::Path;
use regex::RegexBuilder;

use super::{
    Check,
    parts::{each, placed},
};
use crate::file::{self, OneOrMany};

/// The largest size of a compiled regular expression, in bytes.
const LARGEST_REGEX: usize = 1 << 20;

impl Check<'_, '_> {
    pub(super) fn classes(&mut self, site: &file::Site, path: &Path) -> Option<ClassSettings> {
        let list = path.key("class");
        let rules =
            each(placed(&site.class, &list, false), |(path, rule)| self.class_rule(rule, &path));
        let rules = ClassRules(rules?);
        for (at, rule) in rules.0.iter().enumerate() {
            if let Some(why) = rule.never_matches() {
                self.warning(&list.index(at), format!("never matches: {why}"));
            }
            self.tls_can_be(rule, &list.index(at));
        }
        let covered: Vec<_> = rules.covered().collect();
        for (at, before) in covered {
            let message = format!("never matches: {} is about all of it", list.index(before));
            self.warning(&list.index(at), message)
                .help("the first rule that matches counts: put the narrower one first");
        }
        let contested: Vec<_> = rules.contested().collect();
        for (at, before) in contested {
            let class = rules.0[before].class.map_or("learned", ServiceClass::as_str);
            let message = format!(
                "overlaps {}: a request that both are about is {class}, as the first says",
                list.index(before)
            );
            let help =
                "should it be otherwise, put this rule first, or one about just these requests";
            self.warning(&list.index(at), message).help(help);
        }
        Some(ClassSettings { rules, learn: site.learn_classes })
    }

    fn class_rule(&mut self, rule: &file::ClassRule, path: &Path) -> Option<ClassRule> {
        let words = |list: &Option<OneOrMany<String>>| {
            list.as_ref().map(|list| list.as_slice().to_vec()).unwrap_or_default()
        };
        let regex = match &rule.regex {
            None => None,
            Some(text) => match RegexBuilder::new(text).size_limit(LARGEST_REGEX).build() {
                Ok(regex) => Some(regex),
                Err(error) => {
                    let error = error.to_string();
                    let reason = error.lines().last().unwrap_or_default();
                    let reason = reason.trim_start_matches("error: ");
                    let message = format!("is no regular expression: {reason}");
                    let help = "as in Rust's regex crate: no look-around, no references back; \
                                    write it in single quotes";
                    let at = path.key("regex");
                    return self.error(&at, message).help(help).none();
                }
            },
        };
        let methods = words(&rule.method);
        if let Some(wrong) = methods.iter().find(|m| http::Method::try_from(m.as_str()).is_err()) {
            return self.error(&path.key("method"), format!("{wrong:?} is no method")).none();
        }
        Some(ClassRule {
            class: rule.class,
            prefix: rule.prefix.clone(),
            suffix: rule.suffix.clone(),
            regex,
            methods: methods.iter().map(|method| method.to_ascii_uppercase()).collect(),
            content_types: words(&rule.content_type),
            tls: rule.tls,
        })
    }

    /// Whether any listener speaks the protocol of the rule.
    fn tls_can_be(&mut self, rule: &ClassRule, path: &Path) {
        let Some(tls) = rule.tls else { return };
        if !self.file.listen.iter().any(|listen| (listen.acme || !listen.tls.is_empty()) == tls) {
            let which = if tls { "has certificates" } else { "is without certificates" };
            self.warning(&path.key("tls"), format!("never matches: no `[[listen]]` {which}"));
        }
    }

    /// A policy that uses classes needs a source of classes.
    pub(super) fn classes_are_there(
        &mut self,
        policy: &PolicyChoice,
        site: &file::Site,
        path: &Path,
    ) {
        let entry = levada_policy::find(&policy.name);
        let Some(entry) = entry.filter(|entry| entry.needs.contains(&Need::Class)) else { return };
        if site.class.is_empty() && !site.learn_classes && !self.findings.has(&path.key("class")) {
            let message = format!(
                "is distributed by {:?}, but has no classes: every request is of the normal one",
                entry.name
            );
            let help = "add `[[site.class]]`, or `learn_classes = true`; `levada classify` proposes \
                        rules from an access log";
            self.warning(path, message).help(help);
        }
    }
}
