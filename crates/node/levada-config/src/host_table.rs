//! Sites by host: the most exact pattern counts.

use std::collections::HashMap;

/// Values by host, found by the host of a request.
pub struct HostTable<T> {
    exact: HashMap<String, T>,
    /// By what follows the `*`: a dot and a name, or nothing.
    wildcards: HashMap<String, T>,
}

impl<T: Clone> HostTable<T> {
    /// The table of these, each with its host names: `*.example.com` stands for all below one, `*` for hosts that
    /// nothing else has.
    pub fn new<'h>(all: impl IntoIterator<Item = (&'h [String], T)>) -> Self {
        let mut table = Self { exact: HashMap::new(), wildcards: HashMap::new() };
        for (hosts, one) in all {
            for host in hosts {
                let host = host.to_ascii_lowercase();
                let (places, name) = match host.strip_prefix('*') {
                    Some(suffix) => (&mut table.wildcards, suffix.to_owned()),
                    None => (&mut table.exact, host),
                };
                places.entry(name).or_insert_with(|| one.clone());
            }
        }
        table
    }

    /// The value of `host`, which is in lower case and has no port.
    pub fn find(&self, host: &str) -> Option<&T> {
        self.exact.get(host).or_else(|| {
            // The longest suffix first: one look-up for each label of the host.
            let dots = host.match_indices('.').map(|(at, _)| at).filter(|at| *at > 0);
            let suffixes = dots.chain([host.len()]).map(|at| &host[at..]);
            suffixes.filter_map(|suffix| self.wildcards.get(suffix)).next()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_exact_pattern_counts() {
        let hosts = ["*", "*.a.test", "*.b.a.test", "b.a.test"].map(|host| [host.to_owned()]);
        let table = HostTable::new(hosts.iter().map(|hosts| (&hosts[..], &*hosts[0])));
        for (host, pattern) in [
            ("b.a.test", "b.a.test"),
            ("x.b.a.test", "*.b.a.test"),
            ("x.y.a.test", "*.a.test"),
            ("a.test", "*"),
            ("", "*"),
        ] {
            assert_eq!(table.find(host), Some(&pattern), "{host}");
        }
    }
}
