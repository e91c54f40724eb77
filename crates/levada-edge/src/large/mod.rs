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
//! The head of a large file is an ordinary object under the file's URL; the size is learnt from the
//! response that brings it, so that a small one costs nothing. Each piece is an ordinary object under
//! a URL of its own ([`levada_fetch::ChunkUrl`]), which only a peer may ask for ([`piece`]). What a
//! piece is asked of, how long is waited for it and what is tried then, [`levada_fetch::Chunked`]
//! decides; [`transfer`] carries it out.
//!
//! One transfer, one version: the validator is part of each piece's name. When the file changes before
//! the first byte has gone out, the transfer begins anew; later, the client's connection is cut.

mod check;
mod flight;
mod head;
mod metrics;
mod piece;
mod room;
mod transfer;

use std::{pin::Pin, sync::Arc};

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, PRAGMA},
};
use levada_cache::{CONDITIONAL, CacheStatus, RangeSet, RequestCacheFields};
use levada_fetch::Sources;
use parking_lot::Mutex;

use crate::{
    access_record::AccessRecord,
    body::ResponseBody,
    body_reader::Script,
    cache_result::CacheResult,
    client_connection::Door,
    failure::{Failed, Failure},
    fields::{DIGEST, LARGE},
    node::Node,
    partial::{self, Wanted},
    request::RequestContext,
    stored,
};

use flight::PieceFlights;
pub(crate) use head::{File, Known, file_key, head, head_is_enough, is_large};
pub(crate) use metrics::LargeMetrics;
pub(crate) use piece::{address, as_object, tell};
use room::Room;
use transfer::Transfer;

/// What is read of a piece at once at most: it goes to where the piece is gathered, and the more
/// connections a transfer has, the more of it there is beside the window.
pub(crate) const READ: usize = 32 << 10;

/// What all transfers of a node have in common.
pub(crate) struct Agency {
    /// Memory for windows.
    room: Arc<Room>,
    /// Pieces that are on their way here.
    flights: PieceFlights,
    /// How nodes have done lately as sources of pieces.
    pub(crate) sources: Mutex<Sources>,
    /// Files that were served from here, for those who ask where their pieces are.
    pub(crate) known: Known,
}

impl Agency {
    /// With so many bytes for windows, in a cluster of so many nodes.
    pub(crate) fn new(bytes: u64, nodes: usize) -> Self {
        Self {
            room: Room::new(bytes),
            flights: PieceFlights::default(),
            sources: Mutex::new(Sources::new(nodes)),
            known: Known::default(),
        }
    }
}

/// Whether a peer says that the head of a large file is enough. Nobody else is listened to, and nobody
/// else's word goes on ([`crate::forward::onward`]).
pub(crate) fn asks_for_head(door: Door, headers: &HeaderMap) -> bool {
    door == Door::Peer && headers.contains_key(LARGE)
}

/// Whether that peer knows that what is stored here is wrong.
pub(crate) fn asks_anew(headers: &HeaderMap) -> bool {
    headers.get(LARGE).is_some_and(|wanted| wanted == piece::ANEW)
}

/// Whether a request might be answered in pieces, as soon as the file turns out to be large.
///
/// Several ranges of one request, and conditions that only the origin may judge, go the way of other
/// objects.
pub(crate) fn may_be(context: &RequestContext) -> bool {
    let RequestContext { connection, resource, wants, parts, body, .. } = context;
    if resource.site.serves_large_files().is_none() || connection.door == Door::Peer {
        return false;
    }
    let plain = parts.method == Method::GET && body.is_none();
    let alone = wants.directives.no_store || wants.directives.only_if_cached;
    let one = || {
        let ranges = RangeSet::of(&parts.headers);
        ranges.is_none_or(|ranges| ranges.single().is_some())
    };
    plain && !alone && one() && !crate::lookup::has_precondition(&parts.headers)
}

/// Answers one request as if it were not for a large file: by this node or by a peer.
pub(crate) type Dispatch = for<'a> fn(
    &'a Arc<Node>,
    Box<RequestContext>,
    &'a mut AccessRecord,
) -> Pin<
    Box<dyn Future<Output = Result<Response<ResponseBody>, Failed>> + Send + 'a>,
>;

/// Answers a request for what may be a large file. The head and the pieces are asked for by `dispatch`.
pub(crate) async fn serve(
    node: &Arc<Node>,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
    dispatch: Dispatch,
) -> Result<Response<ResponseBody>, Failed> {
    let client = context.again();
    context.head_is_enough = true;
    for _ in 0..2 {
        let mut response = dispatch(node, context, record).await?;
        if !response.headers().contains_key(LARGE) {
            return Ok(response);
        }
        let Some(file) = File::of(&mut response) else { break };
        match in_pieces(node, &client, file, response, record, dispatch).await {
            Ok(response) => return Ok(response),
            // What is stored of it is out of date.
            Err(Failure::Changed) => context = afresh(&client),
            Err(Failure::NoPieces) => break,
            Err(failure) => return Err(failure.into()),
        }
    }
    // The node that has its head has the rest as well, or gets it.
    dispatch(node, client.again(), record).await
}

/// The same request for the head, which is to be fetched anew. Whether the one that is stored still holds is
/// no question: a careless origin has another file under the same tag, and would say yes.
fn afresh(client: &RequestContext) -> Box<RequestContext> {
    let mut context = client.again();
    (context.head_is_enough, context.anew) = (true, true);
    context.parts.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    context.wants = RequestCacheFields::of(&context.parts.headers);
    context
}

/// Lets the node that has the head of a file fetch it anew, so that those who come later get the version
/// that there is now.
async fn refetch(node: &Arc<Node>, client: &RequestContext, dispatch: Dispatch) {
    let mut record = AccessRecord::of_piece(&node.telemetry);
    drop(dispatch(node, afresh(client), &mut record).await);
}

/// The answer to a request for a large file, whose head is in `response`.
async fn in_pieces(
    node: &Arc<Node>,
    client: &RequestContext,
    file: File,
    response: Response<ResponseBody>,
    record: &mut AccessRecord,
    dispatch: Dispatch,
) -> Result<Response<ResponseBody>, Failure> {
    let (length, key) = (file.length, client.resource.key);
    node.large.known.remember(key, &file);
    let wanted = partial::wanted_of(&client.parts, StatusCode::OK, &file.validators, length);
    let span = match &wanted {
        Wanted::Whole => 0..length,
        Wanted::Nothing => return Ok(stored::unsatisfied(node, length, &CacheStatus::default())),
        Wanted::Some(ranges) => {
            let (first, end) = ranges.span();
            first..end
        }
    };
    let transfer = Transfer::new(node, client, &file, span, response.headers(), dispatch);
    let Some(mut reader) = transfer.ok_or(Failure::NoPieces)?.begin() else {
        return Err(Failure::NoPieces);
    };
    // Whatever is wrong with the file shows in the first piece, while another answer can be given.
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
    /// The same request once more. It has no body.
    fn again(&self) -> Box<Self> {
        Box::new(Self {
            connection: self.connection.clone(),
            resource: self.resource.clone(),
            wants: self.wants,
            parts: self.parts.clone(),
            body: None,
            head_is_enough: false,
            anew: false,
            // Pieces are read here.
            zero_copy: None,
        })
    }

    /// What a request for a piece takes over of this one.
    fn for_pieces(&self, file: &File) -> Box<Self> {
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
