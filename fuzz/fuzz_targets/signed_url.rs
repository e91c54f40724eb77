//! URLs and tokens of any bytes are refused. Any URL that is signed is accepted, and is what it was before.
#![no_main]

use std::net::Ipv4Addr;

use http::{HeaderMap, HeaderValue, Uri, header::COOKIE};
use levada_access::signed::{Digest, Issuers, Link, PACKAGE, RequestUrl, SignedUrls, Tokens};
use libfuzzer_sys::fuzz_target;

const KEYS: &str = r#"{"a": {"renewal_kid": "1", "keys": [
    {"kid": "1", "alg": "HS256", "kty": "oct", "k": "Kh_RkUMj-fzbD37qBnDf_3e_RvQ3RP9PaSmVEpE24AM"}]}}"#;

fuzz_target!(|input: (String, String, Vec<u8>, u32)| {
    let (target, keys, cookie, now) = input;
    let now = u64::from(now);
    let _ = Issuers::read(&keys);
    let Ok(uri) = target.parse::<Uri>() else { return };
    let Some(target) = uri.path_and_query().map(|target| target.as_str()) else { return };
    let issuers = Issuers::read(KEYS).expect("valid keys");
    let link = Link {
        digest: Digest::HmacSha256,
        message: "{expires}{path}{client}".parse().expect("a message"),
        secrets: vec!["secret".to_owned()],
        signature: "signature".to_owned(),
        expires: "expires".to_owned(),
    };
    let client = Ipv4Addr::LOCALHOST.into();
    let value = [PACKAGE.as_bytes(), b"=", &cookie].concat();
    let cookies = HeaderValue::from_bytes(&value).into_iter().map(|value| (COOKIE, value));
    let headers: HeaderMap = cookies.collect();
    for urls in [SignedUrls::Token(Tokens { issuers, audience: None }), SignedUrls::Link(link)] {
        let url = RequestUrl { scheme: "http", host: "a.test", target };
        let names = [PACKAGE, "signature", "expires"];
        if let Ok(rest) = urls.check(&url, client, &headers, now) {
            panic!("{target} was not signed, and was accepted as {rest}");
        }
        if target.starts_with('/') && !names.iter().any(|name| target.contains(name)) {
            let signed = urls.sign(&url, Some(client), now + 1).expect("signed");
            let again = RequestUrl { target: &signed, ..url };
            let checked = urls.check(&again, client, &HeaderMap::new(), now);
            assert_eq!(checked.as_deref(), Ok(target));
        }
    }
});
