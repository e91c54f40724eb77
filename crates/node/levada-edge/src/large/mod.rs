//! Large files in pieces, fetched through the cluster: CoDeploy's agent (WORLDS'04, Sec. 3).
//!
//! ```text
//!   client ── GET /f ──> this node ── head of /f? ──> the node that the policy chooses for /f
//!                          │ large: length, validator           (or this one; small: its answer)
//!                          ├─ /f~levada~0-..  ─────> the node that it chooses for this piece
//!                          ├─ /f~levada~512k-.. ───> another
//!                          └─ in order to the client; at most a window of pieces is held
//! ```
//!
//! The head of a large file is an ordinary object under the file's URL. The size is learned from the
//! response that brings the head, so that small files have no extra cost. Each piece is an ordinary
//! object under a URL of its own ([`levada_fetch::ChunkUrl`]), which only a peer may request
//! ([`piece`]). [`levada_fetch::Chunked`] decides the source of a piece, the timeout and the retry;
//! [`transfer`] carries this out.
//!
//! A transfer has one version: the validator is part of each piece's name. If the file changes before
//! the first byte is sent, the transfer starts again; after that, the client's connection is cut.

mod dispatch;
mod flight;
mod head;
mod piece;
mod transfer;
mod transfers;

use std::sync::Arc;

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, PRAGMA},
};
use levada_access::fields::{ANEW, DIGEST, LARGE};
use levada_body::{
    LargeFile, Script,
    partial::{self, Wanted},
};
use levada_cache::{CONDITIONAL, CacheStatus, RangeSet, RequestCacheFields, has_precondition};

use levada_observe::metrics::CacheResult;

use crate::{
    access_record::AccessRecord, body::ResponseBody, client_connection::ListenerKind,
    request::RequestContext, respond,
};
use levada_failure::{Failed, Failure};

pub(crate) use dispatch::{Dispatch, Dispatched};
use head::file_of;
pub(crate) use head::{file_key, head, head_is_enough, is_large, stated_size};
pub(crate) use piece::{as_object, awaited};
use transfer::Transfer;
pub(crate) use transfers::Transfers;

/// Whether a peer requests only the head of a large file. The field counts from peers only, and is not
/// forwarded from clients ([`Forwarder::onward`](crate::forward::Forwarder::onward)).
pub(crate) fn asks_for_head(listener: ListenerKind, headers: &HeaderMap) -> bool {
    listener == ListenerKind::Peer && headers.contains_key(LARGE)
}

/// Whether the peer knows that the stored head is outdated.
pub(crate) fn asks_anew(headers: &HeaderMap) -> bool {
    headers.get(LARGE).is_some_and(|wanted| wanted == ANEW)
}

/// Whether a request may be answered in pieces if the file is large.
///
/// Requests with several ranges, or with conditions that only the origin may evaluate, are handled like
/// those for other objects.
pub(crate) fn may_be(context: &RequestContext) -> bool {
    let RequestContext { connection, resource, wants, parts, body, .. } = context;
    if resource.site.serves_large_files().is_none() || connection.listener == ListenerKind::Peer {
        return false;
    }
    let plain = parts.method == Method::GET && body.is_none();
    let alone = wants.directives.no_store || wants.directives.only_if_cached;
    let one = || {
        let ranges = RangeSet::of(&parts.headers);
        ranges.is_none_or(|ranges| ranges.single().is_some())
    };
    plain && !alone && one() && !has_precondition(&parts.headers)
}

