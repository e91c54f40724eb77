//! One request over HTTP/3, from its head until the client has all of the response.

use std::{pin::pin, sync::Arc, task::Poll};

use bytes::Bytes;
use h3::{
    error::StreamError,
    server::{RequestResolver, RequestStream},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{self, CONTENT_LENGTH, DATE},
    response::Parts,
};
use http_body::Body;
use levada_http::{Interim, WatchedStream, date};

use crate::{
    RequestBody, Serve,
    body::BodyError,
    code::Code,
    connection::Connection,
    encoder::headers_frame,
    transport::{RequestLine, SendSide, Transport, data_frame},
    tunnel::TunnelStream,
};

/// Says that a request came before the handshake was complete (RFC 8470 Sec. 5.1).
const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// Fields that are not known in HTTP/3 (RFC 9114 Sec. 4.2).
const OF_CONNECTIONS: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Why a request ends without a whole response.
enum Cut {
    /// The client does not want it any more.
    Cancelled,
    /// This side ends the stream with a code.
    Reset(Code),
    /// The stream has been ended already.
    Over,
}

impl From<StreamError> for Cut {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::RemoteTerminate { .. } => Self::Cancelled,
            StreamError::StreamError { .. } | StreamError::ConnectionError { .. } => Self::Over,
            _ => Self::Reset(Code::INTERNAL_ERROR),
        }
    }
}

/// Answers the request on this stream. Returns whether its response may still be on its way to the client.
pub(crate) async fn answer<N: Serve>(
    connection: Arc<Connection<N>>,
    resolver: RequestResolver<Transport, Bytes>,
    line: Arc<RequestLine>,
    watched: WatchedStream,
) -> bool {
    let mut settled = pin!(line.settled());
    let answered = {
        let answering = pin!(exchange(&connection, resolver, &line, watched));
        tokio::select! {
            biased;
            answered = answering => answered,
            _ = &mut settled => Err(Cut::Cancelled),
        }
    };
    match answered {
        Ok(tunnel) => {
            connection.answered();
            if tunnel.is_none() && line.is_short() {
                return true;
            }
            if let Some((tunnel, stream, _watched)) = tunnel {
                // Boxed, so that other requests have no room for it.
                Box::pin(connection.node.run(tunnel, *stream, &connection.stop)).await;
            }
            // The client may stop what is left of it, whose room others need then.
            settled.await;
        }
        Err(Cut::Cancelled) => {
            line.reset(Code::REQUEST_CANCELLED);
            connection.cancelled();
        }
        Err(Cut::Reset(code)) => line.reset(code),
        Err(Cut::Over) => {}
    }
    false
}

/// A tunnel that a response has opened, and the client's side of it.
type Opened<N> = (<N as Serve>::Tunnel, Box<TunnelStream>, WatchedStream);

async fn exchange<N: Serve>(
    connection: &Connection<N>,
    resolver: RequestResolver<Transport, Bytes>,
    line: &Arc<RequestLine>,
    watched: WatchedStream,
) -> Result<Option<Opened<N>>, Cut> {
    let limit = connection.limits.head_timeout;
    let mut receiving = pin!(received(resolver, line));
    // No timer for a request that is there.
    let at_once = std::future::poll_fn(|cx| Poll::Ready(receiving.as_mut().poll(cx))).await;
    let (mut request, mut send, stream) = match at_once {
        Poll::Ready(received) => received?,
        Poll::Pending => tokio::time::timeout(limit, receiving)
            .await
            .map_err(|_| Cut::Reset(Code::REQUEST_INCOMPLETE))??,
    };
    connection.asked.notify_one();
    connection.roused.notify_one();
    if connection.is_early() {
        connection.node.metrics().early_requests.inc();
        match request.method().is_safe() {
            true => drop(request.headers_mut().insert(EARLY_DATA, HeaderValue::from_static("1"))),
            // A replay must not repeat its effect (RFC 8470 Sec. 3).
            false => connection.until_handshaken().await,
        }
    }
    let is_head = *request.method() == Method::HEAD;
    request.extensions_mut().insert(Interim::by(line.hints()));
    let client = connection.client();
    let mut answering = pin!(connection.node.serve(&client, request));
    let mut response = loop {
        let hint = tokio::select! {
            biased;
            hint = std::future::poll_fn(|cx| line.poll_hint(cx)) => hint,
            response = answering.as_mut() => break response,
        };
        send.send_response(interim(hint)).await?;
    };
    let tunnel = stream.is_some().then(|| connection.node.opened(&mut response)).flatten();
    let (mut head, body) = response.into_parts();
    complete(&mut head, &body, is_head);
    match headers_frame(head.status, &head.headers) {
        Some(frame) => {
            line.write(frame, &connection.written).await.map_err(|_| Cut::Cancelled)?;
        }
        None => send.send_response(Response::from_parts(head, ())).await?,
    }
    if let Some((tunnel, stream)) = tunnel.zip(stream) {
        return Ok(Some((tunnel, stream, watched)));
    }
    let mut body = watched.watch(body);
    send_body(connection, line, &mut send, &mut body).await?;
    drop(body);
    send.finish().await?;
    Ok(None)
}

