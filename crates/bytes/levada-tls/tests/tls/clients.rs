//! Certificates of clients that OpenSSL, curl and Python show.

use std::{fs, process::Command};

use levada_tls::{client_certificates::ClientCertificateMode, pem::Certificate};

use crate::support::{Authority, Opening, rules, run, s_client, text};

fn shows(identity: &Certificate) -> [&str; 4] {
    ["-cert", text(&identity.certificate), "-key", text(&identity.key)]
}

#[test]
fn openssl_curl_and_python_show_their_certificate() {
    if levada_skip::lacks("openssl", "openssl")
        || levada_skip::lacks("curl", "curl")
        || levada_skip::lacks("python3", "python3")
    {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue("a.test");
    let mine = clients.issue("me.test");
    let clients = Some(rules(ClientCertificateMode::Required, &clients));
    let served = Opening { clients, ..Opening::new(&identity) }.serve();
    let curl = |more: &[&str]| {
        let mut command = Command::new("curl");
        let to = format!("a.test:{}:127.0.0.1", served.at.port());
        command.args(["-sS", "--resolve", &to, "--cacert", text(&authority.file("ca.pem"))]);
        command.args(more).arg(format!("https://a.test:{}/", served.at.port()));
        run(&mut command, "")
    };
    let python = |shown: &str| {
        let code = format!(
            "import socket, ssl\n\
             c = ssl.create_default_context(cafile={:?})\n{shown}\n\
             s = c.wrap_socket(socket.create_connection(('127.0.0.1', {})), server_hostname='a.test')\n\
             s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n')\n\
             print(s.recv(4096).decode(), s.recv(4096).decode())\n",
            text(&authority.file("ca.pem")),
            served.at.port()
        );
        run(Command::new("python3").args(["-c", &code]), "")
    };
    let loaded = format!("c.load_cert_chain({:?}, {:?})", text(&mine.certificate), text(&mine.key));
    let certificate = ["--cert", text(&mine.certificate), "--key", text(&mine.key)];
    for good in [s_client(served.at, &shows(&mine)), curl(&certificate), python(&loaded)] {
        assert!(good.contains("admitted=Some(Ok(()))"), "{good}");
        assert!(good.contains("CN=me.test") && good.contains("SUCCESS"), "{good}");
    }
    for bad in [s_client(served.at, &[]), curl(&[]), python("")] {
        assert!(!bad.contains("admitted"), "{bad}");
    }
}

#[test]
fn optional_certificate_may_be_absent_and_a_bad_one_has_a_reason() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue("a.test");
    let mut with = rules(ClientCertificateMode::Optional, &clients);
    with.revocation_lists = vec![clients.revoke(&[13], 2090)];
    let served = Opening { clients: Some(with), ..Opening::new(&identity) }.serve();
    let absent = s_client(served.at, &[]);
    assert!(absent.contains("admitted=Some(Ok(()))") && absent.contains("NONE"), "{absent}");
    let strange = Authority::new();
    let middle = clients.below();
    let old = |params: &mut rcgen::CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    };
    for (identity, fault) in [
        (strange.issue("stranger.test"), "UnknownIssuer"),
        (middle.issue("no-intermediate.test"), "UnknownIssuer"),
        (clients.issue_with("old.test", old), "Expired"),
        (
            clients.issue_with("early.test", |params| {
                params.not_before = rcgen::date_time_ymd(2090, 1, 1);
                params.not_after = rcgen::date_time_ymd(2091, 1, 1);
            }),
            "NotYetValid",
        ),
        (
            clients.issue_with("revoked.test", |params| params.serial_number = Some(13.into())),
            "Revoked",
        ),
        (
            clients.issue_with("server.test", |params| {
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
            }),
            "OtherPurpose",
        ),
    ] {
        let said = s_client(served.at, &shows(&identity));
        assert!(said.contains(&format!("admitted=Some(Err(Fault({fault})))")), "{fault}: {said}");
    }
}

#[test]
fn chain_with_its_intermediate_is_verified() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue("a.test");
    let middle = clients.below();
    let mine = middle.issue("me.test");
    let clients = Some(rules(ClientCertificateMode::Required, &clients));
    let served = Opening { clients, ..Opening::new(&identity) }.serve();
    let chain = middle.file("chain.pem");
    fs::write(&chain, &middle.pem).unwrap();
    let whole = [&shows(&mine)[..], &["-cert_chain", text(&chain)]].concat();
    assert!(s_client(served.at, &whole).contains("admitted=Some(Ok(()))"));
    assert!(!s_client(served.at, &shows(&mine)).contains("HTTP/1.1 200"));
}

#[test]
fn revocation_list_beyond_its_time_or_of_another_authority_lets_nobody_pass() {
    if levada_skip::lacks("openssl", "openssl") {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let identity = authority.issue("a.test");
    let mine = clients.issue("me.test");
    let mut with = rules(ClientCertificateMode::Optional, &clients);
    for (list, fault) in [
        (clients.revoke(&[], 2021), "OldRevocationList"),
        (Authority::new().revoke_into(&authority), "RevocationUnknown"),
    ] {
        with.revocation_lists = vec![list];
        let served = Opening { clients: Some(with.clone()), ..Opening::new(&identity) }.serve();
        let said = s_client(served.at, &shows(&mine));
        assert!(said.contains(&format!("Fault({fault})")), "{said}");
    }
}
