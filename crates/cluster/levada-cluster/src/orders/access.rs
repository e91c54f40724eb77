//! Rights to purge: by the node's own token, or by one of which the node knows the digest, and which may be bound to
//! hosts.

use http::HeaderMap;
use ring::digest::{SHA256, digest};

use crate::{
    admin_access::{shown, shows},
    purge::{PurgeOrder, PurgeTarget, absolute},
};

/// The tokens that a node takes purges by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeAccess {
    /// The node's own token, for all sites.
    pub token: Option<String>,
    /// Other ones.
    pub grants: Vec<PurgeGrant>,
}

/// A token that the node does not have itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeGrant {
    /// SHA-256 of the token, in lower-case hexadecimal digits.
    pub digest: String,
    /// The hosts that it may purge: `www.example.com`, or `*.example.com` for all below; none for all hosts.
    pub hosts: Vec<String>,
    /// When it ends: Unix time in seconds; `None` for one that does not.
    pub expires: Option<u64>,
}

impl PurgeAccess {
    /// Whether clients can purge at all.
    pub fn is_on(&self) -> bool {
        self.token.is_some() || !self.grants.is_empty()
    }

    /// The grant of the token that a request shows at `now`, in seconds of Unix time. The node's own token has one for
    /// all hosts.
    pub fn find(&self, headers: &HeaderMap, now: u64) -> Option<PurgeGrant> {
        if self.token.as_ref().is_some_and(|token| shows(token, headers)) {
            return Some(PurgeGrant::default());
        }
        // Digests are compared: their differences say nothing about the token.
        let digest = hexadecimal(digest(&SHA256, shown(headers)?).as_ref());
        let of_token = |grant: &&PurgeGrant| {
            grant.digest == digest && grant.expires.is_none_or(|end| end > now)
        };
        self.grants.iter().find(of_token).cloned()
    }
}

impl PurgeGrant {
    /// Whether an order stays within the hosts.
    pub fn allows(&self, order: &PurgeOrder) -> bool {
        if self.hosts.is_empty() {
            return true;
        }
        match &order.target {
            PurgeTarget::Urls(urls) | PurgeTarget::Prefixes(urls) => {
                urls.iter().all(|url| absolute(url).is_ok_and(|url| self.has(url.host())))
            }
            PurgeTarget::Tags(_, site) | PurgeTarget::All(site) => {
                site.as_ref().is_some_and(|host| self.has(host))
            }
            PurgeTarget::Groups(..) | PurgeTarget::Invalid(_) => false,
        }
    }

    fn has(&self, host: &str) -> bool {
        let host = levada_store::identity::without_port(host).to_ascii_lowercase();
        self.hosts.iter().any(|own| match own.strip_prefix('*') {
            Some(below) => host.len() > below.len() && host.ends_with(&below.to_ascii_lowercase()),
            None => own.eq_ignore_ascii_case(&host),
        })
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::AUTHORIZATION};

    use super::*;

    fn order(json: &str) -> PurgeOrder {
        PurgeOrder::from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn token_is_known_by_its_digest_until_it_ends() {
        let digest = hexadecimal(digest(&SHA256, b"purge-1.secret").as_ref());
        let grant = PurgeGrant { digest, hosts: Vec::new(), expires: Some(100) };
        let access = PurgeAccess { token: Some("own".to_owned()), grants: vec![grant.clone()] };
        let find = |token: &str, now| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            headers.insert(AUTHORIZATION, value);
            access.find(&headers, now)
        };
        assert_eq!(find("own", 1000), Some(PurgeGrant::default()));
        assert_eq!(find("purge-1.secret", 99), Some(grant));
        assert_eq!(find("purge-1.secret", 100), None);
        assert_eq!(find("purge-1.other", 0), None);
        assert_eq!(access.find(&HeaderMap::new(), 0), None);
    }

    #[test]
    fn grant_keeps_to_its_hosts() {
        let hosts = vec!["www.a.test".to_owned(), "*.b.test".to_owned()];
        let grant = PurgeGrant { hosts, ..PurgeGrant::default() };
        for (json, allowed) in [
            (r#"{"url": "http://WWW.a.test:80/x"}"#, true),
            (r#"{"url": ["http://www.a.test/x", "http://a.test/x"]}"#, false),
            (r#"{"prefix": "https://img.b.test"}"#, true),
            (r#"{"prefix": "http://b.test/"}"#, false),
            (r#"{"prefix": "http://www.a.test.evil/"}"#, false),
            (r#"{"tag": "x", "site": "www.a.test"}"#, true),
            (r#"{"tag": "x"}"#, false),
            (r#"{"all": true}"#, false),
            (r#"{"all": true, "site": "xb.test"}"#, false),
        ] {
            assert_eq!(grant.allows(&order(json)), allowed, "{json}");
            assert!(PurgeGrant::default().allows(&order(json)));
        }
    }
}
