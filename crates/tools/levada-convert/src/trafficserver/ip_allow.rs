//! `ip_allow.yaml`, and `ip_allow.config` of older versions: which clients may use which methods.
//!
//! The first rule with the address of a client counts, and a client of no rule is admitted. A rule for some methods is
//! the opposite for all others; such a rule is converted where it refuses methods that a node never passes on.

use std::sync::Arc;

use super::{Converter, Line, joined_lines, pairs, remap::is_address};
use crate::{
    gate::Concern,
    ledger::{Outcome, Place, TAKEN, differs, left, needless},
};

/// Methods of caches. A node has a token for purges, and passes the others on.
const OF_CACHES: [&str; 5] = ["PURGE", "PUSH", "DELETE", "TRACE", "CONNECT"];

/// One rule, with the line that it begins at.
#[derive(Default)]
struct Rule {
    line: usize,
    text: String,
    apply: String,
    action: String,
    addresses: Vec<String>,
    methods: Vec<String>,
}

impl Rule {
    /// The list, or the text, that a key names.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let values = value.trim_matches(['[', ']']).split(',').map(unquoted);
        let values = values.filter(|value| !value.is_empty()).map(str::to_owned);
        match key {
            "apply" => self.apply = unquoted(value).to_owned(),
            "action" => self.action = unquoted(value).to_ascii_lowercase(),
            "ip_addrs" | "ip_addr" => self.addresses.extend(values),
            "methods" | "method" => self.methods.extend(values.map(|one| one.to_ascii_uppercase())),
            _ => return None,
        }
        Some(())
    }

    fn is_for_all_methods(&self) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|method| method == "ALL")
    }
}

impl Converter {
    /// Reads the rules by their lines. A line of another form closes all sites.
    pub(super) fn ip_allow_yaml(&mut self, name: &Arc<str>, text: &str) {
        let mut rules: Vec<Rule> = Vec::new();
        let mut list = String::new();
        for (number, line) in joined_lines(text) {
            let line = line.split(" #").next().unwrap_or_default().trim();
            if matches!(line, "---" | "ip_allow:") {
                continue;
            }
            let item = line.strip_prefix("- ");
            let pair = item.unwrap_or(line).split_once(':');
            let pair =
                pair.filter(|(key, _)| key.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'));
            let read = match (item, pair) {
                (_, Some((key, value))) => {
                    if item.is_some() {
                        rules.push(Rule { line: number, text: line.to_owned(), ..Rule::default() });
                    }
                    key.clone_into(&mut list);
                    rules.last_mut().and_then(|rule| rule.set(key, value.trim()))
                }
                (Some(item), None) => {
                    rules.last_mut().and_then(|rule| rule.set(&list, item.trim()))
                }
                (None, None) => None,
            };
            if read.is_none() {
                let line = Line { place: Place { file: name.clone(), line: number }, text: line };
                self.close(&line, Concern::Access, left("this form of a rule is not read"));
            }
        }
        self.rules(name, &rules);
    }

    /// `src_ip=0.0.0.0-255.255.255.255 action=ip_deny method=PUSH|PURGE|DELETE`
    pub(super) fn ip_allow_config(&mut self, name: &Arc<str>, text: &str) {
        let rule = |(line, text): (usize, String)| {
            let mut rule = Rule { line, apply: "in".to_owned(), ..Rule::default() };
            for (key, value) in pairs(&text) {
                let known = match key.as_str() {
                    "src_ip" => rule.set("ip_addrs", &value),
                    "action" => rule.set("action", value.trim_start_matches("ip_")),
                    "method" => rule.set("methods", &value.replace('|', ",")),
                    _ => None,
                };
                if known.is_none() {
                    rule.action = String::new();
                }
            }
            Rule { text, ..rule }
        };
        let rules: Vec<_> = joined_lines(text).into_iter().map(rule).collect();
        self.rules(name, &rules);
    }

    fn rules(&mut self, name: &Arc<str>, rules: &[Rule]) {
        let mut list: Vec<String> = Vec::new();
        for rule in rules {
            let outcome = self.rule(rule, &mut list);
            let line =
                Line { place: Place { file: name.clone(), line: rule.line }, text: &rule.text };
            self.close(&line, Concern::Access, outcome);
        }
        if list.iter().any(|rule| rule.starts_with("deny")) {
            list.into_iter().for_each(|rule| self.defaults.push("access", rule));
        }
    }

    fn rule(&mut self, rule: &Rule, list: &mut Vec<String>) -> Outcome {
        if rule.apply == "out" {
            return needless("it is about connections to servers");
        }
        let verb = match rule.action.as_str() {
            "allow" | "set_allow" => "allow",
            "deny" | "set_deny" => "deny",
            _ => return left("there is no such action"),
        };
        let all = ["0/0", "::/0", "0.0.0.0/0", "0.0.0.0-255.255.255.255"];
        let is_all = |address: &String| {
            all.contains(&address.as_str()) || address.starts_with("::-ffff:ffff:")
        };
        if rule.is_for_all_methods() {
            if rule.addresses.is_empty()
                || !rule.addresses.iter().all(|one| is_all(one) || is_address(one))
            {
                return left("a rule is for addresses and prefixes");
            }
            list.extend(rule.addresses.iter().map(|address| match is_all(address) {
                true if address.starts_with("::") => format!("{verb} ::/0"),
                true => format!("{verb} 0.0.0.0/0"),
                false => format!("{verb} {address}"),
            }));
            return TAKEN;
        }
        let is_of_caches = |method: &String| OF_CACHES.contains(&method.as_str());
        if verb == "allow"
            || !rule.addresses.iter().all(is_all)
            || !rule.methods.iter().all(is_of_caches)
        {
            return left("a rule for some methods and addresses: write routes by `method`");
        }
        list.extend(rule.addresses.iter().map(|address| match address.starts_with("::") {
            true => "allow ::/0".to_owned(),
            false => "allow 0.0.0.0/0".to_owned(),
        }));
        for method in rule.methods.iter().filter(|method| *method != "PURGE") {
            if !self.refused_methods.contains(method) {
                self.refused_methods.push(method.clone());
            }
        }
        differs("the methods are refused to everybody; a purge has a token")
    }
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}
