//! Authorities with a directory for their files, a door that tells its clients about their connection, and real
//! clients.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use http::HeaderMap;
use levada_observe::metrics::Registry;
use levada_tls::{
    client_certificates::{ClientCertificateMode, ClientCertificateSettings, admit},
    client_fields::ClientFields,
    door::{Door, DoorSettings, SiteDoor},
    handshake::HandshakeSettings,
    metrics::TlsMetrics,
    ocsp::StapledKey,
    pem::{Certificate, certified},
    tickets::TicketKeys,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, date_time_ymd,
};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) pem: String,
}

static NUMBER: AtomicU32 = AtomicU32::new(1);

impl Authority {
    pub(crate) fn new() -> Self {
        let (params, key) = ca();
        let own = params.self_signed(&key).unwrap();
        Self::of(params, key, &own)
    }

    /// An authority below this one.
    pub(crate) fn below(&self) -> Self {
        let (params, key) = ca();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        Self::of(params, key, &own)
    }

    fn of(params: CertificateParams, key: KeyPair, own: &rcgen::Certificate) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.pem"), own.pem()).unwrap();
        fs::write(directory.path().join("ca.key"), key.serialize_pem()).unwrap();
        Self { issuer: Issuer::new(params, key), directory, pem: own.pem() }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn issue(&self, name: &str) -> Certificate {
        self.issue_with(name, |_| ())
    }

    pub(crate) fn issue_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let (certificate, file) =
            (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")));
        fs::write(&certificate, leaf.pem()).unwrap();
        fs::write(&file, key.serialize_pem()).unwrap();
        Certificate { certificate, key: file, ocsp: None }
    }

    /// A revocation list until the end of a year.
    pub(crate) fn revoke(&self, serials: &[u64], until: i32) -> PathBuf {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(until, 12, 31),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.file("ca.crl");
        fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }
}

impl Authority {
    /// A list of this authority among the files of another one.
    pub(crate) fn revoke_into(&self, other: &Self) -> PathBuf {
        let path = other.file("strange.crl");
        fs::copy(self.revoke(&[], 2090), &path).unwrap();
        path
    }
}

fn ca() -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    let name = format!("authority {}", NUMBER.fetch_add(1, Relaxed));
    params.distinguished_name.push(DnType::CommonName, name);
    (params, KeyPair::generate().unwrap())
}

/// The rules of `a.test`.
pub(crate) fn rules(
    mode: ClientCertificateMode,
    authority: &Authority,
) -> ClientCertificateSettings {
    ClientCertificateSettings {
        mode,
        authorities: vec![authority.file("ca.pem")],
        revocation_lists: Vec::new(),
        fields: vec![ClientFields::XSslClient, ClientFields::XForwardedClientCert],
    }
}

#[derive(Debug)]
struct One(StapledKey);

impl ResolvesServerCert for One {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.now().clone())
    }
}

/// A door that answers each connection with what it knows of it.
pub(crate) struct Served {
    pub(crate) at: SocketAddr,
    _stop: tokio::sync::oneshot::Sender<()>,
}

/// The settings of a door for a test.
pub(crate) struct Opening<'a> {
    pub(crate) identity: &'a Certificate,
    pub(crate) handshake: HandshakeSettings,
    /// The rules of `a.test`.
    pub(crate) clients: Option<ClientCertificateSettings>,
    pub(crate) tickets: Arc<TicketKeys>,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(identity: &'a Certificate) -> Self {
        let tickets = TicketKeys::new(&[], Duration::from_secs(3600), None);
        Self { identity, handshake: HandshakeSettings::default(), clients: None, tickets }
    }

    pub(crate) fn serve(self) -> Served {
        let key = certified(self.identity).unwrap();
        let key = match &self.identity.ocsp {
            Some(file) => StapledKey::new(key, file).unwrap_or_else(|(key, _)| key),
            None => key.into(),
        };
        let hosts = ["a.test".to_owned()];
        let site = SiteDoor { hosts: &hosts, handshake: None, clients: self.clients.as_ref() };
        let settings = DoorSettings {
            handshake: &self.handshake,
            sites: &[site],
            protocols: &[b"http/1.1"],
            tickets: &self.tickets,
        };
        let door = Arc::new(Door::new(Arc::new(One(key)), &settings, Vec::new()).unwrap());
        let clients = self.clients.clone();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let accepting = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        tokio::spawn(answer(door.clone(), stream, clients.clone()));
                    }
                };
                tokio::select! { _ = stopped => {}, () = accepting => {} }
            });
        });
        Served { at: told.recv().unwrap(), _stop: stop }
    }
}

async fn answer(
    door: Arc<Door>,
    stream: tokio::net::TcpStream,
    clients: Option<ClientCertificateSettings>,
) {
    let client = stream.peer_addr().unwrap().ip();
    let Ok(accepted) =
        door.accept(stream, client, &TlsMetrics::registered(&mut Registry::default())).await
    else {
        return;
    };
    let mut stream = accepted.stream;
    let mut request = [0; 1024];
    if stream.read(&mut request).await.unwrap_or(0) == 0 {
        return;
    }
    let connection = stream.get_ref().1;
    let mut headers = HeaderMap::new();
    let admitted = clients.map(|site| admit(&site, accepted.client.as_deref(), true, &mut headers));
    let body = format!(
        "kind={:?}\nversion={:?}\nsuite={:?}\nadmitted={admitted:?}\nfields={headers:?}\n",
        connection.handshake_kind().unwrap(),
        connection.protocol_version().unwrap(),
        connection.negotiated_cipher_suite().unwrap().suite(),
    );
    let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Runs `openssl s_client` with these arguments for `a.test`, and returns all that it prints.
pub(crate) fn s_client(at: SocketAddr, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &at.to_string(), "-servername", "a.test", "-ign_eof"]);
    command.args(arguments);
    run(&mut command, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
}

/// Runs a program with this input, and returns all that it prints.
pub(crate) fn run(command: &mut Command, input: &str) -> String {
    use std::io::Write as _;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    // A client whose handshake has failed reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
