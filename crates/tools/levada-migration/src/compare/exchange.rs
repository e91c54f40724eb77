//! One request on a connection of its own.

use std::{io::Read as _, net::SocketAddr, sync::Arc, time::Duration};

use flate2::read::GzDecoder;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use levada_client::Roots;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::requests::Asked;

/// Time for a whole response.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest body that is compared.
const LONGEST: usize = 64 << 20;

/// A response, or the reason why there is none.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Response { status: u16, fields: HeaderMap, body: Vec<u8> },
    None(&'static str),
}

impl Answer {
    /// The same with the ports of the configuration in place of those of this comparison.
    fn at_port(self, port: u16, asked: &Asked) -> Self {
        let Self::Response { status, fields, body } = self else { return self };
        let written = asked.url.port_u16().map_or(String::new(), |own| format!(":{own}"));
        let replaced = |text: &str| text.replace(&format!(":{port}"), &written);
        let fields: HeaderMap = fields
            .iter()
            .map(|(name, own)| {
                let text = own.to_str().ok().map(replaced);
                let value = text.and_then(|text| text.parse().ok());
                (name.clone(), value.unwrap_or_else(|| own.clone()))
            })
            .collect();
        let body = match std::str::from_utf8(&body) {
            Ok(text) => replaced(text).into_bytes(),
            Err(_) => body,
        };
        Self::Response { status, fields, body }
    }
}

/// Sends requests. It does not look at certificates, which are those of the site under another address.
pub(super) struct Sender(TlsConnector);

impl Sender {
    pub(super) fn new() -> anyhow::Result<Self> {
        let config: ClientConfig = levada_client::tls_config(&Roots::Anyone, &[b"http/1.1"])?;
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// The response of the server at this address.
    pub(super) async fn send(&self, asked: &Asked, to: SocketAddr) -> Answer {
        match timeout(PATIENCE, self.exchange(asked, to)).await {
            Ok(Ok(answer)) => answer.at_port(to.port(), asked),
            Ok(Err(why)) => Answer::None(why),
            Err(_) => Answer::None("no whole response in time"),
        }
    }

    async fn exchange(&self, asked: &Asked, to: SocketAddr) -> Result<Answer, &'static str> {
        let stream = TcpStream::connect(to).await.map_err(|_| "no connection")?;
        if asked.url.scheme_str() != Some("https") {
            return respond(asked, stream).await;
        }
        let host = asked.url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|_| "no connection")?;
        let stream = self.0.connect(name, stream).await.map_err(|_| "the handshake failed")?;
        respond(asked, stream).await
    }
}

async fn respond(
    asked: &Asked,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Answer, &'static str> {
    const CLOSED: &str = "the connection ended without a response";
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| CLOSED)?;
    let driver = tokio::spawn(connection);
    let target = asked.url.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::builder().method(&asked.method).uri(target);
    request = request.header(header::HOST, asked.host());
    for (name, value) in asked.fields.iter().filter(|(name, _)| *name != header::HOST) {
        request = request.header(name, value);
    }
    request = request.header(header::CONNECTION, "close");
    let body = Full::new(bytes::Bytes::from(asked.body.clone()));
    let request = request.body(body).map_err(|_| "a request that cannot be sent")?;
    let response = sender.send_request(request).await.map_err(|_| CLOSED)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LONGEST).collect().await.map_err(|_| "a body that breaks off")?;
    driver.abort();
    let body = decoded(&head.headers, body.to_bytes().to_vec());
    Ok(Answer::Response { status: head.status.as_u16(), fields: head.headers, body })
}

/// A body without its coding, since two programs pack in two ways.
fn decoded(fields: &HeaderMap, body: Vec<u8>) -> Vec<u8> {
    let coding = fields.get(header::CONTENT_ENCODING).and_then(|coding| coding.to_str().ok());
    let mut plain = Vec::new();
    let read = match coding {
        Some("gzip") => GzDecoder::new(&body[..]).take(LONGEST as u64).read_to_end(&mut plain),
        _ => return body,
    };
    if read.is_ok() { plain } else { body }
}
