//! The way of a request for a head or a piece, which large files are handed.

use std::{pin::Pin, sync::Arc};

use http::Response;

use crate::{access_record::AccessRecord, body::ResponseBody, request::RequestContext};
use levada_failure::Failed;

/// The answer to a request, when it has come.
pub(crate) type Dispatched<'a> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Failed>> + Send + 'a>>;

/// Answers one request as if it were not for a large file: by this node or by a peer.
pub(crate) trait Dispatch: Send + Sync {
    /// Answers the request of `context`.
    fn dispatch<'a>(
        self: Arc<Self>,
        context: Box<RequestContext>,
        record: &'a mut AccessRecord,
    ) -> Dispatched<'a>;
}