/// An interim response (RFC 9114 Sec. 4.1).
fn interim((status, mut headers): (StatusCode, HeaderMap)) -> Response<()> {
    for name in &OF_CONNECTIONS {
        headers.remove(name);
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A request, the side for its response, and its stream if it asks for a tunnel.
type Received = (Request<RequestBody>, RequestStream<SendSide, Bytes>, Option<Box<TunnelStream>>);

/// The request, as soon as its head is there and it is known whether a safe one has a body.
async fn received(
    resolver: RequestResolver<Transport, Bytes>,
    line: &Arc<RequestLine>,
) -> Result<Received, Cut> {
    let (mut head, stream) = match resolver.resolve_request().await {
        Ok(resolved) => resolved,
        // h3 has answered it.
        Err(StreamError::HeaderTooBig { .. }) => return Err(Cut::Over),
        Err(error) => return Err(line.fault().map_or_else(|| error.into(), Cut::Reset)),
    };
    let is_connect = *head.method() == Method::CONNECT;
    if !line.fits(is_connect) || has_fields_of_connections(head.headers()) {
        return Err(Cut::Reset(Code::MESSAGE_ERROR));
    }
    let length = head.headers().get(CONTENT_LENGTH).and_then(length);
    let (send, recv) = stream.split();
    let (recv, tunnel) = match line.protocol() {
        Some(protocol) => {
            head.extensions_mut().insert(protocol);
            (None, Some(Box::new(TunnelStream::new(recv, line.clone()))))
        }
        None => (Some(recv), None),
    };
    let mut body = RequestBody::new(recv, line.clone(), length);
    // The end of the stream may come in a later packet than the head.
    let looked = body.look(head.method().is_safe() && !is_connect).await;
    looked.map_err(|error| match error {
        BodyError::Stream(error) => error.into(),
        BodyError::Length => Cut::Over,
    })?;
    Ok((head.map(|()| body), send, tunnel))
}

/// A length that is wrong is refused by the judge of all requests.
fn length(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}

fn has_fields_of_connections(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| OF_CONNECTIONS.contains(name))
        || headers
            .get_all(header::TE)
            .iter()
            .any(|te| !te.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// Completes the head of a response, as over HTTP/2.
fn complete<B: Body>(head: &mut Parts, body: &B, is_head: bool) {
    for name in &OF_CONNECTIONS {
        head.headers.remove(name);
    }
    if !head.headers.contains_key(DATE) {
        head.headers.insert(DATE, date::now());
    }
    if !is_head
        && !body.is_end_stream()
        && let Some(length) = body.size_hint().exact()
        && !head.headers.contains_key(CONTENT_LENGTH)
    {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

async fn send_body<N: Serve, B: Body<Data = Bytes> + Unpin>(
    connection: &Connection<N>,
    line: &RequestLine,
    send: &mut RequestStream<SendSide, Bytes>,
    body: &mut B,
) -> Result<(), Cut> {
    while !body.is_end_stream() {
        let polled = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx));
        let Some(frame) = polled.await else { return Ok(()) };
        // A client must not take what it has for the whole.
        let frame = frame.map_err(|_| Cut::Reset(Code::INTERNAL_ERROR))?;
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                line.write(data_frame(data), &connection.written)
                    .await
                    .map_err(|_| Cut::Cancelled)?;
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    send.send_trailers(trailers).await?;
                }
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_connections_are_refused_and_te_is_trailers() {
        for (name, value, refused) in [
            ("connection", "close", true),
            ("transfer-encoding", "chunked", true),
            ("upgrade", "websocket", true),
            ("te", "gzip", true),
            ("te", "Trailers", false),
            ("accept", "close", false),
        ] {
            let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
            let headers = HeaderMap::from_iter([(name.clone(), value)]);
            assert_eq!(has_fields_of_connections(&headers), refused, "{name}");
        }
    }
}
