//! Links with a digest and an end: nginx's `secure_link` (MD5 over a text with the secret in it), or
//! HMAC-SHA-256.

use std::{fmt, net::IpAddr, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use md5::{Digest as _, Md5};
use percent_encoding::percent_decode_str;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::{CannotSign, take_argument, with_argument};

/// How a link is signed.
#[derive(Clone, PartialEq, Eq)]
pub struct Link {
    /// The digest.
    pub digest: Digest,
    /// The text that the digest is over.
    pub message: Message,
    /// The secrets: the first signs, each is valid.
    pub secrets: Vec<String>,
    /// The argument of the query with the digest.
    pub signature: String,
    /// The argument with the end, in seconds of Unix time.
    pub expires: String,
}

/// A digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// MD5, as nginx's `secure_link_md5`.
    Md5,
    /// HMAC-SHA-256 with the secret as key.
    HmacSha256,
}

/// The text that a digest is over, with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Expires,
    Path,
    Client,
    Secret,
}

/// The text is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a text with the variables {{expires}}, {{path}}, {{client}} and {{secret}}")]
pub struct BadMessage;

impl Message {
    /// Whether the secret stands in it.
    pub fn has_secret(&self) -> bool {
        self.0.contains(&Part::Secret)
    }

    /// Whether the path stands in it: otherwise one signature is good for all.
    pub fn has_path(&self) -> bool {
        self.0.contains(&Part::Path)
    }

    /// Whether the end directly follows the path: digits could move from one to the other, and a link to `/part12`
    /// would be one to `/part1` that is valid for longer.
    pub fn is_ambiguous(&self) -> bool {
        self.0.windows(2).any(|pair| matches!(pair, [Part::Path, Part::Expires]))
    }

    fn has_client(&self) -> bool {
        self.0.contains(&Part::Client)
    }

    fn fill(&self, secret: &str, path: &[u8], client: Option<IpAddr>, expires: &str) -> Vec<u8> {
        let mut text = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(own) => text.extend_from_slice(own.as_bytes()),
                Part::Expires => text.extend_from_slice(expires.as_bytes()),
                Part::Path => text.extend_from_slice(path),
                Part::Client => {
                    text.extend(client.iter().flat_map(|ip| ip.to_string().into_bytes()))
                }
                Part::Secret => text.extend_from_slice(secret.as_bytes()),
            }
        }
        text
    }
}

impl Link {
    pub(super) fn check(
        &self,
        target: &str,
        client: IpAddr,
        now: u64,
    ) -> Result<String, &'static str> {
        let (shown, rest) = take_argument(target, &self.signature);
        let (expires, rest) = take_argument(&rest, &self.expires);
        // With or without padding, as nginx.
        let shown = shown.and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok());
        let shown = shown.ok_or("the link has no signature")?;
        let expires = expires.ok_or("the link has no end")?;
        let end: u64 = expires.parse().map_err(|_| "the link has no end")?;
        let path = decoded_path(&rest);
        let is_good = |secret: &String| {
            let message = self.message.fill(secret, &path, Some(client.to_canonical()), &expires);
            bool::from(self.digest.over(&message, secret).ct_eq(&shown))
        };
        if !self.secrets.iter().any(is_good) {
            return Err("the link's signature is wrong");
        }
        if end < now { Err("the link has expired") } else { Ok(rest) }
    }

    pub(super) fn sign(
        &self,
        target: &str,
        client: Option<IpAddr>,
        expires: u64,
    ) -> Result<String, CannotSign> {
        if self.message.has_client() && client.is_none() {
            return Err(CannotSign("the link is for one client: give its address"));
        }
        let secret = self.secrets.first().ok_or(CannotSign("there is no secret"))?;
        let expires = expires.to_string();
        let message = self.message.fill(secret, &decoded_path(target), client, &expires);
        let signature = URL_SAFE_NO_PAD.encode(self.digest.over(&message, secret));
        let target = with_argument(target, &self.expires, &expires);
        Ok(with_argument(&target, &self.signature, &signature))
    }
}

/// The path as nginx's `$uri` has it: without the query, and decoded.
fn decoded_path(target: &str) -> Vec<u8> {
    percent_decode_str(target.split('?').next().unwrap_or_default()).collect()
}

