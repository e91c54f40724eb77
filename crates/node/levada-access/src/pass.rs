//! Passes of redirects between nodes.
//!
//! A redirect to a peer carries this argument: the host that was asked for, until when it is good,
//! and the cluster's signature. A client can neither make one nor move it to another URL or node.

use levada_tls::secret::{self, Secrets};

/// The name of the query argument.
pub const ARGUMENT: &str = "levada-pass";
/// How long a pass is good, in seconds: long enough to follow a redirect.
pub const GOOD_FOR: u64 = 60;

/// The node, the route and the host that a pass is for.
#[derive(Clone, Copy)]
pub struct PassScope<'a> {
    /// The node that the client is sent to.
    pub node: &'a str,
    /// The route that the request took: another one has rules of its own.
    pub route: Option<&'a str>,
    /// The host that was asked for.
    pub host: &'a str,
}

/// The target with a pass appended.
pub fn issue(secrets: &Secrets, of: PassScope<'_>, target: &str, now: u64) -> String {
    let until = now + GOOD_FOR;
    let mark = signature(secrets.first(), of, target, until);
    let join = if target.contains('?') { '&' } else { '?' };
    format!("{target}{join}{ARGUMENT}={until:x}.{mark}.{}", of.host)
}

/// A pass as a client states it.
pub struct Pass<'t> {
    /// The host that was asked for.
    pub host: &'t str,
    /// Path and query, without the pass.
    pub target: &'t str,
    until: u64,
    mark: &'t str,
}

impl<'t> Pass<'t> {
    /// Reads the pass of a request target; `None` for any other target.
    pub fn read(target: &'t str) -> Option<Self> {
        let at = target.rfind(ARGUMENT).filter(|at| *at > 0)?;
        let value = target[at + ARGUMENT.len()..].strip_prefix('=')?;
        let (until, rest) = value.split_once('.')?;
        let (mark, host) = rest.split_once('.')?;
        let until = u64::from_str_radix(until, 16).ok()?;
        Some(Self { host, target: &target[..at - 1], until, mark })
    }

    /// Whether a node of the cluster has made it for this node and route.
    pub fn is_for(&self, secrets: &Secrets, node: &str, route: Option<&str>) -> bool {
        let of = PassScope { node, route, host: self.host };
        secrets.iter().any(|secret| {
            let expected = signature(secret, of, self.target, self.until);
            secret::equal(self.mark.as_bytes(), expected.as_bytes())
        })
    }

    /// Whether the client may come in by it; later, as in a bookmark, it only tells what was asked for.
    pub fn is_in_time(&self, now: u64) -> bool {
        self.until >= now
    }
}

fn signature(secret: &str, of: PassScope<'_>, target: &str, until: u64) -> String {
    let PassScope { node, route, host } = of;
    let message = format!("{node}\n{host}\n{target}\n{until}\n{}", route.unwrap_or_default());
    let mark = secret::sign(secret.as_bytes(), message.as_bytes());
    mark.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_at_one_node_and_route_for_a_while() {
        let of = PassScope { node: "b", route: Some("r"), host: "example.com" };
        let (own, other) = (&Secrets::from("secret"), &Secrets::from("other"));
        let both = &Secrets::new(vec!["other".to_owned(), "secret".to_owned()]).unwrap();
        for target in ["/a", "/a?b=c"] {
            let url = issue(own, of, target, 1000);
            let pass = Pass::read(&url).unwrap();
            assert_eq!((pass.host, pass.target), ("example.com", target));
            assert!(pass.is_for(own, "b", Some("r")));
            assert!(pass.is_for(both, "b", Some("r")), "each secret is accepted");
            let of_first = issue(both, of, target, 1000);
            assert!(
                Pass::read(&of_first).unwrap().is_for(other, "b", Some("r")),
                "the first signs"
            );
            assert!(!pass.is_for(own, "c", Some("r")), "another node");
            assert!(!pass.is_for(other, "b", Some("r")), "another cluster");
            assert!(!pass.is_for(own, "b", None), "no route");
            assert!(!pass.is_for(own, "b", Some("admin")), "another route");
            assert!(pass.is_in_time(1000 + GOOD_FOR) && !pass.is_in_time(1001 + GOOD_FOR));
            let moved = url.replacen("/a", "/z", 1);
            assert!(!Pass::read(&moved).unwrap().is_for(own, "b", Some("r")), "another path");
        }
        assert!(Pass::read("/plain?x=1").is_none());
        assert!(Pass::read("levada-pass=1.2.3").is_none());
    }
}
