//! The files of the page: embedded, compressed at their first request, and validated by their content.

use std::{io::Write as _, sync::LazyLock};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
        ETAG, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
    },
};
use http_body_util::Full;
use levada_types::hash64;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files: name, type, content.
const FILES: [(&str, &str, &str); 12] = [
    ("index.html", HTML, include_str!("../../assets/index.html")),
    ("style.css", "text/css; charset=utf-8", include_str!("../../assets/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
    ("main.js", SCRIPT, include_str!("../../assets/main.js")),
    ("parts.js", SCRIPT, include_str!("../../assets/parts.js")),
    ("state.js", SCRIPT, include_str!("../../assets/state.js")),
    ("charts.js", SCRIPT, include_str!("../../assets/charts.js")),
    ("matrix.js", SCRIPT, include_str!("../../assets/matrix.js")),
    ("sections.js", SCRIPT, include_str!("../../assets/sections.js")),
    ("why.js", SCRIPT, include_str!("../../assets/why.js")),
    ("fleet.js", SCRIPT, include_str!("../../assets/fleet.js")),
    ("orders.js", SCRIPT, include_str!("../../assets/orders.js")),
];

/// Scripts, styles and connections of this address only; no frame; no text that becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

struct File {
    name: &'static str,
    kind: &'static str,
    plain: &'static str,
    gzip: Bytes,
    tag: HeaderValue,
}

static FILES_READY: LazyLock<Vec<File>> = LazyLock::new(|| FILES.map(ready).into());

fn ready((name, kind, plain): (&'static str, &'static str, &'static str)) -> File {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // A vector takes everything.
    let _ = encoder.write_all(plain.as_bytes());
    let gzip = encoder.finish().unwrap_or_default().into();
    let tag = format!("W/\"{:016x}\"", hash64(plain.as_bytes()));
    let tag = tag.try_into().unwrap_or_else(|_| HeaderValue::from_static("W/\"0\""));
    File { name, kind, plain, gzip, tag }
}

/// The answer with a file, if there is one of this name.
pub(crate) fn answer(name: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    let file = FILES_READY.iter().find(|file| file.name == name)?;
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let is_gzip = accepted.is_some_and(accepts_gzip);
    let known = headers.get(IF_NONE_MATCH).map(HeaderValue::as_bytes);
    let is_known = known.is_some_and(|known| known == file.tag.as_bytes());
    let body = match (is_known, is_gzip) {
        (true, _) => Bytes::new(),
        (false, true) => file.gzip.clone(),
        (false, false) => Bytes::from_static(file.plain.as_bytes()),
    };
    let mut response = Response::new(Full::new(body));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let fields = response.headers_mut();
    guard(fields);
    fields.insert(ETAG, file.tag.clone());
    // Kept, and validated with each use: an upgraded node may have other files.
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    fields.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    if is_gzip && !is_known {
        fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|weight| weight > 0.0)
    })
}

/// The fields that keep other sites out.
pub(crate) fn guard(fields: &mut HeaderMap) {
    let all = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    fields.extend(all.map(|(name, value)| (name, HeaderValue::from_static(value))));
    fields.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    fields.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_small_and_ask_nobody_else() {
        let all: usize = FILES.iter().map(|(.., content)| content.len()).sum();
        let sent: usize = FILES_READY.iter().map(|file| file.gzip.len()).sum();
        println!("{all} bytes in {} files, {sent} compressed", FILES.len());
        assert!(all < 150_000, "{all} bytes");
        for (name, _, content) in FILES {
            let links = content.matches("http://").count() + content.matches("https://").count();
            let own = ["http://www.w3.org/2000/svg", "http://www.example.com/logo.png"];
            let own: usize = own.iter().map(|link| content.matches(link).count()).sum();
            assert_eq!(links, own, "{name} names another address");
            assert!(!content.contains("innerHTML"), "{name} parses text as markup");
            assert!(!content.contains(" style=\""), "{name} has a style that the policy forbids");
        }
    }

    #[test]
    fn every_script_that_is_named_is_there() {
        for (name, _, content) in FILES {
            let named = content.split(['"', '\'']).filter(|word| word.ends_with(".js"));
            for script in named.map(|path| path.rsplit('/').next().unwrap_or(path)) {
                assert!(FILES.iter().any(|(known, ..)| *known == script), "{name}: {script}");
            }
        }
    }

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        for (accepted, is_gzip) in
            [("gzip", true), ("br, GZIP;q=0.5", true), ("gzip;q=0", false), ("br", false)]
        {
            assert_eq!(accepts_gzip(accepted), is_gzip, "{accepted}");
        }
    }
}