impl Digest {
    fn over(self, message: &[u8], secret: &str) -> Vec<u8> {
        match self {
            Self::Md5 => Md5::digest(message).to_vec(),
            Self::HmacSha256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
                hmac::sign(&key, message).as_ref().to_vec()
            }
        }
    }
}

impl FromStr for Message {
    type Err = BadMessage;

    fn from_str(text: &str) -> Result<Self, BadMessage> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let (name, after) = after.split_once('}').ok_or(BadMessage)?;
            parts.push(match name {
                "expires" => Part::Expires,
                "path" => Part::Path,
                "client" => Part::Client,
                "secret" => Part::Secret,
                _ => return Err(BadMessage),
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if parts.contains(&Part::Expires) { Ok(Self(parts)) } else { Err(BadMessage) }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secrets.
        f.debug_struct("Link").field("digest", &self.digest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(digest: Digest, message: &str) -> Link {
        Link {
            digest,
            message: message.parse().unwrap(),
            secrets: vec!["new".to_owned(), "secret".to_owned()],
            signature: "md5".to_owned(),
            expires: "expires".to_owned(),
        }
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn link_of_nginx_manual_is_valid_until_its_end() {
        let link = link(Digest::Md5, "{expires}{path}{client} {secret}");
        // echo -n '2147483647/s/link127.0.0.1 secret' | openssl md5 -binary | openssl base64 | tr +/ -_ | tr -d =
        let target = "/s/link?md5=_e4Nc3iduzkWRm01TBBNYw&expires=2147483647";
        assert_eq!(link.check(target, CLIENT, 2_147_483_647), Ok("/s/link".to_owned()));
        assert_eq!(link.check(target, CLIENT, 2_147_483_648), Err("the link has expired"));
        for (target, client) in [
            (target, "127.0.0.2"),
            ("/s/other?md5=_e4Nc3iduzkWRm01TBBNYw&expires=2147483647", "127.0.0.1"),
            ("/s/link?md5=_e4Nc3iduzkWRm01TBBNYw&expires=2147483648", "127.0.0.1"),
        ] {
            let wrong = Err("the link's signature is wrong");
            assert_eq!(link.check(target, client.parse().unwrap(), 0), wrong, "{target}");
        }
        for target in
            ["/s/link", "/s/link?md5=x", "/s/link?md5=&expires=", "/s/link?md5=_e4&expires=a"]
        {
            assert!(link.check(target, CLIENT, 0).is_err(), "{target}");
        }
    }

    #[test]
    fn link_that_was_signed_is_valid_and_keeps_its_other_arguments() {
        for (digest, message) in
            [(Digest::Md5, "{expires}{path} {secret}"), (Digest::HmacSha256, "{expires}{path}")]
        {
            let link = link(digest, message);
            let signed = link.sign("/a%20b?x=1&y=2", None, 100).unwrap();
            assert_eq!(link.check(&signed, CLIENT, 100), Ok("/a%20b?x=1&y=2".to_owned()));
            assert!(link.check(&signed, CLIENT, 101).is_err());
            // A secret that is on its way out is still valid; one that is gone is not.
            let before = Link { secrets: vec!["secret".to_owned()], ..link.clone() };
            let old = before.sign("/a", None, 100).unwrap();
            assert!(link.check(&old, CLIENT, 0).is_ok());
            assert!(before.check(&signed, CLIENT, 0).is_err());
        }
    }

    #[test]
    fn message_has_an_end_and_known_variables() {
        for text in ["", "{path}", "{expires", "{expires}{cookie}"] {
            assert_eq!(text.parse::<Message>(), Err(BadMessage), "{text}");
        }
        let has_path = |text: &str| text.parse::<Message>().unwrap().has_path();
        assert!(has_path("{expires}{path}") && !has_path("{expires} {secret}"));
        let is_ambiguous = |text: &str| text.parse::<Message>().unwrap().is_ambiguous();
        assert!(is_ambiguous("{path}{expires}"));
        assert!(!is_ambiguous("{expires}{path}") && !is_ambiguous("{path} {expires}"));
    }
}
