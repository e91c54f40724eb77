//! Fetching one block from the origin.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};
use levada_cache::{ContentRange, Validators};
use levada_store::{Block, Blocks, Object};
use levada_upstream::{RequestBody, ServerFailure};

use super::{BlockOrigin, BlockedBody, part_request, range_value};
use crate::{
    body::Relay,
    clock,
    failure::Failure,
    fill::{Fill, FillEnd, FillHandle, FillWriter},
    forward,
    node::Node,
    request::RequestContext,
};

/// The meaning of the origin's answer to a request for a block.
enum BlockAnswer {
    /// The block.
    Block,
    /// Something of another representation, or of none: what is stored is out of date.
    Changed,
    /// The same representation, but not the part that was asked for.
    Unfit,
    /// An error of the origin's, which says nothing about the representation.
    Error,
}

impl BlockOrigin for Node {
    fn fetch(self: Arc<Self>, blocked: Arc<BlockedBody>, number: u64, fill: Arc<Fill>) {
        tokio::spawn(async move { block(&self, &blocked, number, fill).await });
    }
}

/// The body of a stored object, for the client that asks for it.
pub(crate) fn stored(
    node: &Arc<Node>,
    context: &RequestContext,
    object: &Object,
) -> Arc<BlockedBody> {
    let resource = &context.resource;
    let Blocks { version, block, length } = object.blocks().unwrap_or_default();
    let head = object.head.clone();
    let partless = node.no_parts.holds(resource.key, node.clock.now());
    let onward = (!partless && head.validators.is_strong())
        .then(|| forward::onward(node, context, context.parts.headers.clone()));
    Arc::new(BlockedBody {
        tiers: node.tiers.clone(),
        origin: node.clone(),
        site: resource.site.clone(),
        key: resource.key,
        identity: resource.identity.as_str().into(),
        request: onward.and_then(|onward| part_request(&onward, &head)),
        head: Arc::new(head),
        version,
        block,
        length: Some(length),
        kept: true,
        running: None,
        zero_copy: context.zero_copy.clone(),
    })
}

/// Receives the first block that was asked for. `writer`'s readers learn how to read the others.
pub(crate) async fn first(
    node: &Node,
    blocked: Arc<BlockedBody>,
    number: u64,
    relay: Relay,
    mut writer: FillWriter,
) {
    // Only this fetch knows this version.
    let Some(FillHandle { reader, .. }) = blocked.join(number) else { return writer.dismiss() };
    let block = FillWriter::new(reader.fill().clone());
    drop(reader);
    writer.blocked(blocked.clone());
    // The head is in the store: later requests find it there.
    drop(writer);
    receive(node, &blocked, number, relay, block).await;
}

/// Fetches a block into the store, for all its readers.
async fn block(node: &Node, blocked: &BlockedBody, number: u64, fill: Arc<Fill>) {
    let writer = FillWriter::new(fill);
    let Some(mut request) = blocked.request.clone() else { return };
    node.fills.room().await;
    let span = blocked.span(number);
    request.headers.insert(header::RANGE, range_value(span.start, span.end));
    let sent = forward::to_origin(node, &blocked.site, &mut request, RequestBody::None).await;
    let (head, body) = match sent {
        Ok(exchange) => exchange.into_parts(),
        Err(failed) => return writer.fail(failed),
    };
    match judge(blocked, number, head.status, &head.headers) {
        BlockAnswer::Block => {}
        BlockAnswer::Changed => {
            tracing::info!(
                uri = blocked.identity,
                "the representation has changed; its blocks are dropped"
            );
            node.store.remove(blocked.key);
            return writer.dismiss();
        }
        BlockAnswer::Unfit => {
            tracing::info!(
                uri = blocked.identity,
                "the origin does not send the part it was asked for"
            );
            node.remember_no_parts(blocked.key);
            node.store.remove(blocked.key);
            return writer.dismiss();
        }
        BlockAnswer::Error => {
            return writer.fail(Failure::Server(ServerFailure::BadResponse).into());
        }
    }
    let relay = Relay::new(body, node.settings.limits.response_body_timeout);
    receive(node, blocked, number, relay, writer).await;
}

fn judge(
    blocked: &BlockedBody,
    number: u64,
    status: StatusCode,
    headers: &HeaderMap,
) -> BlockAnswer {
    if status.is_server_error() {
        return BlockAnswer::Error;
    }
    let same = Validators::of(headers, clock::wall()).same_representation(&blocked.head.validators);
    if !same || !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return BlockAnswer::Changed;
    }
    let told = ContentRange::of_part(headers);
    match told {
        Some(ContentRange { range: Some(range), length })
            if status == StatusCode::PARTIAL_CONTENT =>
        {
            let known = blocked.length.is_none() || length.is_none() || length == blocked.length;
            match (known, range == blocked.span(number)) {
                (false, _) => BlockAnswer::Changed,
                (true, true) => BlockAnswer::Block,
                (true, false) => BlockAnswer::Unfit,
            }
        }
        _ => BlockAnswer::Unfit,
    }
}

async fn receive(
    node: &Node,
    blocked: &BlockedBody,
    number: u64,
    mut relay: Relay,
    mut writer: FillWriter,
) {
    let span = blocked.span(number);
    let due = span.end - span.start;
    writer.share(blocked.head.clone(), Some(due), true);
    while let Some(frame) = relay.next().await {
        let Ok(frame) = frame else {
            tracing::info!(uri = blocked.identity, "the origin's part broke off");
            return;
        };
        let Ok(piece) = frame.into_data() else { continue };
        node.metrics.origin_bytes.inc_by(piece.len() as u64);
        if writer.written() + piece.len() as u64 > due {
            return;
        }
        writer.push(piece);
    }
    if writer.written() == due {
        let pieces = writer.fill().pieces();
        let block = Arc::new(Block::new(blocked.key, blocked.version, number, pieces.iter(), due));
        node.store.put_block(blocked.block_key(number), block.clone());
        blocked.complete(writer.fill(), FillEnd::Whole, &block);
    }
}
