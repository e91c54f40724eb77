//! Files of a directory in the life of a request: the node that met the client answers from its own disk, outside
//! cluster and cache. `levada_body::files` finds the file and makes the response.

use levada_access::client_network;
use levada_body::files::{FileBody, FileDelivery};

use crate::{
    access_record::AccessRecord,
    body::{ResponseBody, Source},
    compress,
    node::Node,
    request::RequestContext,
    respond::PipelineResult,
};
use levada_failure::Failure;

/// Whether the directory has nothing for a request.
pub(crate) async fn lack(context: &RequestContext) -> bool {
    let Some(files) = &context.resource.site.files else { return false };
    !files.has(context.resource.file_target()).await
}

/// Answers a request of a site that is a directory.
pub(crate) async fn serve(
    node: &Node,
    mut context: Box<RequestContext>,
    record: &mut AccessRecord,
) -> PipelineResult {
    let site = context.resource.site.clone();
    let Some(files) = &site.files else { return Err(Failure::UnknownHost.into()) };
    let (client, pressure) = (client_network::of(context.client), node.memory.pressure());
    record.in_service = Some(node.capacity.enter(client, pressure).ok_or(Failure::Overload)?);
    let handling = context.resource.handling.clone();
    let siblings = files.siblings(&context.parts.headers);
    compress::negotiate(&mut context);
    let delivery = FileDelivery {
        siblings,
        accepts: context.accepts,
        compress: handling.compress.as_ref(),
        zero_copy: context.zero_copy.as_ref(),
    };
    let found = files.answer(context.resource.file_target(), &context.parts, &delivery).await;
    let mut response = found.map(|body| {
        ResponseBody::new(match body {
            FileBody::Bytes(bytes) => Source::Text(bytes),
            FileBody::Reader(script) => script.into(),
        })
    });
    compress::stream(&node.cache, &context, &mut response);
    response.body_mut().slow_down(node.pace());
    Ok(response)
}
