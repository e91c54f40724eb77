//! A piece of a file as an object of its own: the request of a peer for it, and the conversion of the
//! origin's 206.
//!
//! Between peers the range is part of the URL, so that a node which decides by URL treats pieces as
//! different files. The node that misses a piece restores the URL and adds `Range`; the origin's 206
//! becomes a 200 (WORLDS'04, Sec. 3). A URL is read as a piece's only if a peer marks it so, and no URL
//! has the key of a piece ([`crate::resource::Resource::identity`]): a client can neither request a
//! piece nor store another response in its place.

use std::time::SystemTime;

use http::{HeaderMap, HeaderValue, StatusCode, header, response::Parts};
use levada_access::fields::PIECE;
use levada_body::part::content_length;
use levada_cache::{ContentRange, Validators};
use levada_upstream::{PacedQueue, ServerFailure};

use super::head::version_of;
use crate::{client_connection::ListenerKind, request::RequestContext, resource::Piece};
use levada_failure::Failure;

/// Whether a peer's answer is the piece.
pub(super) fn judge(piece: &Piece, head: &Parts) -> Result<(), Failure> {
    let answer = head.headers.get(PIECE).map(HeaderValue::as_bytes);
    let version = format!("{:016x}", piece.url.version);
    match (head.status, answer) {
        (_, Some(b"changed")) => Err(Failure::Changed),
        (_, Some(b"none")) => Err(Failure::NoPieces),
        (StatusCode::OK, Some(answer)) if answer == version.as_bytes() => {
            let length = content_length(&head.headers);
            if length == Some(piece.len()) {
                Ok(())
            } else {
                Err(Failure::Server(ServerFailure::BadResponse))
            }
        }
        (StatusCode::SERVICE_UNAVAILABLE, _) => Err(Failure::Server(ServerFailure::PeerFull)),
        _ => Err(Failure::Server(ServerFailure::BadResponse)),
    }
}

/// Awaits the outcome of a fetch. The requester of a piece learns that it waits for the origin: a peer by an interim
/// response.
pub(crate) async fn awaited<T>(context: &RequestContext, outcome: impl Future<Output = T>) -> T {
    let RequestContext { connection, resource, .. } = context;
    let Some(piece) = &resource.piece else { return outcome.await };
    let interim = connection.interim().filter(|_| connection.listener == ListenerKind::Peer);
    let tell = || {
        piece.notices.note();
        if let Some(interim) = &interim {
            interim.pass(StatusCode::PROCESSING, &HeaderMap::new());
        }
    };
    let site = &resource.site;
    PacedQueue::telling(outcome, site.response_timeout(), || site.origin_moves(), tell).await
}

/// Converts the origin's answer to a request for a piece into the answer for an object. It must be a
/// 206 with exactly the requested bytes, of the requested version.
pub(crate) fn as_object(head: &mut Parts, piece: &Piece) -> Result<(), Failure> {
    let headers = &mut head.headers;
    let part = ContentRange::of_part(headers);
    let length = match (head.status, &part) {
        (StatusCode::PARTIAL_CONTENT, Some(part)) => part.length,
        (StatusCode::OK, _) => content_length(headers),
        (StatusCode::PARTIAL_CONTENT, None) => return Err(Failure::NoPieces),
        // A file that is gone, or is shorter, has changed.
        (status, _) if status.is_client_error() => return Err(Failure::Changed),
        (status, _) => return Err(Failure::ErrorAnswer(status)),
    };
    let validators = Validators::of(headers, SystemTime::now());
    let version = length.and_then(|length| version_of(headers, &validators, length));
    if version != Some(piece.url.version) {
        return Err(Failure::Changed);
    }
    if part.and_then(|part| part.range).as_ref() != Some(&piece.url.range)
        || content_length(headers).is_some_and(|length| length != piece.len())
    {
        return Err(Failure::NoPieces);
    }
    head.status = StatusCode::OK;
    headers.remove(header::CONTENT_RANGE);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(piece.len()));
    if let Ok(version) = HeaderValue::try_from(format!("{:016x}", piece.url.version)) {
        headers.insert(PIECE, version);
    }
    Ok(())
}
