//! HTTP requests for names that are routed over HTTP: a small server of its own, which sends each client on.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_TYPE, HOST, LOCATION},
};
use http_body_util::Full;
use hyper::{
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use levada_access::{fields::FORWARDED_PROTO, trust::TrustBoundary};
use levada_config::Settings;
use levada_dns::{
    DnsSettings,
    redirect::HttpRequest,
    serve::{Server, accept_each},
};
use levada_net::stop::Stop;
use levada_tls::{
    by_name,
    door::{Door, DoorSettings},
    handshake::HandshakeSettings,
    metrics::TlsMetrics,
    pem::TlsError,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// The rules of all addresses, which a reload replaces.
pub(super) struct Redirecting {
    server: Arc<Server>,
    rules: Mutex<Arc<Rules>>,
    tls: TlsMetrics,
}

/// The rules of a moment.
struct Rules {
    /// A door for each address with TLS.
    doors: Vec<Option<Door>>,
    trust: TrustBoundary,
    status: StatusCode,
    idle: Duration,
}

/// The target that the client of a steering name wants.
const WANTED: &str = "x-tc-steering-option";

impl Redirecting {
    pub(super) fn new(
        server: Arc<Server>,
        settings: (&Settings, &DnsSettings),
        tls: TlsMetrics,
    ) -> Result<Arc<Self>, TlsError> {
        let rules = Mutex::new(Arc::new(Rules::new(settings)?));
        Ok(Arc::new(Self { server, rules, tls }))
    }

    /// Goes on with other settings. Certificates that cannot be read any more leave all as it is.
    pub(super) fn change(&self, settings: (&Settings, &DnsSettings)) {
        match Rules::new(settings) {
            Ok(rules) => *self.rules.lock() = Arc::new(rules),
            Err(error) => tracing::error!(%error, "redirects go on with their former certificates"),
        }
    }

    /// Answers at the address of this number until the stop.
    pub(super) async fn accept(
        self: Arc<Self>,
        number: usize,
        listener: TcpListener,
        settings: DnsSettings,
        stop: Stop,
    ) {
        let redirecting = self.clone();
        let serve = move |connection, client| {
            let (redirecting, rules) = (redirecting.clone(), redirecting.rules.lock().clone());
            async move { redirecting.serve(rules, number, connection, client).await }
        };
        accept_each(&self.server, listener, (settings.tcp, stop), serve).await;
    }

    async fn serve(
        &self,
        rules: Arc<Rules>,
        number: usize,
        connection: TcpStream,
        client: SocketAddr,
    ) {
        let Some(door) = rules.doors.get(number).and_then(Option::as_ref) else {
            return self.requests(&rules, "http", connection, client).await;
        };
        let accepted = door.accept(connection, client.ip(), &self.tls);
        // The metrics of TLS have counted failures.
        if let Ok(Ok(accepted)) = timeout(rules.idle, accepted).await {
            self.requests(&rules, "https", accepted.stream, client).await;
        }
    }

    async fn requests(
        &self,
        rules: &Rules,
        scheme: &'static str,
        connection: impl AsyncRead + AsyncWrite + Unpin,
        client: SocketAddr,
    ) {
        let answer = service_fn(async |mut request: Request<Incoming>| {
            let response = self.answer(rules, scheme, &mut request, client);
            Ok::<_, Infallible>(response)
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(rules.idle)
            .serve_connection(TokioIo::new(connection), answer)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "connection for redirects");
        }
    }

    fn answer(
        &self,
        rules: &Rules,
        scheme: &'static str,
        request: &mut Request<Incoming>,
        client: SocketAddr,
    ) -> Response<Full<Bytes>> {
        let client = rules.trust.cross(client.ip().to_canonical(), false, request.headers_mut());
        let field = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        // Only those of trusted proxies are left.
        let scheme = match field(FORWARDED_PROTO.as_str()) {
            Some(stated) if stated.eq_ignore_ascii_case("https") => "https",
            Some(stated) if stated.eq_ignore_ascii_case("http") => "http",
            _ => scheme,
        };
        let uri = request.uri();
        let host = uri.authority().map(|own| own.as_str()).or_else(|| field(HOST.as_str()));
        let answer = self.server.redirect(&HttpRequest {
            scheme,
            host: host.unwrap_or_default(),
            target: uri.path_and_query().map_or("/", |target| target.as_str()),
            wanted: field(WANTED),
            client,
        });
        let status = if answer.is_redirect() { Some(rules.status) } else { None };
        let status = status.or_else(|| StatusCode::from_u16(answer.status).ok());
        let mut response = Response::new(Full::new(Bytes::from(answer.json.unwrap_or_default())));
        *response.status_mut() = status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let location = answer.location.and_then(|url| HeaderValue::try_from(url).ok());
        location.map(|url| response.headers_mut().insert(LOCATION, url));
        if !response.body().is_end_stream() {
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
        }
        response
    }
}

impl Rules {
    fn new((settings, dns): (&Settings, &DnsSettings)) -> Result<Self, TlsError> {
        let secrets = settings.peering.as_ref().and_then(|peering| peering.trust.secrets());
        let tickets = settings.tickets.keys(secrets, None)?;
        let handshake = HandshakeSettings::default();
        let with = DoorSettings {
            handshake: &handshake,
            sites: &[],
            protocols: &[b"http/1.1"],
            tickets: &tickets,
        };
        let door = |tls: &Vec<_>| match tls.is_empty() {
            true => Ok(None),
            false => by_name::client_facing(tls, &with, |files| Arc::new(files)).map(Some),
        };
        let doors = dns.http.iter().map(|listener| door(&listener.tls));
        Ok(Self {
            doors: doors.collect::<Result<_, _>>()?,
            trust: TrustBoundary::new(&settings.trusted),
            status: StatusCode::from_u16(dns.redirect_status).unwrap_or(StatusCode::FOUND),
            idle: dns.tcp.idle,
        })
    }
}
