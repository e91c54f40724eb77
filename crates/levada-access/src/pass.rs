//! Passes of redirects between nodes.
//!
//! A redirect to a peer carries this argument: the host that was asked for, until when it is good,
//! and the cluster's signature. A client can neither make one nor move it to another URL or node.

use crate::tls;

/// The name of the query argument.
pub const ARGUMENT: &str = "levada-pass";
/// How long a pass is good, in seconds: long enough to follow a redirect.
pub const GOOD_FOR: u64 = 60;

/// The target with a pass for `node` appended.
pub fn issue(secret: &str, node: &str, host: &str, target: &str, now: u64) -> String {
    let until = now + GOOD_FOR;
    let mark = signature(secret, node, host, target, until);
    let join = if target.contains('?') { '&' } else { '?' };
    format!("{target}{join}{ARGUMENT}={until:x}.{mark}.{host}")
}

/// The contents of a pass that was made for `node`.
pub struct Pass {
    /// The host that was asked for.
    pub host: String,
    /// Path and query, without the pass.
    pub target: String,
    /// The client may come in by it; later, as in a bookmark, it only tells what was asked for.
    pub in_time: bool,
}

/// Reads the pass of a request target; `None` for any other target.
pub fn check(secret: &str, node: &str, target: &str, now: u64) -> Option<Pass> {
    let at = target.rfind(ARGUMENT).filter(|at| *at > 0)?;
    let original = &target[..at - 1];
    let value = target[at + ARGUMENT.len()..].strip_prefix('=')?;
    let (until, rest) = value.split_once('.')?;
    let (mark, host) = rest.split_once('.')?;
    let until = u64::from_str_radix(until, 16).ok()?;
    let expected = signature(secret, node, host, original, until);
    tls::equal(mark.as_bytes(), expected.as_bytes()).then(|| Pass {
        host: host.to_owned(),
        target: original.to_owned(),
        in_time: until >= now,
    })
}

fn signature(secret: &str, node: &str, host: &str, target: &str, until: u64) -> String {
    let message = format!("{node}\n{host}\n{target}\n{until}");
    let mark = tls::sign(secret.as_bytes(), message.as_bytes());
    mark.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_at_one_node_for_a_while() {
        let check = |secret, node, url: &str, now| {
            check(secret, node, url, now).map(|pass| (pass.host, pass.target, pass.in_time))
        };
        for target in ["/a", "/a?b=c"] {
            let url = issue("secret", "b", "example.com", target, 1000);
            let checked = check("secret", "b", &url, 1000 + GOOD_FOR);
            assert_eq!(checked, Some(("example.com".into(), target.into(), true)));
            assert_eq!(check("secret", "c", &url, 1000), None, "another node");
            assert_eq!(check("other", "b", &url, 1000), None, "another cluster");
            let late = check("secret", "b", &url, 1001 + GOOD_FOR);
            assert_eq!(late, Some(("example.com".into(), target.into(), false)), "too late");
            let moved = url.replacen("/a", "/z", 1);
            assert_eq!(check("secret", "b", &moved, 1000), None, "another path");
        }
        assert_eq!(check("secret", "b", "/plain?x=1", 0), None);
        assert_eq!(check("secret", "b", "levada-pass=1.2.3", 0), None);
    }
}
