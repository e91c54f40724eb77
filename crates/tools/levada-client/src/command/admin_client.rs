//! Requests to the admin address of a running node.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{
    Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use levada_types::AdminAddress;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};

/// The body of `target` at `admin`.
///
/// # Errors
/// If the node does not answer in time, or answers with an error, which is part of the message.
pub async fn get(
    admin: impl Into<AdminAddress>,
    target: &str,
    timeout: Duration,
) -> anyhow::Result<Bytes> {
    let request = Request::get(target).body(Full::default())?;
    answered(&admin.into(), request, timeout).await
}

/// Posts JSON to `target` at `admin`, with a token if the node requires one, and returns the answer.
///
/// # Errors
/// As of [`get`].
pub async fn post(
    admin: impl Into<AdminAddress>,
    target: &str,
    body: &serde_json::Value,
    token: Option<&str>,
    timeout: Duration,
) -> anyhow::Result<Bytes> {
    let request = posting(target, token);
    answered(&admin.into(), request.body(Full::from(body.to_string()))?, timeout).await
}

/// Posts JSON to `target` at `admin`, with a token if the node requires one; returns a refusal of the node as its text.
///
/// # Errors
/// If the node does not answer in time.
pub async fn try_post(
    admin: impl Into<AdminAddress>,
    target: &str,
    body: &serde_json::Value,
    token: Option<&str>,
    timeout: Duration,
) -> anyhow::Result<Result<Bytes, String>> {
    let request = posting(target, token).body(Full::from(body.to_string()))?;
    told(&admin.into(), request, timeout).await
}

/// The body of `target` at `admin`; returns a refusal of the node as its text.
///
/// # Errors
/// If the node does not answer in time.
pub async fn try_get(
    admin: impl Into<AdminAddress>,
    target: &str,
    timeout: Duration,
) -> anyhow::Result<Result<Bytes, String>> {
    told(&admin.into(), Request::get(target).body(Full::default())?, timeout).await
}

/// The sum of all series whose lines on the page of metrics begin with `name`.
///
/// # Errors
/// As of [`get`].
pub async fn metric(
    admin: impl Into<AdminAddress>,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<f64> {
    let page = get(admin, "/metrics", timeout).await?;
    let page = String::from_utf8_lossy(&page);
    let lines = page.lines().filter(|line| line.starts_with(name));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

async fn told(
    admin: &AdminAddress,
    request: Request<Full<Bytes>>,
    timeout: Duration,
) -> anyhow::Result<Result<Bytes, String>> {
    let told = tokio::time::timeout(timeout, exchange(admin, request)).await;
    let (status, body) = told.with_context(|| format!("{admin} does not answer"))??;
    Ok(match status.is_success() {
        true => Ok(body),
        false => Err(String::from_utf8_lossy(&body).into_owned()),
    })
}

fn posting(target: &str, token: Option<&str>) -> http::request::Builder {
    let request = Request::post(target).header(CONTENT_TYPE, "application/json");
    match token {
        Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    }
}

async fn answered(
    admin: &AdminAddress,
    request: Request<Full<Bytes>>,
    timeout: Duration,
) -> anyhow::Result<Bytes> {
    match told(admin, request, timeout).await? {
        Ok(body) => Ok(body),
        Err(refusal) => bail!("{admin}: {}", refusal.trim_end()),
    }
}

async fn exchange(
    admin: &AdminAddress,
    mut request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = connect(admin).await;
    let stream = stream.with_context(|| format!("no node listens for operators on {admin}"))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let host = admin.tcp().map_or_else(|| "localhost".to_owned(), |address| address.to_string());
    request.headers_mut().insert(HOST, host.parse()?);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{admin}: {error}"))?;
    connection.abort();
    Ok((status, body.to_bytes()))
}

/// A connection to an operator's address.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Connection for S {}

async fn connect(admin: &AdminAddress) -> std::io::Result<Box<dyn Connection>> {
    Ok(match admin {
        AdminAddress::Tcp(address) => Box::new(TcpStream::connect(address).await?),
        AdminAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

/// The request target for the explanation of `url`.
pub fn explain_target(url: &str) -> String {
    format!("/explain?url={}", escaped(url))
}

/// `text` as the value of a query argument.
pub fn escaped(text: &str) -> String {
    // All but the characters that stand for themselves in a query argument (RFC 3986, Sec. 3.4).
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~')
        .remove(b'/')
        .remove(b':');
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The largest answer: a status page of a thousand nodes is far smaller.
const LARGEST_ANSWER: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_escaped_in_a_query() {
        let target = explain_target("http://a.example/b c?d=%41&e#f");
        assert_eq!(target, "/explain?url=http://a.example/b%20c%3Fd%3D%2541%26e%23f");
    }
}
