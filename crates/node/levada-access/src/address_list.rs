//! Allow and deny by the client's address and country, in nginx's order: the first rule that matches decides, and
//! a client that no rule matches may pass.

use std::{fmt, net::IpAddr, str::FromStr, sync::Arc};

use levada_types::AddressPrefix;

use crate::country::{Countries, CountryCode};

/// One rule, such as `allow 10.0.0.0/8`, `deny country XX` or `deny all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRule {
    allows: bool,
    clients: Clients,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    All,
    Within(AddressPrefix),
    Country(CountryCode),
}

/// The text is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected `allow` or `deny`, and then `all`, an address, a prefix or `country` and a code of two letters"
)]
pub struct NoAddressRule;

impl AddressRule {
    /// Whether the rule asks for the client's country.
    pub fn needs_country(&self) -> bool {
        matches!(self.clients, Clients::Country(_))
    }
}

/// Whether the client may pass. The country is looked up once, and only for a rule that asks for it.
pub fn admits(rules: &[AddressRule], countries: Option<&Arc<Countries>>, client: IpAddr) -> bool {
    let mut country = None;
    for rule in rules {
        let matches = match rule.clients {
            Clients::All => true,
            Clients::Within(prefix) => prefix.contains(client),
            Clients::Country(code) => {
                let look_up = || countries.and_then(|countries| countries.of(client));
                *country.get_or_insert_with(look_up) == Some(code)
            }
        };
        if matches {
            return rule.allows;
        }
    }
    true
}

impl FromStr for AddressRule {
    type Err = NoAddressRule;

    fn from_str(text: &str) -> Result<Self, NoAddressRule> {
        let mut words = text.split_ascii_whitespace();
        let allows = match words.next() {
            Some("allow") => true,
            Some("deny") => false,
            _ => return Err(NoAddressRule),
        };
        let clients = match (words.next(), words.next(), words.next()) {
            (Some("all"), None, None) => Clients::All,
            (Some("country"), Some(code), None) => {
                Clients::Country(code.parse().map_err(|_| NoAddressRule)?)
            }
            (Some(prefix), None, None) => {
                Clients::Within(prefix.parse().map_err(|_| NoAddressRule)?)
            }
            _ => return Err(NoAddressRule),
        };
        Ok(Self { allows, clients })
    }
}

impl fmt::Display for AddressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.allows { "allow " } else { "deny " })?;
        match self.clients {
            Clients::All => f.write_str("all"),
            Clients::Within(prefix) => prefix.fmt(f),
            Clients::Country(code) => write!(f, "country {code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<AddressRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn first_rule_that_matches_decides() {
        let rules =
            rules(&["deny 192.168.1.1", "allow 192.168.1.0/24", "allow 2001:db8::/32", "deny all"]);
        let passes = |client: &str| admits(&rules, None, client.parse().unwrap());
        assert!(!passes("192.168.1.1"));
        assert!(passes("192.168.1.2") && passes("::ffff:192.168.1.2") && passes("2001:db8::7"));
        assert!(!passes("192.168.2.1") && !passes("2001:db9::7"));
    }

    #[test]
    fn client_that_no_rule_matches_passes() {
        let deny = rules(&["deny 192.168.1.1", "deny country XX"]);
        assert!(admits(&deny, None, "192.168.1.2".parse().unwrap()));
        assert!(admits(&[], None, "192.168.1.2".parse().unwrap()));
    }

    #[test]
    fn rule_is_written_as_it_is_read() {
        for text in
            ["allow all", "deny all", "allow 10.0.0.0/8", "deny ::1/128", "allow country DE"]
        {
            assert_eq!(text.parse::<AddressRule>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "allow",
            "permit all",
            "allow 10.0.0.1/8",
            "deny country",
            "deny country D1",
            "deny a b",
        ] {
            assert_eq!(text.parse::<AddressRule>(), Err(NoAddressRule), "{text}");
        }
    }
}
