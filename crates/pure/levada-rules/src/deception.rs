//! Armour against cache deception: a URL that looks like a static file, so that a rule stores what the origin says is
//! for one client.
//!
//! ```text
//!   /account;x.css    the origin answers for /account, a rule for *.css stores it
//! ```
//!
//! Where the rules of a site store more than HTTP does, a response must fit its URL: its type is that of the
//! extension, and the path can be read in one way only. One that does not is stored by HTTP's own rules alone.
//! Mirheidari et al., "Web Cache Deception Escalates!" (USENIX Security 2022), lists how servers differ in reading
//! paths.

use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

use crate::encoded;

/// Extensions of static files. Others, as in `/index.php` and `/john.doe`, promise nothing.
const STATIC: [&str; 62] = [
    "7z",
    "apk",
    "avi",
    "avif",
    "bin",
    "bmp",
    "bz2",
    "class",
    "css",
    "csv",
    "dmg",
    "doc",
    "docx",
    "eot",
    "eps",
    "exe",
    "flac",
    "gif",
    "gz",
    "ico",
    "iso",
    "jar",
    "jpeg",
    "jpg",
    "js",
    "json",
    "m4a",
    "mid",
    "midi",
    "mjs",
    "mkv",
    "mp3",
    "mp4",
    "ogg",
    "otf",
    "pdf",
    "png",
    "ppt",
    "pptx",
    "ps",
    "rar",
    "svg",
    "svgz",
    "swf",
    "tar",
    "tif",
    "tiff",
    "ttf",
    "txt",
    "wasm",
    "wav",
    "webm",
    "webmanifest",
    "webp",
    "woff",
    "woff2",
    "xls",
    "xlsx",
    "xml",
    "xz",
    "zip",
    "zst",
];

/// Whether a response with these fields can be what the path and query of its URL promise. `type_of` knows the media
/// types of extensions.
pub fn fits_its_url(
    target: &str,
    response: &HeaderMap,
    type_of: impl Fn(&str) -> Option<&'static str>,
) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    is_plain(path) && has_type_of(path, response, type_of)
}

/// Whether all servers read the path in the same way.
fn is_plain(path: &str) -> bool {
    // An encoded letter, digit, dot or hyphen is what no client sends; the others separate something to some servers.
    let splits =
        |octet: u8| b"-._~/\\;?#%&=@:!$|".contains(&octet) || octet.is_ascii_alphanumeric();
    let is_dot = |segment: &str| matches!(segment, "." | "..");
    !path.contains([';', '\\'])
        && !path.split('/').any(is_dot)
        && !encoded::octets(path).any(splits)
}

/// Whether the type is that of the extension. Bytes of no type fit every extension, and so does every type a path
/// without a known one.
fn has_type_of(
    path: &str,
    response: &HeaderMap,
    type_of: impl Fn(&str) -> Option<&'static str>,
) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let promised = extension.filter(|extension| STATIC.contains(&extension.as_str()));
    let promised = promised.and_then(|extension| type_of(&extension));
    let (Some(promised), Some(stated)) = (promised, response.get(CONTENT_TYPE)) else {
        return true;
    };
    let stated = essence(stated);
    stated == b"application/octet-stream" || kind(&stated) == kind(promised.as_bytes())
}

/// A media type in lower case, without its parameters.
fn essence(value: &HeaderValue) -> Vec<u8> {
    let media = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    media.trim_ascii().to_ascii_lowercase()
}

