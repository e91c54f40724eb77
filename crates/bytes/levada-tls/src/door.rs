//! Accepts TLS connections of clients.
//!
//! A listener has one configuration, unless a site has rules of its own. Then the server name in the client's first
//! message chooses among several, and a client of a site that wants certificates is asked for one.

use std::{collections::HashMap, io, net::IpAddr, sync::Arc};

use rustls::{
    HandshakeKind, ServerConfig,
    server::{Acceptor, ResolvesServerCert},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor, server::TlsStream};

use crate::{
    client_certificates::{CertifiedClient, ClientCertificateSettings, ClientCertificates},
    fault::{TlsFault, io_in_words},
    handshake::HandshakeSettings,
    metrics::TlsMetrics,
    pem::{TlsError, contradiction},
    tickets::TicketKeys,
};

/// The settings of a door.
#[derive(Clone, Copy)]
pub struct DoorSettings<'a> {
    /// The handshakes of sites without rules of their own.
    pub handshake: &'a HandshakeSettings,
    /// All sites: one without rules of its own takes its hosts from a site with a wildcard.
    pub sites: &'a [SiteDoor<'a>],
    /// The protocols that clients may choose from (ALPN).
    pub protocols: &'a [&'a [u8]],
    /// The keys of session tickets.
    pub tickets: &'a Arc<TicketKeys>,
}

/// A site, as its handshakes see it.
#[derive(Clone, Copy)]
pub struct SiteDoor<'a> {
    /// Its hosts, with `*` at the beginning for all names that end so.
    pub hosts: &'a [String],
    /// Its own handshakes.
    pub handshake: Option<&'a HandshakeSettings>,
    /// Its rules for certificates of clients.
    pub clients: Option<&'a ClientCertificateSettings>,
}

/// Accepts connections of a listener.
pub struct Door {
    acceptor: TlsAcceptor,
    sites: Option<ByHost>,
    answers: Vec<(String, Option<u64>)>,
}

impl From<Arc<ServerConfig>> for Door {
    /// A door with one configuration.
    fn from(config: Arc<ServerConfig>) -> Self {
        Self { acceptor: TlsAcceptor::from(config), sites: None, answers: Vec::new() }
    }
}

/// A connection whose handshake is over.
#[derive(Debug)]
pub struct Accepted<S> {
    /// The connection.
    pub stream: TlsStream<S>,
    /// The client, if its site has rules for certificates.
    pub client: Option<Arc<CertifiedClient>>,
}

/// The rules of a site at work.
struct SiteRules {
    config: Arc<ServerConfig>,
    clients: Option<Arc<ClientCertificates>>,
}

/// Rules by host; `None` for sites without.
struct ByHost {
    exact: HashMap<String, Option<Arc<SiteRules>>>,
    /// By what follows the `*`.
    wildcards: HashMap<String, Option<Arc<SiteRules>>>,
}

impl Door {
    /// A door with these certificates. `answers`: until when there are OCSP answers about them, by file.
    ///
    /// # Errors
    /// When a file or a setting cannot be used.
    pub fn new(
        resolver: Arc<dyn ResolvesServerCert>,
        settings: &DoorSettings<'_>,
        answers: Vec<(String, Option<u64>)>,
    ) -> Result<Self, TlsError> {
        let config = config(&resolver, settings, settings.handshake, None)?;
        let sites = ByHost::new(&resolver, settings)?;
        Ok(Self { acceptor: TlsAcceptor::from(config), sites, answers })
    }

    /// The configuration of connections to sites without rules of their own.
    pub fn config(&self) -> &Arc<ServerConfig> {
        self.acceptor.config()
    }

    /// Until when there are OCSP answers, by certificate.
    pub fn answers(&self) -> &[(String, Option<u64>)] {
        &self.answers
    }