/// Answers a request for a file that may be large. Requests the head and the pieces with `dispatch`.
pub(crate) async fn serve(
    transfers: &Arc<Transfers>,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
    dispatch: &Arc<dyn Dispatch>,
) -> Result<Response<ResponseBody>, Failed> {
    let client = context.again();
    context.head_is_enough = true;
    for _ in 0..2 {
        let mut response = dispatch.clone().dispatch(context, record).await?;
        if !response.headers().contains_key(LARGE) {
            return Ok(response);
        }
        let Some(file) = file_of(&mut response) else { break };
        match in_pieces(transfers, &client, file, response, record, dispatch).await {
            Ok(response) => return Ok(response),
            // The stored head is outdated.
            Err(Failure::Changed) => context = afresh(&client),
            Err(Failure::NoPieces) => break,
            Err(failure) => return Err(failure.into()),
        }
    }
    // The node that has the head serves the whole file as well.
    dispatch.clone().dispatch(client.again(), record).await
}

/// The same request for the head, to be fetched again. Revalidation would be useless: an incorrect
/// origin has another file under the same entity tag, and would answer 304.
fn afresh(client: &RequestContext) -> Box<RequestContext> {
    let mut context = client.again();
    (context.head_is_enough, context.anew) = (true, true);
    context.parts.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    context.wants = RequestCacheFields::of(&context.parts.headers);
    context
}

/// Makes the node that has the head of a file fetch it again, so that later requests get the current
/// version.
async fn refetch(
    transfers: &Arc<Transfers>,
    client: &RequestContext,
    dispatch: &Arc<dyn Dispatch>,
) {
    let mut record = AccessRecord::of_piece(&transfers.telemetry);
    drop(dispatch.clone().dispatch(afresh(client), &mut record).await);
}

/// The answer to a request for a large file, whose head is in `response`.
async fn in_pieces(
    transfers: &Arc<Transfers>,
    client: &RequestContext,
    file: LargeFile,
    response: Response<ResponseBody>,
    record: &mut AccessRecord,
    dispatch: &Arc<dyn Dispatch>,
) -> Result<Response<ResponseBody>, Failure> {
    let (length, key) = (file.length, client.resource.key());
    transfers.known.remember(key, &file);
    let wanted = partial::wanted_of(&client.parts, StatusCode::OK, &file.validators, length);
    let span = match &wanted {
        Wanted::Whole | Wanted::Inside(_) | Wanted::Elsewhere => 0..length,
        Wanted::Nothing => {
            return Ok(respond::unsatisfied(&transfers.name, length, &CacheStatus::default()));
        }
        Wanted::Some(ranges) => {
            let (first, end) = ranges.span();
            first..end
        }
    };
    let transfer = Transfer::new(transfers, client, &file, span, response.headers(), dispatch);
    let begun = transfer.ok_or(Failure::NoPieces)?.begin().await;
    let mut reader = begun.map_err(|_| Failure::NoPieces)?;
    // An error of the file shows in the first piece, while another answer is still possible.
    reader.ready().await?;
    record.outstanding = None;
    record.cache = CacheResult::Pieces;
    record.pieces = Some(reader.counts());
    let mut response = response.map(drop);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    let script = match wanted {
        Wanted::Some(ranges) => partial::answer(&mut response, &ranges, length, reader),
        _ => Script::whole(Some(length), reader),
    };
    Ok(response.map(|()| ResponseBody::new(script.into())))
}

impl RequestContext {
    /// A copy of the request. It has no body.
    fn again(&self) -> Box<Self> {
        let (connection, resource) = (self.connection.clone(), self.resource.clone());
        Box::new(Self {
            wants: self.wants,
            accepts: self.accepts,
            cache_use: self.cache_use,
            ..Self::own(connection, self.client, resource, self.parts.clone())
        })
    }

    /// The context of a request for a piece of this file.
    fn for_pieces(&self, file: &LargeFile) -> Box<Self> {
        let mut context = self.again();
        context.wants = RequestCacheFields::default();
        let headers = &mut context.parts.headers;
        for name in CONDITIONAL.iter().chain(&[CACHE_CONTROL, PRAGMA, DIGEST]) {
            headers.remove(name);
        }
        if let Some(validator) = &file.if_range {
            headers.insert(http::header::IF_RANGE, validator.clone());
        }
        context
    }
}
