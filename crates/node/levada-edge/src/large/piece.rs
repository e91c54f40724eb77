//! A piece of a file as an object of its own: the request of a peer for it, and the conversion of the
//! origin's 206.
//!
//! Between peers the range is part of the URL, so that a node which decides by URL treats pieces as
//! different files. The node that misses a piece restores the URL and adds `Range`; the origin's 206
//! becomes a 200 (WORLDS'04, Sec. 3). A URL is read as a piece's only if a peer marks it so, and no URL
//! has the key of a piece ([`crate::resource::Resource::identity`]): a client can neither request a
//! piece nor store another response in its place.

use http::{HeaderMap, HeaderValue, StatusCode, response::Parts};
use levada_access::fields::PIECE;
use levada_body::{judge_piece, piece_as_object};
use levada_upstream::PacedQueue;

use crate::{client_connection::ListenerKind, request::RequestContext};
use levada_failure::Failure;
use levada_upstream::Piece;

/// Whether a peer's answer is the piece.
pub(super) fn judge(piece: &Piece, head: &Parts) -> Result<(), Failure> {
    Ok(judge_piece(&piece.url, head, head.headers.get(PIECE))?)
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

/// Converts the answer to a request for a piece into that for an object. A node of the shield sends the object itself.
pub(crate) fn as_object(head: &mut Parts, piece: &Piece) -> Result<(), Failure> {
    if head.headers.contains_key(PIECE) {
        return judge(piece, head);
    }
    let version = piece_as_object(head, &piece.url)?;
    head.headers.extend(HeaderValue::try_from(version).ok().map(|version| (PIECE, version)));
    Ok(())
}
