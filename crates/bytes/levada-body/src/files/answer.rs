//! The response with a file: its head, and the source of its body.

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::compress::{Accepts, Coding, CompressSettings};
use crate::{
    Script,
    partial::{self, Wanted},
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{self, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED},
    request::Parts,
};
use levada_cache::{Precondition, Validators, has_condition, not_modified_fields};
use levada_http::ZeroCopyQueue;

use crate::files::{
    find::{Asked, Found, FoundFile},
    listing::Listing,
    open::OpenFile,
    reader::FileReader,
    settings::FilesSettings,
};

/// The body of a response.
pub enum FileBody {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Read as it is sent.
    Reader(Script<FileReader>),
}

/// How responses reach the client.
pub struct FileDelivery<'a> {
    /// The codings of siblings that the client accepts: [`crate::files::FileDirectory::siblings`].
    pub siblings: Accepts,
    /// How the site compresses responses.
    pub compress: Option<&'a CompressSettings>,
    /// The codings in which the client gets what the site compresses.
    pub accepts: Accepts,
    /// The queue of the client's connection for bytes that the system sends.
    pub zero_copy: Option<&'a Arc<ZeroCopyQueue>>,
}

/// A tag is strong only if the file can no longer change within the resolution of the clock.
const SETTLED: Duration = Duration::from_secs(2);

