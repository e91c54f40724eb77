//! TLS sessions of clients with certificates that are resumed after a reload has changed the rules.

use std::{net::SocketAddr, path::Path, sync::Arc};

use levada_config::{Certificate, ClientCertificateMode, ClientCertificateSettings, ClientFields};
use levada_node::Running;
use rustls::{
    ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    reload_all::change,
    support::{
        nodes::{world as world_of, *},
        *,
    },
};

/// A client that keeps its sessions.
pub(crate) struct Client(Arc<ClientConfig>);

/// A handshake with one request: its kind, and the status; 0 without an answer.
pub(crate) type Asked = (Option<HandshakeKind>, u16);

pub(crate) const FULL: Asked = (Some(HandshakeKind::Full), 200);
pub(crate) const RESUMED: Asked = (Some(HandshakeKind::Resumed), 200);

impl Client {
    pub(crate) fn new(
        version: &'static SupportedProtocolVersion,
        authority: &Path,
        identity: Option<&Certificate>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        Self(Arc::new(match identity {
            None => config.with_no_client_auth(),
            Some(files) => {
                let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        }))
    }

    pub(crate) async fn ask(&self, at: SocketAddr) -> Asked {
        let stream = within(TcpStream::connect(at)).await.unwrap();
        let name = ServerName::try_from(HOST).unwrap();
        let connected = within(TlsConnector::from(self.0.clone()).connect(name, stream)).await;
        let Ok(stream) = connected else { return (None, 0) };
        let kind = stream.get_ref().1.handshake_kind();
        let mut wire = Wire::over(stream);
        wire.send(head_of("GET", "/x", &[("Host", HOST)])).await;
        match wire.answer().await.status {
            0 => (None, 0),
            status => (kind, status),
        }
    }
}

struct World {
    origin: Origin,
    node: Running,
    file: File,
    settings: levada_config::Settings,
    servers: secure::Authority,
    clients: secure::Authority,
}

impl World {
    async fn new() -> Self {
        let (servers, clients) = (secure::Authority::new(), secure::Authority::new());
        let origin = Origin::start().await;
        let mut settings = single(&[origin.address]);
        settings.listeners[0].tls = vec![servers.issue(&[HOST])];
        // The origin gets to know every request.
        settings.sites[0].handling.cache = false;
        let (node, file) = world_of(settings.clone()).await;
        Self { origin, node, file, settings, servers, clients }
    }

    /// Reloads the node with this mode and the files as they are now; `None`: without rules.
    async fn reload(&mut self, mode: Option<ClientCertificateMode>) {
        let rules = |mode| ClientCertificateSettings {
            mode,
            authorities: vec![self.clients.path()],
            revocation_lists: vec![self.clients.path().with_extension("crl")],
            fields: vec![ClientFields::ClientCert, ClientFields::XSslClient],
        };
        self.settings.sites[0].tls.clients = mode.map(|mode| Arc::new(rules(mode)));
        change(&self.node, &self.file, &self.settings).await;
    }

    fn at(&self) -> SocketAddr {
        self.node.addresses.clients[0]
    }

    /// The fields that the origin got about the last client.
    fn told(&self) -> Vec<Option<String>> {
        let asked = self.origin.asked("/x").pop().unwrap();
        ["client-cert", "x-ssl-client-verify", "x-ssl-client-s-dn", "x-ssl-client-fingerprint"]
            .map(|name| asked.header(name))
            .to_vec()
    }
}

#[tokio::test]
async fn session_gives_no_access_after_its_authority_was_replaced_or_its_certificate_revoked() {
    let mut world = World::new().await;
    let required = Some(ClientCertificateMode::Required);
    for version in [&TLS13, &TLS12] {
        world.clients = secure::Authority::new();
        world.clients.revoke(&[]);
        world.reload(required).await;
        let identity = |serial: u64| {
            world.clients.issue_with(&["me.test"], |params| {
                params.serial_number = Some(serial.into());
            })
        };
        let authority = world.servers.path();
        let mine = identity(21);
        let client = Client::new(version, &authority, Some(&mine));
        let other = Client::new(version, &authority, Some(&identity(22)));
        assert_eq!((client.ask(world.at()).await, other.ask(world.at()).await), (FULL, FULL));
        assert_eq!(client.ask(world.at()).await, RESUMED);
        let told = world.told();
        assert!(told.iter().all(Option::is_some), "{told:?}");
        // A reload that changes nothing of it.
        world.reload(required).await;
        assert_eq!(client.ask(world.at()).await, RESUMED);
        assert_eq!(world.told(), told);
        world.clients.revoke(&[21]);
        world.reload(required).await;
        assert_eq!(client.ask(world.at()).await, (None, 0));
        assert_eq!(other.ask(world.at()).await, FULL, "the list is another one");
        assert_eq!(other.ask(world.at()).await, RESUMED);
        // Another authority in the same file.
        let next = secure::Authority::new();
        std::fs::copy(next.path(), world.clients.path()).unwrap();
        std::fs::copy(next.revoke(&[]), world.clients.path().with_extension("crl")).unwrap();
        world.reload(required).await;
        assert_eq!(other.ask(world.at()).await, (None, 0));
        world.reload(Some(ClientCertificateMode::Optional)).await;
        let (kind, status) = other.ask(world.at()).await;
        assert_eq!((kind, status), (Some(HandshakeKind::Full), 403));
    }
}

#[tokio::test]
async fn session_that_began_before_certificates_were_required_gives_no_access() {
    let mut world = World::new().await;
    world.clients.revoke(&[]);
    for version in [&TLS13, &TLS12] {
        world.reload(None).await;
        let nobody = Client::new(version, &world.servers.path(), None);
        assert_eq!(nobody.ask(world.at()).await, FULL);
        assert_eq!(nobody.ask(world.at()).await, RESUMED);
        world.reload(Some(ClientCertificateMode::Optional)).await;
        assert_eq!(nobody.ask(world.at()).await, FULL);
        assert_eq!(nobody.ask(world.at()).await, RESUMED);
        assert_eq!(world.told()[..2], [None, Some("NONE".to_owned())]);
        world.reload(Some(ClientCertificateMode::Required)).await;
        assert_eq!(nobody.ask(world.at()).await, (None, 0));
    }
}
