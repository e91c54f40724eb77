//! Tokens: a JSON Web Signature in compact form (RFC 7515) in the URL or in a cookie.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::json;

use super::{
    CannotSign, RequestUrl,
    claims::{Claims, container_of},
    jwk::{Algorithm, Issuers},
    take_argument, with_argument,
};
use crate::limit_key::cookie;

/// The name of the argument, path parameter or cookie (RFC 9246 Sec. 2.2).
pub const PACKAGE: &str = "URISigningPackage";
/// The longest token. Heads are bounded, too.
const LONGEST: usize = 8 << 10;

/// How tokens are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The parties that may sign.
    pub issuers: Issuers,
    /// The name of this CDN in `aud`.
    pub audience: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<serde_json::Value>,
}

impl Tokens {
    pub(super) fn check(
        &self,
        url: &RequestUrl<'_>,
        headers: &HeaderMap,
        now: u64,
    ) -> Result<String, &'static str> {
        let (token, target) = take(url.target);
        let in_cookie = || cookie(headers, PACKAGE).map(str::to_owned);
        let token = token.or_else(in_cookie).ok_or("the request has no token")?;
        let claims = self.verify(&token)?;
        let whole = format!("{}://{}{target}", url.scheme, url.host);
        claims.allow(&whole, self.audience.as_deref(), now)?;
        Ok(target)
    }

    /// The claims of a token that one of the issuers has signed.
    fn verify(&self, token: &str) -> Result<Claims, &'static str> {
        const FORM: &str = "the token has no valid form";
        if token.len() > LONGEST {
            return Err(FORM);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(FORM)?;
        let (header, payload) = signed.split_once('.').ok_or(FORM)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| FORM);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| FORM)?;
        let claims: Claims = serde_json::from_slice(&decode(payload)?).map_err(|_| FORM)?;
        let signature = decode(signature)?;
        let alg = match header.alg.as_str() {
            "HS256" => Algorithm::HS256,
            "ES256" => Algorithm::ES256,
            "EdDSA" => Algorithm::EdDSA,
            _ => return Err("the token's algorithm is not accepted"),
        };
        if header.crit.is_some() {
            return Err("the token's header has extensions that are not supported");
        }
        let keys = claims.iss.as_deref().and_then(|issuer| self.issuers.of(issuer));
        let keys = keys.ok_or("the token's issuer is not known")?;
        let mut named = keys.named(header.kid.as_deref(), alg).peekable();
        if named.peek().is_none() {
            return Err("the token's key is not known");
        }
        let is_good = named.any(|key| key.verifies(signed.as_bytes(), &signature));
        if is_good { Ok(claims) } else { Err("the token's signature is wrong") }
    }

    pub(super) fn sign(&self, url: &RequestUrl<'_>, expires: u64) -> Result<String, CannotSign> {
        let missing =
            CannotSign("no issuer in the key file has a `renewal_kid`, the key that signs");
        let (issuer, key) = self.issuers.signing().ok_or(missing)?;
        let whole = format!("{}://{}{}", url.scheme, url.host, url.target);
        let header = json!({ "alg": key.alg.as_str(), "kid": key.kid });
        let mut claims = json!({ "iss": issuer, "exp": expires, "cdniuc": container_of(&whole) });
        if let Some(audience) = &self.audience {
            claims["aud"] = json!(audience);
        }
        let encode = |part: &serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
        Ok(with_argument(url.target, PACKAGE, &format!("{signed}.{signature}")))
    }
}