/// A response that says no more than its status.
pub(crate) fn plain(status: StatusCode) -> Response<FileBody> {
    let text = Bytes::from(format!("{status}\n"));
    let mut response = Response::new(FileBody::Bytes(Bytes::new()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    *response.body_mut() = FileBody::Bytes(text);
    response
}

/// The answer to another method than GET and HEAD.
pub(crate) fn not_allowed() -> Response<FileBody> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// The response for the result of a search.
pub(crate) fn of_found(
    found: Found,
    (asked, target): (&Asked, &str),
    request: &Parts,
    delivery: &FileDelivery<'_>,
    now: SystemTime,
) -> Response<FileBody> {
    match found {
        Found::File(found) => of_file(*found, asked, request, delivery, now),
        Found::DirectoryWithoutSlash => {
            let mut response = plain(StatusCode::MOVED_PERMANENTLY);
            let location = HeaderValue::try_from(asked.path.with_slash(target));
            response.headers_mut().extend(location.map(|to| (header::LOCATION, to)));
            response
        }
        Found::Listing(Listing { bytes, content_type }) => {
            let length = HeaderValue::from(bytes.len());
            let body = if request.method == Method::HEAD { Bytes::new() } else { bytes };
            let mut response = Response::new(FileBody::Bytes(body));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, content_type);
            headers.insert(CONTENT_LENGTH, length);
            headers.insert(header::VARY, HeaderValue::from_static("accept"));
            response
        }
        Found::Nothing => plain(StatusCode::NOT_FOUND),
        Found::Failed(status) => plain(status),
    }
}

fn of_file(
    found: FoundFile,
    asked: &Asked,
    request: &Parts,
    delivery: &FileDelivery<'_>,
    now: SystemTime,
) -> Response<FileBody> {
    let FoundFile { name, file, coding, bytes } = found;
    let length = file.state.size;
    let mut headers = fields(&asked.settings, &name, &file, coding, now);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    // The body of a 200 leaves coded then.
    let is_covered = delivery.compress.is_some_and(|own| own.covers(StatusCode::OK, &mut headers));
    let is_coded = is_covered && !delivery.accepts.is_empty();
    let mut wanted = Wanted::Whole;
    if has_condition(&request.headers) {
        if is_coded && let Some(held) = coded_that_is_held(&headers, request, delivery, now) {
            return not_modified(&held);
        }
        let mut validators = validators(&headers, now);
        if is_coded {
            // A client with this date may hold the beginning of a coded body.
            validators = validators.of_remade();
        }
        match validators.precondition(&request.headers) {
            Precondition::Holds => {}
            Precondition::NotModified => return not_modified(&headers),
            Precondition::Failed => return plain(StatusCode::PRECONDITION_FAILED),
        }
        wanted = partial::wanted_of(request, StatusCode::OK, &validators, length);
    }
    let mut response = Response::new(());
    *response.headers_mut() = headers;
    let leaves_as_it_is = !is_coded || matches!(wanted, Wanted::Some(_));
    let zero_copy = delivery.zero_copy.filter(|_| leaves_as_it_is).cloned();
    let reader = || FileReader::new(file, zero_copy);
    let body = match (wanted, bytes) {
        (Wanted::Nothing, _) => {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            *response.headers_mut() = partial::unsatisfied(length);
            FileBody::Bytes(Bytes::new())
        }
        _ if request.method == Method::HEAD => FileBody::Bytes(Bytes::new()),
        (Wanted::Some(ranges), _) => {
            FileBody::Reader(partial::answer(&mut response, &ranges, length, reader()))
        }
        (_, Some(bytes)) => FileBody::Bytes(bytes),
        (_, None) => FileBody::Reader(Script::whole(Some(length), reader())),
    };
    response.map(|()| body)
}

/// The head of the coded body that the client holds already.
fn coded_that_is_held(
    headers: &HeaderMap,
    request: &Parts,
    delivery: &FileDelivery<'_>,
    now: SystemTime,
) -> Option<HeaderMap> {
    delivery.accepts.codings().find_map(|coding| {
        let mut coded = headers.clone();
        coding.apply_to(&mut coded);
        let condition = validators(&coded, now).precondition(&request.headers);
        (condition == Precondition::NotModified).then_some(coded)
    })
}

fn validators(headers: &HeaderMap, now: SystemTime) -> Validators {
    let validators = [ETAG, LAST_MODIFIED].into_iter();
    let mut seen: HeaderMap =
        validators.filter_map(|name| Some((name.clone(), headers.get(name)?.clone()))).collect();
    seen.insert(header::DATE, date(now));
    Validators::of(&seen, now)
}

fn not_modified(headers: &HeaderMap) -> Response<FileBody> {
    let mut response = Response::new(FileBody::Bytes(Bytes::new()));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = not_modified_fields(headers);
    response
}

/// The fields of a file.
fn fields(
    settings: &FilesSettings,
    name: &str,
    file: &OpenFile,
    coding: Option<Coding>,
    now: SystemTime,
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(10);
    headers.insert(CONTENT_TYPE, media_type(settings, name));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
    }
    if !settings.precompressed.is_empty() {
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let Some(value) = &settings.cache_control {
        headers.insert(header::CACHE_CONTROL, value.clone());
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let modified = modified(file);
    // A date in the future would be no validator (RFC 9110 Sec. 8.8.2.1).
    headers.insert(LAST_MODIFIED, date(modified.min(now)));
    let is_settled = now.duration_since(modified).is_ok_and(|age| age >= SETTLED);
    headers.extend(tag(file, coding, is_settled).map(|tag| (ETAG, tag)));
    headers
}

/// The tag of a file: of its time and size, so that nodes with the same files agree. Where times have no
/// fraction of a second, they were set by a program that may set the time of every version alike.
fn tag(file: &OpenFile, coding: Option<Coding>, is_settled: bool) -> Option<HeaderValue> {
    let (seconds, nanoseconds) = file.state.modified;
    let weak = if is_settled { "" } else { "W/" };
    let mut tag = format!("{weak}\"{seconds:x}.{nanoseconds:x}-{:x}", file.state.size);
    if nanoseconds == 0 {
        let (inode, changed, changed_nanoseconds) = file.inode;
        tag.push_str(&format!("-{inode:x}-{changed:x}.{changed_nanoseconds:x}"));
    }
    if let Some(coding) = coding {
        tag.push('-');
        tag.push_str(coding.as_str());
    }
    tag.push('"');
    HeaderValue::try_from(tag).ok()
}

fn modified(file: &OpenFile) -> SystemTime {
    let (seconds, nanoseconds) = file.state.modified;
    let since = Duration::new(u64::try_from(seconds).unwrap_or_default(), nanoseconds);
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

fn date(time: SystemTime) -> HeaderValue {
    // Dates beyond the year 9999 have no form.
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let text = httpdate::fmt_http_date(time.min(last));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

fn media_type(settings: &FilesSettings, name: &str) -> HeaderValue {
    let file = name.rsplit('/').next().unwrap_or(name);
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    if !settings.types.is_empty()
        && let Some(own) = settings.types.get(&extension.to_ascii_lowercase())
    {
        return own.clone();
    }
    match type_of_extension(extension) {
        Some(text) if text.starts_with("text/") => {
            HeaderValue::try_from(format!("{text}; charset=utf-8"))
                .unwrap_or(HeaderValue::from_static(text))
        }
        Some(other) => HeaderValue::from_static(other),
        None => HeaderValue::from_static("application/octet-stream"),
    }
}

/// The media type of files with this extension.
pub fn type_of_extension(extension: &str) -> Option<&'static str> {
    mime_guess::from_ext(extension).first_raw()
}

/// The status for what a system call said of a file.
pub(crate) fn status_of(error: rustix::io::Errno) -> StatusCode {
    use rustix::io::Errno;
    match error {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => StatusCode::SERVICE_UNAVAILABLE,
        // XDEV: a link that leaves the root. NXIO: a socket, or a device that is not there.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::NXIO
        | Errno::INVAL
        | Errno::STALE => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The same where it is wrapped.
pub(crate) fn status_of_io(error: &io::Error) -> StatusCode {
    rustix::io::Errno::from_io_error(error).map_or(StatusCode::SERVICE_UNAVAILABLE, status_of)
}
