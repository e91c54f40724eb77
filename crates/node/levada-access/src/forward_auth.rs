//! Asks a server whether a request may pass, as `forward_auth` of Caddy, ForwardAuth of Traefik and
//! `auth_request` of nginx do.
//!
//! The server gets a GET with fields of the request and the `X-Forwarded-` fields that describe it. An answer with
//! status 2xx lets the request pass; any other answer is the client's. A server that does not answer lets no request
//! pass, unless the settings say so.

use std::{fmt, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, RANGE},
};
use levada_cache::strip_response;
use levada_upstream::{Address, Origin, RequestBody, Server, ServerFailure, UpstreamHead};

use crate::cdn_loop::{CDN_ID, CDN_LOOP};
use crate::{
    access::{AccessAnswer, AccessRequest},
    trust::FORWARDED_FOR,
};

/// The server that is asked, and the fields that go there and come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuthSettings {
    /// The server.
    pub server: Origin,
    /// The path and query of the question.
    pub target: String,
    /// The request's fields that the server gets; `None`: all that can describe a GET without a body.
    pub request_headers: Option<Vec<HeaderName>>,
    /// The fields of the answer that the request gets in place of its own.
    pub copy_headers: Vec<HeaderName>,
    /// The time for a whole answer.
    pub timeout: Duration,
    /// Whether requests pass when there is no answer.
    pub fail_open: bool,
}

/// The server that is asked, with its connections.
pub(crate) struct ForwardAuth {
    settings: ForwardAuthSettings,
    server: Arc<Server>,
    host: HeaderValue,
}

/// The largest body of an answer that a client gets. An answer is read as a whole, so that its connection can be
/// used again.
const LARGEST_ANSWER: usize = 256 << 10;

/// Questions at once, and idle connections that are kept.
const CONNECTIONS: usize = 256;

/// Fields that frame or condition the client's own request.
static NOT_ASKED: [HeaderName; 11] = [
    HOST,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    RANGE,
    http::header::IF_RANGE,
    http::header::IF_MATCH,
    http::header::IF_NONE_MATCH,
    http::header::IF_MODIFIED_SINCE,
    http::header::IF_UNMODIFIED_SINCE,
    http::header::CONTENT_ENCODING,
];

impl ForwardAuthSettings {
    /// In words, for operators.
    pub(crate) fn in_words(&self) -> String {
        let scheme = if self.server.tls() { "https" } else { "http" };
        let mut words =
            format!("the word of {scheme}://{}{}", Address::from(&self.server), self.target);
        if !self.copy_headers.is_empty() {
            let names: Vec<&str> = self.copy_headers.iter().map(HeaderName::as_str).collect();
            words += &format!(", which gives {}", names.join(", "));
        }
        if self.fail_open {
            words += ", if it answers";
        }
        words
    }
}

