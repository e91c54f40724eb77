//! The hosts that conditions name. Each becomes a site, in which such conditions hold always or never.

use std::collections::BTreeSet;

use levada_conversion::comparisons::Test;

/// The hosts of a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hosts {
    /// One host.
    Exactly(String),
    /// All names below a host.
    Below(String),
    /// All hosts of no other site.
    Others,
    /// All hosts, where there are too many for a site each.
    Any,
}

impl Hosts {
    /// As a site names them.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Exactly(host) => host.clone(),
            Self::Below(host) => format!("*.{host}"),
            Self::Others | Self::Any => "*".to_owned(),
        }
    }
}

/// A comparison of the host with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostTest {
    /// By this comparison of texts.
    Text(Test),
    /// The text is the name, or some labels of it.
    Domain,
}

/// Whether the hosts of a site have the text; none if some have it, and others have not.
pub(crate) fn holds(hosts: &Hosts, test: HostTest, text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    match (hosts, test) {
        (Hosts::Any, _) => None,
        (Hosts::Exactly(host), HostTest::Text(Test::Is)) => Some(*host == text),
        (Hosts::Exactly(host), HostTest::Text(Test::Begins)) => Some(host.starts_with(&text)),
        (Hosts::Exactly(host), HostTest::Text(Test::Ends)) => Some(host.ends_with(&text)),
        (Hosts::Exactly(host), HostTest::Text(Test::Contains)) => Some(host.contains(&text)),
        (Hosts::Exactly(host), HostTest::Text(Test::Matches)) => {
            regex::Regex::new(&format!("(?i){text}")).ok().map(|regex| regex.is_match(host))
        }
        (Hosts::Exactly(host), HostTest::Domain) => {
            Some(format!(".{host}.").contains(&format!(".{}.", text.trim_matches('.'))))
        }
        // Each host that is compared has a site of its own, which comes first.
        (Hosts::Below(_) | Hosts::Others, HostTest::Text(Test::Is)) if is_host(&text) => {
            Some(false)
        }
        (Hosts::Below(host), HostTest::Text(Test::Ends)) => {
            let end = format!(".{host}");
            // Names below a longer end have a site of their own.
            if end.ends_with(&text) || below(&text).is_some() {
                Some(end.ends_with(&text))
            } else {
                None
            }
        }
        (Hosts::Others, HostTest::Text(Test::Ends)) if below(&text).is_some() => Some(false),
        (Hosts::Below(host), HostTest::Domain)
            if format!(".{host}.").contains(&format!(".{}.", text.trim_matches('.'))) =>
        {
            Some(true)
        }
        _ => None,
    }
}

/// The sites that a comparison needs.
pub(crate) fn add(found: &mut BTreeSet<Hosts>, test: HostTest, text: &str) {
    let text = text.to_ascii_lowercase();
    match test {
        HostTest::Text(Test::Is) if is_host(&text) => {
            found.insert(Hosts::Exactly(text));
        }
        HostTest::Text(Test::Ends) => {
            if let Some(host) = below(&text) {
                found.insert(Hosts::Below(host));
            }
        }
        HostTest::Domain if is_host(text.trim_matches('.')) => {
            found.insert(Hosts::Exactly(text.trim_matches('.').to_owned()));
            found.insert(Hosts::Below(text.trim_matches('.').to_owned()));
        }
        HostTest::Domain | HostTest::Text(_) => {}
    }
}

/// `example.com` of `.example.com`.
fn below(text: &str) -> Option<String> {
    text.strip_prefix('.').filter(|host| is_host(host)).map(str::to_owned)
}

/// Whether a site can have the name.
pub(crate) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
