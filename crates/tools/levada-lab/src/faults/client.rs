//! One request of a client, and what it received.

use std::net::SocketAddr;

use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;
use levada_testbed::cluster::{
    SILENCE_TIMEOUT,
    client::{Connection, Reader, handshake, request},
};
use tokio::{net::TcpSocket, time::timeout};

use super::door::Door;

/// Sends a GET and receives the head of the response, on a kept connection if there is one. If that
/// turns out to be closed, a new one takes its place.
///
/// # Errors
/// With the reason why there is no response.
pub(super) async fn send(
    door: &Door,
    target: &str,
    fields: &HeaderMap,
) -> Result<(Connection, Response<Incoming>), String> {
    let exchange = async {
        if let Some(mut kept) = door.idle.take()
            && let Ok(response) = kept.send_request(request(target, fields)).await
        {
            return Ok((kept, response));
        }
        let connection = connect(door.clients).await;
        let mut connection = connection.map_err(|error| format!("{error:#}"))?;
        let response = connection.send_request(request(target, fields)).await;
        Ok((connection, response.map_err(|error| error.to_string())?))
    };
    let late = |_| Err("no response in time".to_owned());
    timeout(SILENCE_TIMEOUT, exchange).await.unwrap_or_else(late)
}

async fn connect(address: SocketAddr) -> anyhow::Result<Connection> {
    let stream = small(address, None)?.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(handshake(stream).await?)
}

/// A socket with a small buffer, so that a client that does not read leaves the bytes to the node.
pub(super) fn small(to: SocketAddr, from: Option<SocketAddr>) -> std::io::Result<TcpSocket> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(BUFFER)?;
    from.map_or(Ok(()), |from| socket.bind(from))?;
    Ok(socket)
}

/// A client that reads as slowly as all of them.
pub(super) fn reader() -> Reader {
    Reader::new(READING, SILENCE_TIMEOUT)
}

/// The fields of a request of this client.
pub(super) fn fields(host: &'static str, client: &str) -> HeaderMap {
    let mut fields = levada_testbed::cluster::client::fields(host);
    if let Ok(client) = client.parse() {
        fields.insert("x-forwarded-for", client);
    }
    fields
}

/// Whether a node had the response stored (RFC 9211).
pub(super) fn is_hit<T>(response: &Response<T>) -> bool {
    let all = response.headers().get_all("cache-status").iter();
    let ok = response.status() == StatusCode::OK;
    ok && all.filter_map(|value| value.to_str().ok()).any(|value| value.contains("; hit"))
}

/// Bytes per second that a client reads.
const READING: f64 = 10e6;
const BUFFER: u32 = 64 << 10;
