//! The time that a server spends in handshakes, as ratios side by side in one run: as the library does it by default,
//! through a door, through a door with rules of sites, and with certificates of clients.
//!
//! ```text
//! cargo run --release -p levada-tls --example handshakes -- [SECONDS]
//! ```

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use levada_observe::metrics::Registry;
use levada_tls::{
    client_certificates::{ClientCertificateMode, ClientCertificateSettings},
    client_fields::ClientFields,
    door::{Door, DoorSettings, SiteDoor},
    handshake::HandshakeSettings,
    metrics::TlsMetrics,
    pem::{Certificate, certified, provider},
    tickets::TicketKeys,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, HandshakeKind, RootCertStore, ServerConfig,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

#[derive(Debug)]
struct One(Arc<CertifiedKey>);

impl ResolvesServerCert for One {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Takes the time of all polls of a future.
struct Timed<F>(F, Duration);

impl<F: Future + Unpin> Future for Timed<F> {
    type Output = (F::Output, Duration);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let begun = Instant::now();
        let polled = Pin::new(&mut self.0).poll(context);
        self.1 += begun.elapsed();
        polled.map(|output| (output, self.1))
    }
}

struct Row {
    name: &'static str,
    door: Arc<Door>,
    client: Arc<ClientConfig>,
    resumes: bool,
    /// Microseconds of each handshake.
    times: Vec<f64>,
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap();
    std::fs::write(file("ca.pem"), ca.pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        let (certificate, of_key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        std::fs::write(&certificate, leaf.pem()).unwrap();
        std::fs::write(&of_key, key.serialize_pem()).unwrap();
        Certificate { certificate, key: of_key, ocsp: None }
    };
    let (server, me) = (issue("a.test"), issue("me.test"));
    let resolver: Arc<dyn ResolvesServerCert> =
        Arc::new(One(Arc::new(certified(&server).unwrap())));

    let usual = || {
        let config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver.clone());
        Door::from(Arc::new(config))
    };
    let tickets = TicketKeys::new(&[b"secret".to_vec()], Duration::from_secs(3600), None);
    let rules = ClientCertificateSettings {
        mode: ClientCertificateMode::Required,
        authorities: vec![file("ca.pem")],
        revocation_lists: Vec::new(),
        fields: vec![ClientFields::ClientCert],
    };
    let (here, elsewhere) = (["a.test".to_owned()], ["b.test".to_owned()]);
    let door = |hosts: Option<&[String]>| {
        let site = hosts.map(|hosts| SiteDoor { hosts, handshake: None, clients: Some(&rules) });
        let settings = DoorSettings {
            handshake: &HandshakeSettings::default(),
            sites: site.as_slice(),
            protocols: &[],
            tickets: &tickets,
        };
        Door::new(resolver.clone(), &settings, Vec::new()).unwrap()
    };
    let client = |identity: Option<&Certificate>, resumes: bool| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file("ca.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some(files) => {
                let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        if !resumes {
            config.resumption = Resumption::disabled();
        }
        Arc::new(config)
    };
    let mut rows = Vec::new();
    for resumes in [false, true] {
        let (of_nobody, mine) = (client(None, resumes), client(Some(&me), resumes));
        for (name, door, client) in [
            ("the library's defaults", usual(), client(None, resumes)),
            ("a door", door(None), of_nobody.clone()),
            ("a door with rules of another site", door(Some(&elsewhere)), of_nobody),
            ("a client certificate", door(Some(&here)), mine),
        ] {
            rows.push(Row { name, door: Arc::new(door), client, resumes, times: Vec::new() });
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        for row in &mut rows {
            for _ in 0..20 {
                let time = runtime.block_on(handshake(row));
                row.times.push(time.as_secs_f64() * 1e6);
            }
        }
    }
    println!("{:<9} {:<36} {:>9} {:>7}", "", "server", "median", "ratio");
    for resumes in [false, true] {
        let mut first = None;
        for row in rows.iter_mut().filter(|row| row.resumes == resumes) {
            row.times.sort_by(f64::total_cmp);
            let median = row.times[row.times.len() / 2];
            let base = *first.get_or_insert(median);
            let kind = if resumes { "resumed" } else { "full" };
            println!("{kind:<9} {:<36} {median:>6.0} us {:>7.2}", row.name, median / base);
        }
    }
}

/// Carries out a handshake, and returns the time of the server.
async fn handshake(row: &Row) -> Duration {
    let (near, far) = tokio::io::duplex(64 << 10);
    let metrics = TlsMetrics::registered(&mut Registry::default());
    let name = ServerName::try_from("a.test").unwrap();
    let connecting = async {
        let mut stream = TlsConnector::from(row.client.clone()).connect(name, near).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        // With it comes the ticket.
        let mut answer = [0];
        stream.read_exact(&mut answer).await.unwrap();
    };
    let accepting = pin!(async {
        let client = std::net::IpAddr::from([127, 0, 0, 1]);
        let mut stream = row.door.accept(far, client, &metrics).await.unwrap().stream;
        let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        let mut asked = [0];
        stream.read_exact(&mut asked).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        stream.flush().await.unwrap();
        resumed
    });
    let ((), (resumed, time)) = tokio::join!(connecting, Timed(accepting, Duration::ZERO));
    assert!(!resumed || row.resumes);
    time
}
