//! TLS in a configuration: every mistake names its place, and what would be right.

use std::{fs, path::Path};

use levada_config::{Source, Surroundings, check};
use rcgen::{CertificateParams, KeyPair};

/// The report about a listener and a site with these lines.
fn report(directory: &Path, listen: &str, site: &str) -> String {
    let text = format!(
        "name = 'a'\n[[listen]]\naddress = '127.0.0.1:1'\n{listen}\n\
         [[site]]\nhosts = 'a.test'\norigin = 'https://o.test'\n{site}\n"
    );
    let source = Source { name: "levada.toml".to_owned(), text };
    check(&source, &Surroundings { directory, variable: &|_| None, start_error: &|_| None })
        .report
        .to_string()
}

/// A directory with two certificates that have signed themselves.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![format!("{name}.test")]).unwrap();
        let own = params.self_signed(&key).unwrap();
        fs::write(directory.path().join(format!("{name}.pem")), own.pem()).unwrap();
        fs::write(directory.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    fs::write(directory.path().join("empty.pem"), "").unwrap();
    fs::write(directory.path().join("wrong.ocsp"), "no answer").unwrap();
    directory
}

const TLS: &str = "tls = [{ certificate = 'a.pem', key = 'a.key' }]";

#[test]
fn wrong_tls_of_a_listener_names_its_place() {
    let directory = directory();
    let said = |listen: &str| report(directory.path(), listen, "");
    assert!(!said(TLS).contains("error") && !said(TLS).contains("warning"), "{}", said(TLS));
    for (listen, words) in [
        ("tls = [{ certificate = 'a.pem', key = 'b.key' }]", "tls[0].key: "),
        ("tls = [{ certificate = 'a.pem', key = 'b.key' }]", "this is not the key of"),
        (
            "tls = [{ certificate = 'a.pem', key = 'a.key', ocsp = 'wrong.ocsp' }]",
            "warning: listen[0].tls[0].ocsp: ",
        ),
        (
            &format!("{TLS}\nhandshake = {{ min_version = '1.3', max_version = '1.2' }}"),
            "listen[0].handshake.min_version: is above `max_version`",
        ),
        (
            &format!("{TLS}\nhandshake = {{ min_version = '1.1' }}"),
            "must be one of \"1.2\", \"1.3\"",
        ),
        (
            &format!("{TLS}\nhandshake = {{ ciphers = ['RC4-MD5'] }}"),
            "there are TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256",
        ),
        (&format!("{TLS}\nhandshake = {{ curves = ['P-521'] }}"), "there are X25519, P-256, P-384"),
        (
            &format!(
                "{TLS}\nhandshake = {{ min_version = '1.3', ciphers = ['ECDHE-RSA-AES128-GCM-SHA256'] }}"
            ),
            "warning: listen[0].handshake.ciphers: has no effect",
        ),
    ] {
        assert!(said(listen).contains(words), "{listen}: {}", said(listen));
    }
}

#[test]
fn wrong_client_certificates_name_their_place() {
    let directory = directory();
    let said = |site: &str| report(directory.path(), TLS, site);
    let good = said("client_certificates = { authorities = 'a.pem' }");
    assert!(!good.contains("error"), "{good}");
    for (site, words) in [
        ("client_certificates = {}", "client_certificates.authorities: is missing"),
        (
            "client_certificates = { authorities = 'empty.pem' }",
            "client_certificates.authorities: ",
        ),
        (
            "client_certificates = { authorities = 'a.pem', revocation_lists = ['a.pem'] }",
            "revocation_lists[0]: ",
        ),
        (
            "client_certificates = { authorities = 'a.pem', mode = 'maybe' }",
            "must be one of \"required\", \"optional\"",
        ),
        (
            "delivery = 'redirect'\nclient_certificates = { authorities = 'a.pem' }",
            "cannot stand beside `delivery = \"redirect\"`",
        ),
    ] {
        assert!(said(site).contains(words), "{site}: {}", said(site));
    }
    let plain = report(directory.path(), "", "client_certificates = { authorities = 'a.pem' }");
    assert!(plain.contains("needs a `[[listen]]` with `tls`"), "{plain}");
}

#[test]
fn wrong_tls_of_origins_names_its_place() {
    let directory = directory();
    let said = |site: &str| report(directory.path(), "", &format!("[site.origin_tls]\n{site}"));
    let good = said("authorities = ['system', 'a.pem']\ncertificate = 'b.pem'\nkey = 'b.key'");
    assert!(!good.contains("error") && !good.contains("warning"), "{good}");
    for (site, words) in [
        ("authorities = 'empty.pem'", "origin_tls.authorities: "),
        ("certificate = 'a.pem'", "origin_tls.certificate: stands without `key`"),
        ("certificate = 'a.pem'\nkey = 'b.key'", "origin_tls.key: "),
        ("server_name = 'a b'", "origin_tls.server_name: \"a b\" is neither"),
        ("pins = ['sha256/AAAA']", "origin_tls.pins[0]: is not `sha256/` and 32 bytes"),
        (
            "insecure_skip_verification = true",
            "warning: site[0].origin_tls.insecure_skip_verification: lets anyone",
        ),
    ] {
        assert!(said(site).contains(words), "{site}: {}", said(site));
    }
}
