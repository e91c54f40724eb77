//! The fields of a transfer's requests, and the facts about the file in the heads of its responses.

use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri, header};
use http_body::Body as _;
use levada_cache::ContentRange;
use levada_fetch::resume::{Answer, AnswerPart, Ask, FileVersion};

use super::{GetError, GetRequest};
use crate::{connect::ResponseBody, digest::repr_digest, proxy, redirect};

/// The fields of a request. Credentials are sent only to the server that the user named, not to the
/// target of a redirect.
pub(super) fn fields(request: &GetRequest, uri: &Uri, ask: &Ask) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = vec![
        (header::USER_AGENT, HeaderValue::from_static(AGENT)),
        (header::ACCEPT, HeaderValue::from_static("*/*")),
        (header::ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        (HeaderName::from_static("want-repr-digest"), HeaderValue::from_static("sha-256=1")),
    ];
    if let Some((start, end)) = ask.range {
        let end = end.map(|end| (end - 1).to_string()).unwrap_or_default();
        if let Ok(range) = HeaderValue::try_from(format!("bytes={start}-{end}")) {
            fields.push((header::RANGE, range));
        }
    }
    if let Some(Ok(validator)) = ask.if_range.as_ref().map(HeaderValue::try_from) {
        fields.push((header::IF_RANGE, validator));
    }
    // A Levada node with cached pieces of another version then uses none of them.
    if let Some(Ok(digest)) = request.digest.map(|digest| HeaderValue::try_from(digest.to_string()))
    {
        fields.push((HeaderName::from_static("levada-digest"), digest));
    }
    let own = redirect::same_origin(uri, &request.url);
    let user = proxy::basic(uri).or_else(|| proxy::basic(&request.url).filter(|_| own));
    fields.extend(user.map(|credentials| (header::AUTHORIZATION, credentials)));
    for (name, value) in &request.headers {
        if own || !redirect::is_credential(name) {
            fields.retain(|(known, _)| known != name || own_field(known));
            fields.push((name.clone(), value.clone()));
        }
    }
    fields
}

/// The URL to which a response redirects from `uri`. Only a file whose digest is verified may be fetched
/// without TLS then.
pub(super) fn redirected(
    uri: &Uri,
    response: &Response<ResponseBody>,
    is_verified: bool,
) -> Result<Uri, GetError> {
    redirect::target(uri, response.headers(), is_verified).map_err(|stop| match stop {
        redirect::RedirectRefusal::Nowhere => GetError::Nowhere(uri.clone()),
        redirect::RedirectRefusal::Insecure(to) => GetError::Insecure(to),
    })
}

/// Fields that a user cannot set, because the transfer depends on them.
fn own_field(name: &HeaderName) -> bool {
    [header::RANGE, header::IF_RANGE].contains(name)
}

/// The head of a response, in the form of the resume state machine.
pub(super) fn answer(response: &Response<ResponseBody>) -> Answer {
    let headers = response.headers();
    let status = response.status().as_u16();
    let part = match status {
        416 => headers.get(header::CONTENT_RANGE).and_then(ContentRange::parse),
        _ => ContentRange::of_part(headers),
    };
    Answer {
        status,
        length: response.body().size_hint().exact(),
        part: part.map(|part| AnswerPart { range: part.range, total: part.length }),
        version: version(headers),
    }
}

fn version(headers: &HeaderMap) -> FileVersion {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let etag = text(header::ETAG).map(str::trim).filter(|etag| etag.starts_with('"'));
    let strong = etag.map(str::to_owned).or_else(|| strong_date(headers));
    let digest = HeaderName::from_static("repr-digest");
    let encoding = text(header::CONTENT_ENCODING).map(str::trim);
    FileVersion {
        strong: strong.into_iter().collect(),
        digest: text(digest).and_then(repr_digest).map(|digest| digest.to_string()),
        encoding: encoding.filter(|e| !e.eq_ignore_ascii_case("identity")).map(str::to_owned),
    }
}

/// `Last-Modified` identifies one version if it is old enough when the response is sent (RFC 9110,
/// Sec. 8.8.2.2).
fn strong_date(headers: &HeaderMap) -> Option<String> {
    let modified = headers.get(header::LAST_MODIFIED)?;
    let then = levada_cache::parse_date(modified.as_bytes())?;
    let now = levada_cache::parse_date(headers.get(header::DATE)?.as_bytes())?;
    (now - then >= STRONG_AFTER).then(|| modified.to_str().ok().map(str::to_owned)).flatten()
}

const AGENT: &str = concat!("levada/", env!("CARGO_PKG_VERSION"));
/// In seconds. RFC 9110 requires one second; differences between clocks require more.
const STRONG_AFTER: i64 = 60;