/// The token of a target, and the target without it: an argument of the query, or a parameter of the path.
fn take(target: &str) -> (Option<String>, String) {
    let (token, rest) = take_argument(target, PACKAGE);
    if token.is_some() {
        return (token, rest);
    }
    let parameter = format!(";{PACKAGE}=");
    let path = target.split('?').next().unwrap_or_default();
    let Some(at) = path.find(&parameter) else { return (None, rest) };
    let begin = at + parameter.len();
    let end = path[begin..].find([';', '/']).map_or(path.len(), |length| begin + length);
    (Some(path[begin..end].to_owned()), format!("{}{}", &target[..at], &target[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = r#"{"issuer a": {"renewal_kid": "new", "keys": [
        {"kid": "old", "alg": "HS256", "kty": "oct", "k": "Kh_RkUMj-fzbD37qBnDf_3e_RvQ3RP9PaSmVEpE24AM"},
        {"kid": "new", "alg": "HS256", "kty": "oct", "k": "fZBpDBNbk2GqhwoB_DGBAsBxqQZVix04rIoLJ7p_RlE"},
        {"kid": "ed", "alg": "EdDSA", "kty": "OKP", "crv": "Ed25519",
         "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
         "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
        {"kid": "es", "alg": "ES256", "kty": "EC", "crv": "P-256",
         "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
         "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
         "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}]}}"#;

    fn tokens(renewal: &str) -> Tokens {
        let keys =
            KEYS.replace("\"renewal_kid\": \"new\"", &format!("\"renewal_kid\": \"{renewal}\""));
        Tokens { issuers: Issuers::read(&keys).unwrap(), audience: Some("cdn".to_owned()) }
    }

    fn url(target: &str) -> RequestUrl<'_> {
        RequestUrl { scheme: "https", host: "a.test", target }
    }

    fn check(tokens: &Tokens, target: &str, now: u64) -> Result<String, &'static str> {
        tokens.check(&url(target), &HeaderMap::new(), now)
    }

    /// A target with a token of these parts, signed with the key `new`.
    fn with(header: serde_json::Value, claims: serde_json::Value) -> String {
        let tokens = tokens("new");
        let encode = |part: &serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let (_, key) = tokens.issuers.signing().unwrap();
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).unwrap());
        format!("/a?{PACKAGE}={signed}.{signature}")
    }

    #[test]
    fn token_of_each_algorithm_is_valid_until_it_expires() {
        for kid in ["old", "new", "ed", "es"] {
            let signed = tokens(kid).sign(&url("/a?x=1"), 100).unwrap();
            let all = tokens("new");
            assert_eq!(check(&all, &signed, 99), Ok("/a?x=1".to_owned()), "{kid}");
            assert_eq!(check(&all, &signed, 100), Err("the token has expired"));
            let other = signed.replace("/a?", "/b?");
            assert_eq!(check(&all, &other, 99), Err("the token is for another URL"));
            let end = signed.len() - 3;
            let damaged = format!("{}AAA", &signed[..end]);
            assert_eq!(check(&all, &damaged, 99), Err("the token's signature is wrong"));
        }
    }

    #[test]
    fn token_of_the_standard_for_ed25519_is_verified() {
        // RFC 8037 Appendix A.4 signs with this key; the payload is no set of claims.
        let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt\
                         9g7sVvpAr_MuM0KAg";
        let tokens = tokens("ed");
        let (_, key) = tokens.issuers.signing().unwrap();
        assert!(key.verifies(message, &URL_SAFE_NO_PAD.decode(signature).unwrap()));
    }

    #[test]
    fn tokens_that_must_be_refused_are() {
        let all = tokens("new");
        let header = || json!({ "alg": "HS256", "kid": "new" });
        let claims = || json!({ "iss": "issuer a", "cdniuc": "regex:https://a\\.test/a.*" });
        assert_eq!(check(&all, &with(header(), claims()), 1), Ok("/a".to_owned()));
        let changed = |key: &str, value: serde_json::Value| {
            let mut changed = claims();
            changed[key] = value;
            with(header(), changed)
        };
        for (target, why) in [
            ("/a".to_owned(), "the request has no token"),
            (format!("/a?{PACKAGE}="), "the token has no valid form"),
            (format!("/a?{PACKAGE}=a.b"), "the token has no valid form"),
            (format!("/a?{PACKAGE}={}", "a".repeat(9000)), "the token has no valid form"),
            (with(json!({ "alg": "none" }), claims()), "the token's algorithm is not accepted"),
            (with(json!({ "alg": "HS512" }), claims()), "the token's algorithm is not accepted"),
            // A public key must not be taken for a shared secret.
            (
                with(json!({ "alg": "HS256", "kid": "es" }), claims()),
                "the token's key is not known",
            ),
            (
                with(json!({ "alg": "HS256", "kid": "no" }), claims()),
                "the token's key is not known",
            ),
            (
                with(json!({ "alg": "HS256", "kid": "old" }), claims()),
                "the token's signature is wrong",
            ),
            (
                with(json!({ "alg": "HS256", "crit": ["b64"] }), claims()),
                "the token's header has extensions that are not supported",
            ),
            (changed("iss", json!("a stranger")), "the token's issuer is not known"),
            (changed("iss", json!(null)), "the token's issuer is not known"),
            (changed("exp", json!(1)), "the token has expired"),
            (changed("nbf", json!(2)), "the token is not valid yet"),
            (changed("aud", json!("another")), "the token is for another audience"),
            (changed("cdniv", json!(2)), "the token's cdniv is not 1"),
            (
                changed("cdnicrit", json!("exp,geo")),
                "the token has a critical claim that is not supported",
            ),
            (
                changed("cdniip", json!("a.b.c")),
                "the token has jti, cdniip or cdnistt, which are not supported",
            ),
            (
                changed("jti", json!("1")),
                "the token has jti, cdniip or cdnistt, which are not supported",
            ),
            (changed("cdniuc", json!(null)), "the token has no cdniuc"),
            (changed("cdniuc", json!("regex:a")), "the token is for another URL"),
            (
                changed("cdniuc", json!("regex:(((a{99}){99}){99}){99}")),
                "the token is for another URL",
            ),
            (changed("cdniuc", json!("regex:b)|(.*")), "the token is for another URL"),
            (changed("cdniuc", json!("hash:md5;a")), "the token is for another URL"),
        ] {
            assert_eq!(check(&all, &target, 1), Err(why), "{target}");
        }
        assert!(check(&all, &changed("aud", json!(["another", "cdn"])), 1).is_ok());
        assert!(check(&all, &changed("cdnicrit", json!("exp, nbf")), 1).is_ok());
    }

    #[test]
    fn token_comes_in_the_query_the_path_or_a_cookie() {
        let all = tokens("new");
        let signed = all.sign(&url("/a/b?x=1"), 100).unwrap();
        let token = signed.rsplit_once('=').unwrap().1;
        let in_path = format!("/a;{PACKAGE}={token}/b?x=1");
        assert_eq!(check(&all, &in_path, 1), Ok("/a/b?x=1".to_owned()));
        let first = format!("/a/b?{PACKAGE}={token}&x=1");
        assert_eq!(check(&all, &first, 1), Ok("/a/b?x=1".to_owned()));
        let jar = format!("a=1; {PACKAGE}={token}").parse().unwrap();
        let headers = HeaderMap::from_iter([(http::header::COOKIE, jar)]);
        assert_eq!(all.check(&url("/a/b?x=1"), &headers, 1), Ok("/a/b?x=1".to_owned()));
    }
}
