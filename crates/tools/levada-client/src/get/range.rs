//! A range of a file, read as it comes, without a file on disk.

use std::{
    ops::{ControlFlow, Range},
    time::Duration,
};

use http::Response;
use http_body_util::BodyExt as _;
use levada_fetch::resume::{Answer, AnswerPart, Ask, Trouble};
use tokio::time::timeout;

use super::{
    DownloadProgress, GetError, GetRequest,
    head::{answer, fields, redirected},
    lane::ends_here,
};
use crate::{
    Client,
    connect::{HttpConnection, ResponseBody},
};

/// The range to read, and the length of its file.
#[derive(Clone, Debug)]
pub(crate) struct FileRange {
    pub(crate) range: Range<u64>,
    pub(crate) total: u64,
}

/// The end of one response.
enum ReadEnd {
    /// All has come, or no more is wanted.
    Done,
    /// The connection broke off or stalled.
    Broken,
}

/// Uses the next bytes of a range, and says whether more are wanted.
pub(crate) type Take<'a> = dyn FnMut(&[u8]) -> ControlFlow<()> + Send + 'a;

impl Client {
    /// Passes the bytes of a range to `take`, in order. A connection that breaks off is replaced while
    /// there is progress.
    ///
    /// # Errors
    /// When the server does not serve the range, or the file has another length.
    pub(crate) async fn read_range(
        &self,
        request: &GetRequest,
        wanted: &FileRange,
        progress: &DownloadProgress,
        take: &mut Take<'_>,
    ) -> Result<(), GetError> {
        let left = wanted.clone();
        let mut reading = RangeTransfer { client: self, request, wanted, left, progress, take };
        tokio::select! {
            result = reading.run() => result,
            () = progress.until_stopped() => Err(GetError::Stopped),
        }
    }
}

/// A range that is being read.
struct RangeTransfer<'a> {
    client: &'a Client,
    request: &'a GetRequest,
    wanted: &'a FileRange,
    left: FileRange,
    progress: &'a DownloadProgress,
    take: &'a mut Take<'a>,
}

impl RangeTransfer<'_> {
    async fn run(&mut self) -> Result<(), GetError> {
        let mut poor = 0;
        let stall = self.request.stall.unwrap_or(STALL);
        loop {
            let before = self.left.range.start;
            let end = match timeout(HEAD_TIMEOUT.max(stall), self.open(poor > 0)).await {
                Ok(Ok(Some((response, link)))) => self.read(response, link, stall).await,
                Ok(Ok(None)) | Err(_) => ReadEnd::Broken,
                Ok(Err(error)) => return Err(error),
            };
            match end {
                ReadEnd::Done => return Ok(()),
                ReadEnd::Broken if self.left.range.start > before => poor = 0,
                ReadEnd::Broken => poor += 1,
            }
            if poor >= ATTEMPTS {
                return Err(Trouble::NoProgress { connections: poor }.into());
            }
        }
    }

    /// Sends the request, after redirects. `None` if the connection ended before the response.
    async fn open(
        &self,
        fresh: bool,
    ) -> Result<Option<(Response<ResponseBody>, HttpConnection)>, GetError> {
        let (client, request, wanted) = (self.client, self.request, &self.left);
        let mut uri = request.url.clone();
        let (mut fresh, mut hops) = (fresh, 0);
        // A server without ranges can serve a whole file.
        let whole = wanted.range == (0..wanted.total);
        let range = (!whole).then_some((wanted.range.start, Some(wanted.range.end)));
        loop {
            let mut link = client.link(&uri, fresh).await?;
            let fields = fields(request, &uri, &Ask { range, if_range: None });
            let response = match link.get(&uri, &fields, client.settings.proxy.as_ref()).await {
                Ok(response) => response,
                // A kept connection may have been closed in the meantime.
                Err(_) if link.used && !fresh => {
                    fresh = true;
                    continue;
                }
                Err(_) => return Ok(None),
            };
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                check(&answer(&response), wanted)?;
                return Ok(Some((response, link)));
            }
            // The reader verifies digests.
            uri = redirected(&uri, &response, true)?;
            hops += 1;
            if hops > request.redirects {
                return Err(GetError::Redirects(request.redirects, uri));
            }
        }
    }

    async fn read(
        &mut self,
        response: Response<ResponseBody>,
        mut link: HttpConnection,
        stall: Duration,
    ) -> ReadEnd {
        let mut body = response.into_body();
        loop {
            let Ok(Some(Ok(frame))) = timeout(stall, body.frame()).await else {
                return ReadEnd::Broken;
            };
            let Ok(mut data) = frame.into_data() else { continue };
            let left = &mut self.left.range;
            data.truncate(usize::try_from(left.end - left.start).unwrap_or(usize::MAX));
            left.start += data.len() as u64;
            self.progress.set(None, left.start - self.wanted.range.start);
            if (self.take)(&data).is_break() {
                return ReadEnd::Done;
            }
            if left.is_empty() {
                if ends_here(&mut body).await {
                    link.used = true;
                    self.client.keep(link);
                }
                return ReadEnd::Done;
            }
            self.client.pace.spent(data.len()).await;
        }
    }
}

/// Whether the response is the range of that file.
fn check(answer: &Answer, wanted: &FileRange) -> Result<(), GetError> {
    let total = match (answer.status, &answer.part) {
        (200, _) if wanted.range != (0..wanted.total) => return Err(GetError::NoRanges),
        (200, _) => answer.length,
        (206, Some(AnswerPart { range: Some(range), total }))
            if range.start == wanted.range.start =>
        {
            *total
        }
        (206, _) => return Err(GetError::NoRanges),
        (408 | 425 | 429 | 500 | 502..=504, _) => {
            return Err(GetError::Unavailable { status: answer.status });
        }
        (status, _) => return Err(Trouble::Refused { status }.into()),
    };
    match total {
        Some(told) if told != wanted.total => {
            Err(Trouble::WrongLength { told, expected: wanted.total }.into())
        }
        _ => Ok(()),
    }
}

const STALL: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How many connections in a row may bring nothing.
const ATTEMPTS: u32 = 3;