/// One name for each type that servers know under several names.
fn kind(media: &[u8]) -> &[u8] {
    const SCRIPTS: [&[u8]; 4] = [
        b"text/javascript",
        b"application/javascript",
        b"application/x-javascript",
        b"application/ecmascript",
    ];
    const FONTS: [&[u8]; 4] =
        [b"application/font-", b"application/x-font-", b"application/vnd.ms-font", b"font/"];
    const STREAMS: [&[u8]; 4] =
        [b"audio/", b"video/", b"application/vnd.apple.mpegurl", b"application/x-mpegurl"];
    let is_one_of = |list: &[&[u8]]| list.iter().any(|beginning| media.starts_with(beginning));
    match media {
        _ if SCRIPTS.contains(&media) => b"script",
        _ if is_one_of(&FONTS) => b"font",
        // A moving picture may come as a film.
        _ if is_one_of(&STREAMS) || media.starts_with(b"image/") => b"picture or sound",
        _ if media.ends_with(b"/json") || media.ends_with(b"+json") => b"json",
        _ if media.ends_with(b"/xml") || media.ends_with(b"+xml") => b"xml",
        _ if media.ends_with(b"zip") || media.ends_with(b"-compressed") => b"archive",
        _ => media,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [(&str, &str); 14] = [
        ("css", "text/css"),
        ("js", "text/javascript"),
        ("mjs", "text/javascript"),
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("gif", "image/gif"),
        ("ico", "image/x-icon"),
        ("svg", "image/svg+xml"),
        ("pdf", "application/pdf"),
        ("woff", "font/woff"),
        ("woff2", "font/woff2"),
        ("zip", "application/zip"),
        ("html", "text/html"),
        ("php", "application/x-httpd-php"),
    ];

    fn fits_as(target: &str, media: Option<&str>) -> bool {
        let media = media.map(|media| (CONTENT_TYPE, media.parse().unwrap()));
        let type_of = |extension: &str| {
            TYPES.iter().find_map(|(one, media)| (*one == extension).then_some(*media))
        };
        fits_its_url(target, &media.into_iter().collect(), type_of)
    }

    #[test]
    fn paths_that_servers_read_differently_do_not_fit() {
        for path in [
            "/account;x.css",
            "/account%3bx.css",
            "/account%3fx.css",
            "/account%23x.css",
            "/account%2Fx.css",
            "/account%5cx.css",
            "/account\\x.css",
            "/static/..%5caccount",
            "/static/..%2faccount",
            "/static/%2e%2e/account",
            "/static/../account.css",
            "/account%252fx.css",
            "/account.%63ss",
            "/account%2ecss",
        ] {
            assert!(!fits_as(path, Some("text/css")), "{path}");
        }
        for path in ["/a.css", "/a.css?x=%2f;y", "/%c3%a9/a%20b.css", "/a,b(c)+d.css", "/..a/b.css"]
        {
            assert!(fits_as(path, Some("text/css; charset=utf-8")), "{path}");
        }
    }

    #[test]
    fn type_is_that_of_the_extension() {
        for (path, media) in [
            ("/account.css", "text/html"),
            ("/account/x.js", "text/html; charset=utf-8"),
            ("/account/x.png", "application/json"),
            ("/account/x.JPG", "TEXT/HTML"),
            ("/x.css", "text/plain"),
            ("/x.pdf", "text/html"),
            ("/x.woff2", "application/json"),
        ] {
            assert!(!fits_as(path, Some(media)), "{path} {media}");
        }
        for (path, media) in [
            ("/x.js", "application/javascript"),
            ("/x.mjs", "text/javascript"),
            ("/x.jpg", "image/webp"),
            ("/x.gif", "video/webm"),
            ("/x.ico", "image/vnd.microsoft.icon"),
            ("/x.woff", "application/font-woff"),
            ("/x.svg", "image/svg+xml"),
            ("/x.zip", "application/x-zip-compressed"),
            ("/x.css", "application/octet-stream"),
            ("/x.html", "text/html"),
            ("/x.nosuchthing", "text/html"),
            ("/index.php", "text/html"),
            ("/john.doe", "text/html"),
            ("/account", "text/html"),
        ] {
            assert!(fits_as(path, Some(media)), "{path} {media}");
        }
        assert!(fits_as("/x.css", None));
    }
}
