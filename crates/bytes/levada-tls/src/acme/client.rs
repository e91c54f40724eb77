//! HTTPS to the server of an authority. Each request has a connection of its own: orders are rare.
//!
//! The library keeps nothing of a refusal but its text, so the client remembers what the server says in header fields:
//! when it may be asked again, and the time.

use std::{
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, DATE, HOST, RETRY_AFTER, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::origin::{Authorities, ClientConfig, OriginTls, ServerName};

/// The time limit for one request. Authorities answer within seconds; some are slow under load.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer.
const LARGEST: usize = 1 << 20;
/// The part of an answer that an error quotes.
const QUOTED: usize = 200;
/// The longest wait that a server can impose: a wrong answer must not stop renewals until a certificate has ended.
const LONGEST_BACKOFF: Duration = Duration::from_secs(7 * 86_400);
/// A difference between two clocks that certificates do not forgive.
const SKEW: u64 = 3_600;

/// The statements of the server that come with its answers.
#[derive(Debug, Default)]
pub(crate) struct ServerSays {
    retry_at: Mutex<Option<SystemTime>>,
    skew: Mutex<Option<i64>>,
}

impl ServerSays {
    /// When it may be asked again, if it has asked for patience.
    pub(crate) fn retry_at(&self) -> Option<SystemTime> {
        let mut at = self.retry_at.lock();
        if at.is_some_and(|at| at <= SystemTime::now()) {
            *at = None;
        }
        *at
    }

    /// The difference to this machine's clock, in words, if it is too large.
    pub(crate) fn skew(&self) -> Option<String> {
        let skew = (*self.skew.lock())?;
        let words = levada_types::format_duration(Duration::from_secs(skew.unsigned_abs()));
        let side = if skew > 0 { "ahead of" } else { "behind" };
        Some(format!("the clock of this machine is {words} {side} the server's: set it"))
    }

    fn hear(&self, status: StatusCode, headers: &HeaderMap) {
        let now = SystemTime::now();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            && let Some(wait) = headers.get(RETRY_AFTER).and_then(|field| wait(field, now))
        {
            *self.retry_at.lock() = now.checked_add(wait.min(LONGEST_BACKOFF));
        }
        let Some(date) = headers.get(DATE).and_then(date) else { return };
        let (seconds, there) = (unix(now), unix(date));
        *self.skew.lock() = (seconds.abs_diff(there) > SKEW).then_some(seconds - there);
    }
}

fn date(field: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(field.to_str().ok()?).ok()
}

fn wait(field: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = field.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => date(field)?.duration_since(now).ok(),
    }
}

fn unix(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The client of one server.
#[derive(Clone)]
pub(crate) struct AcmeClient {
    tls: Arc<ClientConfig>,
    says: Arc<ServerSays>,
}

impl AcmeClient {
    /// A client that trusts the authorities of a PEM file, or those of the system.
    pub(crate) fn new(authority: Option<&Path>, says: Arc<ServerSays>) -> Result<Self, String> {
        let authorities = authority.map(|file| Authorities::File(file.to_owned()));
        let tls =
            OriginTls { authorities: authorities.into_iter().collect(), ..OriginTls::default() };
        let tls = tls.config(&[b"http/1.1"]).map_err(|error| error.to_string())?;
        Ok(Self { tls, says })
    }

    /// The body of a plain answer.
    pub(crate) async fn get(self, url: &str) -> Result<Bytes, String> {
        let request = Request::get(url).body(BodyWrapper::default());
        let request = request.map_err(|error| error.to_string())?;
        let mut answer = self.send(request).await.map_err(|error| error.to_string())?;
        answer.body.into_bytes().await.map_err(|error| error.to_string())
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let uri = request.uri().clone();
        let host = uri.authority().map_or_else(|| uri.to_string(), ToString::to_string);
        let failed = |why: String| Error::Other(format!("{host}: {why}").into());
        let answering = tokio::time::timeout(REQUEST_TIMEOUT, self.exchange(&uri, request));
        let response = match answering.await {
            Ok(response) => response.map_err(|error| failed(in_words(&error)))?,
            Err(_) => {
                return Err(failed(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())));
            }
        };
        self.says.hear(response.status(), response.headers());
        // The library would only say that it is no JSON.
        if !response.status().is_success() && !is_problem(&response) {
            let text = String::from_utf8_lossy(response.body());
            let quoted: String = text.trim().chars().take(QUOTED).collect();
            return Err(failed(format!("{}: {quoted}", response.status())));
        }
        Ok(BytesResponse::from(response.map(Full::new)))
    }

    async fn exchange(
        &self,
        uri: &Uri,
        request: Request<BodyWrapper<Bytes>>,
    ) -> io::Result<Response<Bytes>> {
        let host = uri.host().unwrap_or_default();
        let (host, is_tls) = (host.trim_matches(['[', ']']), uri.scheme_str() != Some("http"));
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let request = in_origin_form(request)?;
        if !is_tls {
            return over(stream, request).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        over(TlsConnector::from(self.tls.clone()).connect(name, stream).await?, request).await
    }
}

impl HttpClient for AcmeClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send(request))
    }
}

fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.contains("UnknownIssuer") {
        true => format!("{text}; is `acme.authority` the authority of the server's certificate?"),
        false => text,
    }
}

fn is_problem(response: &Response<Bytes>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    kind.starts_with(b"application/problem+json")
}

/// The request with the path alone as its target, and `Host`.
fn in_origin_form(
    mut request: Request<BodyWrapper<Bytes>>,
) -> io::Result<Request<BodyWrapper<Bytes>>> {
    let uri = request.uri();
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(host).map_err(io::Error::other)?;
    let agent = HeaderValue::from_static(concat!("levada/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(USER_AGENT, agent);
    *request.uri_mut() = target.parse().map_err(io::Error::other)?;
    Ok(request)
}

async fn over<S>(stream: S, request: Request<BodyWrapper<Bytes>>) -> io::Result<Response<Bytes>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let answering = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LARGEST).collect().await.map_err(io::Error::other)?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    let answer = answering.await;
    connection.abort();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(fields: &[(http::HeaderName, &str)]) -> ServerSays {
        let says = ServerSays::default();
        let fields = fields.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        says.hear(StatusCode::TOO_MANY_REQUESTS, &fields.collect());
        says
    }

    fn wait_of(says: &ServerSays) -> Option<u64> {
        let wait = says.retry_at()?.duration_since(SystemTime::now()).ok()?;
        Some(wait.as_secs_f64().round() as u64)
    }

    #[test]
    fn server_says_when_it_may_be_asked_again() {
        assert_eq!(wait_of(&hear(&[(RETRY_AFTER, "120")])), Some(120));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(600));
        let wait = wait_of(&hear(&[(RETRY_AFTER, &later)])).unwrap();
        assert!((598..=601).contains(&wait), "{wait}");
        assert_eq!(wait_of(&hear(&[(RETRY_AFTER, "99999999999999")])), Some(7 * 86_400));
        for nothing in
            ["", "-5", "soon", "99999999999999999999999", "Thu, 01 Jan 1970 00:00:00 GMT"]
        {
            assert_eq!(wait_of(&hear(&[(RETRY_AFTER, nothing)])), None, "{nothing:?}");
        }
    }

    #[test]
    fn clocks_that_differ_are_noticed() {
        let at = |seconds: u64| {
            let date = SystemTime::now() - Duration::from_secs(seconds);
            hear(&[(DATE, &httpdate::fmt_http_date(date))]).skew()
        };
        assert_eq!(at(60), None);
        let ahead = at(2 * 86_400).unwrap();
        assert!(ahead.contains("ahead of the server's"), "{ahead}");
    }

    #[test]
    fn file_without_authorities_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, "no PEM").unwrap();
        let error = AcmeClient::new(Some(&file), Arc::default()).err().unwrap();
        assert!(error.contains("holds no certificate"), "{error}");
        assert!(AcmeClient::new(None, Arc::default()).is_ok());
    }
}
