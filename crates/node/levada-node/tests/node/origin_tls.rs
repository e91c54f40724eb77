//! TLS towards origins: a real nginx with certificates of a private authority, that requires one of the node.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use levada_config::{Certificate, HealthCheck, Origin as OriginSetting, OriginTls, SiteServers};
use levada_tls::{origin::Authorities, probe::probe};
use sha2_of::spki_digest;

use tokio::io::AsyncWriteExt as _;

use crate::support::{nodes::*, secure::Authority, *};

mod sha2_of {
    //! The digest of a certificate's public key, as OpenSSL finds it.

    use std::{path::Path, process::Command};

    pub(super) fn spki_digest(certificate: &Path) -> [u8; 32] {
        let command = format!(
            "openssl x509 -in {} -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary",
            certificate.display()
        );
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        output.stdout.try_into().unwrap()
    }
}

/// An nginx with TLS. Dropping it ends the process.
struct SecureNginx {
    address: SocketAddr,
    process: Child,
}

impl SecureNginx {
    /// `clients`: the authority of the certificates that it requires.
    fn start(directory: &Path, identity: &Certificate, clients: Option<&Path>) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let own = directory.join(format!("nginx-{}", address.port()));
        fs::create_dir(&own).unwrap();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", own.display()))
            .concat();
        let verify = clients.map_or_else(String::new, |path| {
            format!("ssl_client_certificate {}; ssl_verify_client on;", path.display())
        });
        let configuration = format!(
            "daemon off; master_process off; pid {own}/pid; error_log {own}/error.log;
            events {{ worker_connections 64; }}
            http {{
                access_log off; {temporary}
                server {{
                    listen {address} ssl; ssl_protocols TLSv1.2 TLSv1.3;
                    ssl_certificate {}; ssl_certificate_key {}; {verify}
                    location / {{ return 200 \"$ssl_server_name $ssl_client_verify $ssl_client_s_dn\"; }}
                }}
            }}",
            identity.certificate.display(),
            identity.key.display(),
            own = own.display(),
        );
        let path = own.join("nginx.conf");
        fs::write(&path, configuration).unwrap();
        let process = Command::new("nginx")
            .args(["-e", &format!("{}/error.log", own.display()), "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { address, process };
        while TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }
}

impl Drop for SecureNginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn has_nginx() -> bool {
    !levada_skip::lacks("nginx", "nginx-light")
}

/// The servers of a site behind this address.
fn behind(at: SocketAddr, tls: Option<OriginTls>) -> SiteServers {
    let origin = OriginSetting::Tcp { tls: true, host: at.ip().to_string(), port: at.port() };
    SiteServers { origins: vec![origin], tls: tls.map(Arc::new), ..servers(&[]) }
}

fn trusting(authority: &Authority) -> OriginTls {
    let authorities = vec![Authorities::File(authority.path())];
    OriginTls { authorities, server_name: Some("o.test".to_owned()), ..OriginTls::default() }
}

/// The answer of a node whose site is behind this address.
async fn answer(at: SocketAddr, tls: Option<OriginTls>) -> Answer {
    let mut settings = single(&[]);
    settings.sites[0].servers = behind(at, tls);
    let node = levada_node::Running::start(settings).await.unwrap();
    within(get(node.addresses.clients[0], "/x")).await
}

#[tokio::test]
async fn private_authority_name_and_client_certificate_are_used() {
    if !has_nginx() {
        return;
    }
    let (authority, clients) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let identity = authority.issue(&["o.test"]);
    let nginx = SecureNginx::start(directory.path(), &identity, Some(&clients.path()));
    let mine = clients.issue(&["node.test"]);
    let tls = OriginTls { identity: Some(mine), ..trusting(&authority) };
    let good = answer(nginx.address, Some(tls.clone())).await;
    assert!(good.text().starts_with("o.test SUCCESS "), "{}", good.text());
    // nginx completes the handshake, and says in HTTP that it wants a certificate.
    let without = answer(nginx.address, Some(trusting(&authority))).await;
    assert_eq!(without.status, 400);
    assert!(without.text().contains("No required SSL certificate"), "{}", without.text());
    let patience = Duration::from_secs(10);
    let probed = probe("127.0.0.1", nginx.address.port(), &tls, false, patience).unwrap();
    assert!(probed.words.starts_with("HTTP/1.1, TLS 1.3, a certificate until "), "{probed:?}");
}

/// A server that answers in HTTP whatever it reads.
async fn without_tls() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    address
}

#[tokio::test]
async fn failed_handshakes_say_why() {
    if !has_nginx() {
        return;
    }
    let (authority, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let good = SecureNginx::start(directory.path(), &authority.issue(&["o.test"]), None);
    let old = authority.issue_with(&["old.test"], |params| {
        params.subject_alt_names.push(rcgen::SanType::DnsName("o.test".try_into().unwrap()));
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let old = SecureNginx::start(directory.path(), &old, None);
    let plain = without_tls().await;
    let pinned = OriginTls { pins: vec![[7; 32]], ..trusting(&authority) };
    let named = OriginTls { server_name: Some("b.test".to_owned()), ..trusting(&authority) };
    for (at, tls, status, kind, sentence, reason) in [
        (
            good.address,
            named,
            502,
            "tls_certificate_error",
            "the server's certificate is for another name",
            "the certificate is for o.test, not for b.test",
        ),
        (
            good.address,
            trusting(&other),
            502,
            "tls_certificate_error",
            "the authority of the server's certificate is not trusted",
            "the certificate's issuer is unknown",
        ),
        (
            good.address,
            OriginTls::default(),
            502,
            "tls_certificate_error",
            "the authority of the server's certificate is not trusted",
            "the certificate's issuer is unknown",
        ),
        (
            old.address,
            trusting(&authority),
            502,
            "tls_certificate_error",
            "the server's certificate has expired",
            "the certificate has expired, at Jan  1 00:00:00 2020",
        ),
        (
            good.address,
            pinned,
            502,
            "tls_certificate_error",
            "the server's key is none of the pinned ones",
            "the certificate's public key is none of the pinned ones",
        ),
        (
            plain,
            trusting(&authority),
            502,
            "tls_protocol_error",
            "the server does not speak TLS",
            "it does not speak TLS at this port",
        ),
    ] {
        let failed = answer(at, Some(tls.clone())).await;
        assert_eq!(failed.status, status);
        assert!(failed.text().contains(sentence), "{}", failed.text());
        assert!(failed.field("proxy-status").contains(kind), "{}", failed.field("proxy-status"));
        let (host, patience) = (at.ip().to_string(), Duration::from_secs(10));
        let probing = move || probe(&host, at.port(), &tls, false, patience).unwrap_err();
        let said = tokio::task::spawn_blocking(probing).await.unwrap();
        assert!(said.contains(reason), "{said}");
    }
}

#[tokio::test]
async fn pinned_key_is_enough_for_a_certificate_that_nobody_has_signed() {
    if !has_nginx() {
        return;
    }
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let identity = authority.issue(&["x.test"]);
    let nginx = SecureNginx::start(directory.path(), &identity, None);
    let pins = vec![spki_digest(&identity.certificate)];
    let tls = OriginTls { pins, unverified: true, ..OriginTls::default() };
    assert_eq!(answer(nginx.address, Some(tls.clone())).await.status, 200);
    let tls = OriginTls { pins: vec![[7; 32]], ..tls };
    assert_eq!(answer(nginx.address, Some(tls.clone())).await.status, 502);
    let tls = OriginTls { pins: Vec::new(), ..tls };
    assert_eq!(answer(nginx.address, Some(tls)).await.status, 200);
}

#[tokio::test]
async fn reload_reads_authorities_again_and_status_says_why_an_origin_is_down() {
    if !has_nginx() {
        return;
    }
    let (authority, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let nginx = SecureNginx::start(directory.path(), &authority.issue(&["o.test"]), None);
    let trusted = directory.path().join("trusted.pem");
    fs::copy(other.path(), &trusted).unwrap();
    let mut settings = single(&[]);
    let tls =
        OriginTls { authorities: vec![Authorities::File(trusted.clone())], ..trusting(&authority) };
    settings.sites[0].servers = behind(nginx.address, Some(tls));
    settings.sites[0].servers.health = HealthCheck { path: Some("/".to_owned()), ..watched() };
    let (node, file) = world(settings.clone()).await;
    let at = node.addresses.clients[0];
    assert_eq!(within(get(at, "/x")).await.status, 502);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let reason = "TLS: the certificate's issuer is unknown";
    while !admin(&node, "/status").await.text().contains(reason) {
        assert!(tokio::time::Instant::now() < deadline, "never said why");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fs::copy(authority.path(), &trusted).unwrap();
    crate::reload_all::change(&node, &file, &settings).await;
    while within(get(at, "/x")).await.status != 200 {
        assert!(tokio::time::Instant::now() < deadline, "never came up");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
