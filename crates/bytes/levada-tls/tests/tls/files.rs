//! Files that cannot be used, and the errors about them.

use std::fs;

use levada_tls::{
    client_certificates::{ClientCertificateMode, ClientCertificates},
    origin::{Authorities, OriginTls},
    pem::{Certificate, certified},
    tickets::TicketSettings,
};

use crate::support::{Authority, rules};

#[test]
fn key_that_is_missing_malformed_or_another_certificates_is_named() {
    let authority = Authority::new();
    let (one, other) = (authority.issue("a.test"), authority.issue("b.test"));
    let said = |key| {
        let files = Certificate { key, ..one.clone() };
        certified(&files).unwrap_err().to_string()
    };
    let swapped = said(other.key);
    assert!(swapped.contains("b.test.key: this is not the key of"), "{swapped}");
    assert!(said(authority.file("missing.key")).contains("missing.key: "));
    let broken = authority.file("broken.key");
    fs::write(&broken, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    assert!(!said(broken).is_empty());
    let empty = authority.file("empty.key");
    fs::write(&empty, "").unwrap();
    assert!(said(empty).contains("empty.key"));
}

#[test]
fn file_of_authorities_without_a_certificate_is_named() {
    let authority = Authority::new();
    fs::write(authority.file("empty.pem"), "").unwrap();
    let mut with = rules(ClientCertificateMode::Required, &authority);
    with.authorities = vec![authority.file("empty.pem")];
    let said = ClientCertificates::new(&with).unwrap_err().to_string();
    assert!(said.contains("empty.pem: holds no certificate"), "{said}");
    with.authorities = vec![authority.file("ca.pem")];
    with.revocation_lists = vec![authority.file("ca.pem")];
    let said = ClientCertificates::new(&with).unwrap_err().to_string();
    assert!(said.contains("ca.pem: holds no revocation list"), "{said}");
    let authorities = vec![Authorities::File(authority.file("empty.pem"))];
    let said = OriginTls { authorities, ..OriginTls::default() }.config(&[]).unwrap_err();
    assert!(said.to_string().contains("empty.pem: holds no certificate"), "{said}");
}

#[test]
fn old_revocation_list_is_named_beforehand() {
    let authority = Authority::new();
    let mut with = rules(ClientCertificateMode::Required, &authority);
    with.revocation_lists = vec![authority.revoke(&[], 2021)];
    let old = ClientCertificates::new(&with).unwrap().old_lists();
    assert!(old[0].contains("ca.crl has expired, at Dec 31"), "{old:?}");
    with.revocation_lists = vec![authority.revoke(&[], 2090)];
    assert!(ClientCertificates::new(&with).unwrap().old_lists().is_empty());
}

#[test]
fn secret_of_tickets_that_is_short_or_missing_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tickets.key");
    let settings = TicketSettings { files: vec![file.clone()], ..TicketSettings::default() };
    assert!(settings.keys(None, None).unwrap_err().to_string().contains("No such file"));
    fs::write(&file, [7; 31]).unwrap();
    let said = settings.keys(None, None).unwrap_err().to_string();
    assert!(said.contains("has 31 bytes, fewer than 32; `openssl rand"), "{said}");
    fs::write(&file, [7; 32]).unwrap();
    assert!(settings.keys(None, None).is_ok());
}
