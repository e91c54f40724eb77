//! `levada sign` as a user runs it.

use std::{
    path::Path,
    process::{Command, Output},
};

use http::HeaderMap;
use levada_access::signed::RequestUrl;

const TEXT: &str = r#"
name = "a"
[[listen]]
address = "127.0.0.1:8080"
[[site]]
hosts = ["www.example.com", "*.example.com"]
origin = "http://127.0.0.1:9000"
signed_urls = { form = "hmac", secret_file = "secret" }
[[site]]
hosts = "token.example.com"
origin = "http://127.0.0.1:9000"
signed_urls = { form = "token", keys_file = "keys.json", audience = "cdn" }
[[site]]
hosts = "client.example.com"
origin = "http://127.0.0.1:9000"
signed_urls = { form = "secure_link", secret_file = "secret" }
[[site]]
hosts = "open.test"
origin = "http://127.0.0.1:9000"
[[site.route]]
path = "/film/**"
signed_urls = { form = "hmac", secret_file = "secret" }
"#;
const KEYS: &str = r#"{"a": {"renewal_kid": "1", "keys": [
    {"kid": "1", "alg": "HS256", "kty": "oct", "k": "Kh_RkUMj-fzbD37qBnDf_3e_RvQ3RP9PaSmVEpE24AM"}]}}"#;

fn sign(file: &Path, options: &[&str]) -> Output {
    let levada = &mut Command::new(env!("CARGO_BIN_EXE_levada"));
    levada.arg("sign").arg("-c").arg(file).args(options).output().unwrap()
}

#[test]
fn signed_url_is_valid_at_the_node_for_the_time_that_was_given() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("levada.toml");
    std::fs::write(&file, TEXT).unwrap();
    std::fs::write(directory.path().join("secret"), "secret\n").unwrap();
    std::fs::write(directory.path().join("keys.json"), KEYS).unwrap();
    let settings = levada_config::load(&file, &|_| None).unwrap().settings.unwrap();
    let seconds = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    for (host, client) in [
        ("www.example.com", None),
        ("any.example.com", None),
        ("token.example.com:8443", None),
        ("client.example.com", Some("192.0.2.7")),
    ] {
        let before = seconds();
        let asked = format!("https://{host}/a%20b?x=1");
        let mut options = vec![asked.as_str(), "--valid", "1d"];
        options.extend(client.iter().flat_map(|client| ["--client", client]));
        let output = sign(&file, &options);
        let after = seconds();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let target = said.trim_end().strip_prefix(&format!("https://{host}")).unwrap();
        let site = settings.site(host.split(':').next().unwrap()).unwrap();
        let keys = site.handling.access.signed.as_ref().unwrap();
        let url = RequestUrl { scheme: "https", host, target };
        let client = client.unwrap_or("192.0.2.1").parse().unwrap();
        let check = |now| keys.check(&url, client, &HeaderMap::new(), now);
        assert_eq!(check(before + 86_399), Ok("/a%20b?x=1".to_owned()), "{said}");
        assert!(check(after + 86_401).is_err(), "{said}");
    }
    let output = sign(&file, &["https://open.test/film/a"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("signature="), "by its route");
    for (url, why) in [
        ("https://open.test/a", "has no `signed_urls`"),
        ("https://unknown.test/a", "no site has the host unknown.test"),
        ("https://client.example.com/a", "give its address"),
        ("/a", "has no scheme and host"),
    ] {
        let output = sign(&file, &[url]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    std::fs::remove_file(directory.path().join("keys.json")).unwrap();
    let output = sign(&file, &["https://token.example.com/a"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("keys_file: cannot read"), "{said}");
}
