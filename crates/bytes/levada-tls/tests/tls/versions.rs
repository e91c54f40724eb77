//! Versions, cipher suites and curves, as `openssl s_client` finds them.

use levada_tls::handshake::{HandshakeSettings, TlsVersion, cipher, curve};

use crate::support::{Authority, Opening, s_client};

fn talks(at: std::net::SocketAddr, arguments: &[&str]) -> bool {
    s_client(at, arguments).contains("HTTP/1.1 200")
}

#[test]
fn every_suite_of_either_version_is_agreed_on_and_none_beside_them() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let authority = Authority::new();
    let identity = authority.issue("a.test");
    let served = Opening::new(&identity).serve();
    for name in [
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ] {
        assert!(talks(served.at, &["-tls1_2", "-cipher", name]), "{name}");
    }
    for name in ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"]
    {
        assert!(talks(served.at, &["-tls1_3", "-ciphersuites", name]), "{name}");
    }
    // Without forward secrecy, with CBC, with RC4's successors, and old versions.
    for arguments in [
        &["-tls1_2", "-cipher", "AES128-GCM-SHA256"][..],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"],
        &["-tls1_2", "-cipher", "ALL:eNULL@SECLEVEL=0:!ECDHE"],
        &["-tls1_1", "-cipher", "ALL@SECLEVEL=0"],
        &["-tls1", "-cipher", "ALL@SECLEVEL=0"],
        &["-curves", "P-521"],
    ] {
        assert!(!talks(served.at, arguments), "{arguments:?}");
    }
}

#[test]
fn only_what_is_named_is_agreed_on() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let authority = Authority::new();
    let identity = authority.issue("a.test");
    let handshake = HandshakeSettings {
        ciphers: vec![cipher("ecdhe-ecdsa-aes128-gcm-sha256").unwrap()],
        curves: vec![curve("prime256v1").unwrap()],
        ..HandshakeSettings::default()
    };
    let served = Opening { handshake, ..Opening::new(&identity) }.serve();
    assert!(talks(served.at, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"]));
    assert!(!talks(served.at, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"]));
    assert!(talks(served.at, &["-tls1_3", "-curves", "P-256"]));
    assert!(!talks(served.at, &["-tls1_3", "-curves", "X25519"]));
}

#[test]
fn versions_end_where_they_are_bounded() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let authority = Authority::new();
    let identity = authority.issue("a.test");
    for (min, max, tls12, tls13) in [
        (TlsVersion::Tls13, TlsVersion::Tls13, false, true),
        (TlsVersion::Tls12, TlsVersion::Tls12, true, false),
    ] {
        let handshake = HandshakeSettings { min, max, ..HandshakeSettings::default() };
        let served = Opening { handshake, ..Opening::new(&identity) }.serve();
        assert_eq!(talks(served.at, &["-tls1_2"]), tls12);
        assert_eq!(talks(served.at, &["-tls1_3"]), tls13);
    }
}