    /// Carries out a handshake, and verifies the client's certificate where its site wants one.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn accept<S>(
        &self,
        stream: S,
        client: IpAddr,
        metrics: &TlsMetrics,
    ) -> io::Result<Accepted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = match &self.sites {
            None => self.acceptor.accept(stream).await.map(of_nobody),
            Some(sites) => Box::pin(self.accept_by_host(sites, stream, (client, metrics))).await,
        };
        match &accepted {
            Ok(accepted) => metrics.handshook(accepted.stream.get_ref().1),
            Err(error) => metrics.failed(TlsFault::of_io(error).as_str()),
        }
        accepted
    }

    async fn accept_by_host<S>(
        &self,
        sites: &ByHost,
        stream: S,
        (client, metrics): (IpAddr, &TlsMetrics),
    ) -> io::Result<Accepted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let name = begun.client_hello().server_name().unwrap_or_default().to_ascii_lowercase();
        let Some(rules) = sites.find(&name) else {
            return begun.into_stream(self.acceptor.config().clone()).await.map(of_nobody);
        };
        let refused = |fault: TlsFault, words: &str| {
            metrics.certificate(fault.as_str());
            let site = name.as_str();
            tracing::info!(%client, site, reason = words, "client certificate refused");
        };
        let handshake = begun.into_stream(rules.config.clone()).await;
        let Some(certificates) = &rules.clients else { return handshake.map(of_nobody) };
        let stream = handshake.inspect_err(|error| {
            let fault = TlsFault::of_io(error);
            if fault.is_about_certificates() {
                refused(fault, &io_in_words(error));
            }
        })?;
        let connection = stream.get_ref().1;
        let chain = connection.peer_certificates();
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        match certificates.client(chain, certificates.looks_again(is_resumed)) {
            Ok((known, words)) => {
                match words {
                    Some(words) => refused(known.fault().unwrap_or(TlsFault::Other), &words),
                    None => metrics.certificate(known.result(chain.is_some())),
                }
                Ok(Accepted { stream, client: Some(Arc::new(known)) })
            }
            Err((fault, words)) => {
                refused(fault, &words);
                Err(io::Error::other(words))
            }
        }
    }
}

fn of_nobody<S>(stream: TlsStream<S>) -> Accepted<S> {
    Accepted { stream, client: None }
}

/// The configuration of one kind of handshakes.
fn config(
    resolver: &Arc<dyn ResolvesServerCert>,
    settings: &DoorSettings<'_>,
    handshake: &HandshakeSettings,
    clients: Option<&Arc<ClientCertificates>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(handshake.provider()?)
        .with_protocol_versions(&handshake.versions())
        .map_err(contradiction)?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients.in_handshakes()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver.clone());
    config.ignore_client_order = !handshake.ciphers.is_empty();
    config.alpn_protocols = settings.protocols.iter().map(|name| name.to_vec()).collect();
    config.max_early_data_size = 0;
    config.ticketer = settings.tickets.ticketer(clients.map_or(b"", |clients| clients.content()));
    Ok(Arc::new(config))
}

impl ByHost {
    /// `None` if no site has rules.
    fn new(
        resolver: &Arc<dyn ResolvesServerCert>,
        settings: &DoorSettings<'_>,
    ) -> Result<Option<Self>, TlsError> {
        let has_rules = |site: &SiteDoor<'_>| site.handshake.is_some() || site.clients.is_some();
        if !settings.sites.iter().any(has_rules) {
            return Ok(None);
        }
        let mut by_host = Self { exact: HashMap::new(), wildcards: HashMap::new() };
        // Sites with the same files read them once.
        let mut known: HashMap<&ClientCertificateSettings, Arc<ClientCertificates>> =
            HashMap::new();
        for site in settings.sites {
            if let Some(rules) = site.clients.filter(|rules| !known.contains_key(rules)) {
                known.insert(rules, ClientCertificates::new(rules)?);
            }
            let clients = site.clients.and_then(|rules| known.get(rules)).cloned();
            let rules = match has_rules(site) {
                false => None,
                true => {
                    let handshake = site.handshake.unwrap_or(settings.handshake);
                    let config = config(resolver, settings, handshake, clients.as_ref())?;
                    Some(Arc::new(SiteRules { config, clients }))
                }
            };
            for host in site.hosts {
                let host = host.to_ascii_lowercase();
                let (table, host) = match host.strip_prefix('*') {
                    Some(suffix) => (&mut by_host.wildcards, suffix.to_owned()),
                    None => (&mut by_host.exact, host),
                };
                table.entry(host).or_insert_with(|| rules.clone());
            }
        }
        Ok(Some(by_host))
    }

    /// The rules for a server name, which is in lower case. The most exact host wins, as it does for requests.
    fn find(&self, name: &str) -> Option<&Arc<SiteRules>> {
        if let Some(rules) = self.exact.get(name) {
            return rules.as_ref();
        }
        let dots = name.match_indices('.').map(|(at, _)| at).filter(|at| *at > 0);
        let mut suffixes = dots.chain([name.len()]).map(|at| &name[at..]);
        suffixes.find_map(|suffix| self.wildcards.get(suffix))?.as_ref()
    }
}