impl fmt::Debug for ForwardAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardAuth").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl ForwardAuth {
    /// The server at work, with connections of each of the `workers`. `None` if its host cannot stand in a field.
    pub(crate) fn new(settings: &ForwardAuthSettings, workers: usize) -> Option<Self> {
        let places = [CONNECTIONS, 4 * CONNECTIONS];
        let server = Server::of_node(&settings.server, places, settings.timeout, workers);
        let host = HeaderValue::from_str(&server.address.host()).ok()?;
        Some(Self { settings: settings.clone(), server, host })
    }

    /// Asks about a request, and gives it the fields of the answer.
    ///
    /// # Errors
    /// With the answer for the client, if the request may not pass.
    pub(crate) async fn admit(
        &self,
        request: &AccessRequest<'_>,
    ) -> Result<HeaderMap, Box<AccessAnswer>> {
        let head = self.question(request);
        let asking = tokio::time::timeout(self.settings.timeout, self.ask(&head));
        let answer = match asking.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) if self.settings.fail_open => return Ok(HeaderMap::new()),
            Ok(Err(failure)) => {
                tracing::warn!(server = %self.server.name, reason = failure.as_str(), "forward_auth");
                return Err(unanswered());
            }
            Err(_) => return Err(unanswered()),
        };
        if answer.status.is_success() {
            return Ok(answer.headers);
        }
        Err(Box::new(answer))
    }

    /// Replaces the fields of a request by those of the answer. A field that the answer lacks is removed: the client
    /// must not state it.
    pub(crate) fn copy(&self, answer: &HeaderMap, request: &mut HeaderMap) {
        for name in &self.settings.copy_headers {
            request.remove(name);
            for value in answer.get_all(name) {
                request.append(name, value.clone());
            }
        }
    }

    fn question(&self, request: &AccessRequest<'_>) -> UpstreamHead {
        let mut head = UpstreamHead::get(&self.settings.target);
        let given = request.headers;
        let is_asked = |name: &HeaderName| match &self.settings.request_headers {
            Some(names) => names.contains(name) || *name == CDN_LOOP,
            None => !NOT_ASKED.contains(name),
        };
        for (name, value) in given.iter().filter(|(name, _)| is_asked(name)) {
            head.headers.append(name, value.clone());
        }
        join_crumbs(&mut head.headers);
        head.headers.append(CDN_LOOP, HeaderValue::from_static(CDN_ID));
        head.headers.insert(HOST, self.host.clone());
        let client = request.client.to_string();
        for (name, text) in [
            (HeaderName::from_static("x-forwarded-method"), request.method.as_str()),
            (HeaderName::from_static("x-forwarded-proto"), request.url.scheme),
            (HeaderName::from_static("x-forwarded-host"), request.url.host),
            (HeaderName::from_static("x-forwarded-uri"), request.url.target),
            (FORWARDED_FOR, &client),
        ] {
            match HeaderValue::from_str(text) {
                Ok(value) => drop(head.headers.insert(name, value)),
                Err(_) => drop(head.headers.remove(name)),
            }
        }
        head
    }

    async fn ask(&self, head: &UpstreamHead) -> Result<AccessAnswer, ServerFailure> {
        let sent = self.server.exchange(head, RequestBody::None).await;
        let (parts, body) = sent.map_err(|(failure, _)| failure)?.into_parts();
        let mut headers = parts.headers;
        strip_response(&mut headers);
        headers.remove(CONTENT_LENGTH);
        let body = body.whole(LARGEST_ANSWER).await?;
        if !headers.contains_key(CACHE_CONTROL) {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        Ok(AccessAnswer {
            status: parts.status,
            headers,
            text: "",
            body: Some(body),
            reason: Some("the server of forward_auth refuses"),
        })
    }
}

/// HTTP/2 lets a client divide its cookies over several fields; HTTP/1.1 knows one (RFC 9113 Sec. 8.2.3).
fn join_crumbs(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(COOKIE, cookie);
    }
}

fn unanswered() -> Box<AccessAnswer> {
    Box::new(AccessAnswer {
        status: StatusCode::SERVICE_UNAVAILABLE,
        headers: HeaderMap::new(),
        text: "nobody can be let in at the moment",
        body: None,
        reason: Some("the server of forward_auth does not answer"),
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        net::{Ipv4Addr, TcpListener},
    };

    use http::Method;

    use super::*;
    use crate::signed::RequestUrl;

    /// The answer to a client whose request is refused by a server with a body of so many bytes.
    async fn refused(length: usize) -> AccessAnswer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Origin::Tcp { tls: false, host: "127.0.0.1".to_owned(), port };
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {length}\r\n\r\n");
            // The node closes the connection to a server whose answer is too long.
            let _ = stream.write_all(&[head.as_bytes(), &vec![b'x'; length]].concat());
        });
        let settings = ForwardAuthSettings {
            server,
            target: "/auth".to_owned(),
            request_headers: None,
            copy_headers: Vec::new(),
            timeout: Duration::from_secs(60),
            fail_open: false,
        };
        let request = AccessRequest {
            client: Ipv4Addr::LOCALHOST.into(),
            host: "a.test",
            url: RequestUrl { scheme: "http", host: "a.test", target: "/" },
            method: &Method::GET,
            headers: &HeaderMap::new(),
            now: 0,
            unix: 0,
            nodes: 1,
        };
        let forward = ForwardAuth::new(&settings, 1).unwrap();
        let refusal = forward.admit(&request).await.unwrap_err();
        drop(forward);
        answering.join().unwrap();
        *refusal
    }

    #[tokio::test]
    async fn client_gets_the_body_of_a_refusal_unless_it_is_too_long() {
        let answer = refused(LARGEST_ANSWER).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert_eq!(answer.body.unwrap().len(), 256 << 10);
        assert_eq!(refused(LARGEST_ANSWER + 1).await.status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
