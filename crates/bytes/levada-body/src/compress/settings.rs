//! Which responses of a site are coded, and how.

use std::fmt;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use levada_types::text::{As, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::compress::coding::Coding;

/// The media types that are compressed by default: text, and formats that are text inside or leave
/// compression to HTTP. They are the lists of nginx's and Caddy's examples together.
pub const DEFAULT_TYPES: [&str; 26] = [
    "text/*",
    "*+json",
    "*+xml",
    "*+text",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/json",
    "application/x-ndjson",
    "application/xml",
    "application/xml-dtd",
    "application/wasm",
    "application/graphql",
    "application/rtf",
    "application/toml",
    "application/yaml",
    "application/vnd.ms-fontobject",
    "application/x-font-ttf",
    "application/x-font-opentype",
    "font/ttf",
    "font/otf",
    "font/collection",
    "image/svg+xml",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
];

/// Compression of a site's responses: docs/operate/compression.md. The table alone switches it on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompressSettings {
    /// Content codings in order of preference; none compresses nothing.
    pub codings: Vec<Coding>,
    /// Media types of responses that are compressed: `type/subtype`, `type/*` or `*+suffix`. `text/*` does not include
    /// `text/event-stream`.
    #[schemars(with = "Vec<String>")]
    pub types: Vec<TypePattern>,
    /// The least length of a response that is compressed, if its length is known.
    #[serde(with = "As::<Size>")]
    pub min_size: u64,
    /// The greatest length of a response that is compressed.
    #[serde(with = "As::<Size>")]
    pub max_size: u64,
    /// The level of each coding without load.
    #[serde(flatten)]
    pub levels: Levels,
    /// Whether the origin is asked for codings, those with dictionaries included. Otherwise it is asked for the
    /// original, and this node makes the copies.
    pub origin_codings: bool,
}

/// The level of each coding without load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Levels {
    /// The level of zstd.
    #[schemars(range(min = 1, max = 19))]
    #[serde(rename = "zstd_level")]
    pub zstd: u8,
    /// The level of br.
    #[schemars(range(max = 11))]
    #[serde(rename = "br_level")]
    pub br: u8,
    /// The level of gzip.
    #[schemars(range(min = 1, max = 9))]
    #[serde(rename = "gzip_level")]
    pub gzip: u8,
}

/// A media type; one `*` in it stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct TypePattern {
    before: Box<str>,
    /// `None` without a `*`.
    after: Option<Box<str>>,
}

impl Default for CompressSettings {
    fn default() -> Self {
        Self {
            codings: Coding::ALL.into(),
            types: DEFAULT_TYPES.iter().filter_map(|text| TypePattern::parse(text)).collect(),
            min_size: 512,
            max_size: 10 << 20,
            levels: Levels::default(),
            origin_codings: false,
        }
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self { zstd: 3, br: 5, gzip: 6 }
    }
}

impl From<String> for TypePattern {
    /// Takes any text: a file is read as a whole before its texts are judged.
    fn from(text: String) -> Self {
        match text.as_str() {
            "*/*" => Self { before: "".into(), after: Some("".into()) },
            "*" => Self { before: text.into(), after: None },
            _ => match text.split_once('*') {
                None => Self { before: text.into(), after: None },
                Some((before, after)) => Self { before: before.into(), after: Some(after.into()) },
            },
        }
    }
}

impl TypePattern {
    /// Reads a text that [`is_valid`](Self::is_valid).
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self::from(text.to_owned())).filter(Self::is_valid)
    }

    /// Whether it is `type/subtype`, `type/*`, `*/*` or `*+suffix`.
    pub fn is_valid(&self) -> bool {
        let text = self.to_string();
        let is_of_type = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-/*".contains(&byte);
        let has_form = text.starts_with("*+") || text.matches('/').count() == 1;
        text == "*/*"
            || (has_form && text.matches('*').count() <= 1 && text.bytes().all(is_of_type))
    }

    /// Whether a media type, without parameters, matches.
    fn matches(&self, media_type: &[u8]) -> bool {
        let (before, length) = (self.before.as_bytes(), media_type.len());
        match &self.after {
            None => media_type.eq_ignore_ascii_case(before),
            Some(after) if before.len() + after.len() > length => false,
            Some(after) => {
                media_type[..before.len()].eq_ignore_ascii_case(before)
                    && media_type[length - after.len()..].eq_ignore_ascii_case(after.as_bytes())
            }
        }
    }

    fn is_exact(&self) -> bool {
        self.after.is_none()
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.after {
            None => f.write_str(&self.before),
            Some(after) if self.before.is_empty() && after.is_empty() => f.write_str("*/*"),
            Some(after) => write!(f, "{}*{after}", self.before),
        }
    }
}

impl Serialize for TypePattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A wildcard does not mean it: its events must not wait for each other, and most servers of events
/// flush them themselves.
const EVENT_STREAM: &[u8] = b"text/event-stream";

impl CompressSettings {
    /// Whether a response with this head is compressed.
    pub fn applies(&self, status: StatusCode, response: &HeaderMap) -> bool {
        let has_whole_body = !status.is_informational()
            && ![
                StatusCode::NO_CONTENT,
                StatusCode::RESET_CONTENT,
                StatusCode::PARTIAL_CONTENT,
                StatusCode::NOT_MODIFIED,
            ]
            .contains(&status);
        has_whole_body
            && !response.contains_key(header::CONTENT_ENCODING)
            && !response.contains_key(header::CONTENT_RANGE)
            && response.get(header::CONTENT_TYPE).is_some_and(|value| self.includes(value))
            && self.has_size(response)
            && !forbids_transformation(response)
    }

    fn includes(&self, content_type: &HeaderValue) -> bool {
        let media_type = content_type.as_bytes().split(|&byte| byte == b';').next();
        let media_type = media_type.unwrap_or_default().trim_ascii();
        let exact = media_type.eq_ignore_ascii_case(EVENT_STREAM);
        let mut types = self.types.iter().filter(|pattern| !exact || pattern.is_exact());
        types.any(|pattern| pattern.matches(media_type))
    }

    fn has_size(&self, response: &HeaderMap) -> bool {
        let Some(value) = response.get(header::CONTENT_LENGTH) else { return true };
        let length = value.to_str().ok().and_then(|digits| digits.parse::<u64>().ok());
        length.is_none_or(|length| (self.min_size..=self.max_size).contains(&length))
    }
}

/// Whether the response forbids that its content is transformed (RFC 9111 Sec. 5.2.2.6).
fn forbids_transformation(response: &HeaderMap) -> bool {
    let lines = response.get_all(header::CACHE_CONTROL).iter();
    lines
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b','))
        .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn applies(fields: &[(&'static str, &'static str)]) -> bool {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers = fields.iter().map(field).collect();
        CompressSettings::default().applies(StatusCode::OK, &headers)
    }

    #[test]
    fn text_is_compressed_and_images_are_not() {
        for value in [
            "text/html; charset=utf-8",
            "Text/CSS",
            "application/json",
            "application/ld+json",
            "image/svg+xml",
            "application/wasm",
            "font/ttf",
        ] {
            assert!(applies(&[("content-type", value)]), "{value}");
        }
        for value in ["image/png", "application/zip", "font/woff2", "video/mp4", "", "text"] {
            assert!(!applies(&[("content-type", value)]), "{value}");
        }
        assert!(!applies(&[]));
    }

    #[test]
    fn event_stream_is_compressed_only_by_its_name() {
        assert!(!applies(&[("content-type", "text/event-stream")]));
        let types = vec![TypePattern::parse("text/event-stream").unwrap()];
        let named = CompressSettings { types, ..CompressSettings::default() };
        let fields = [(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))];
        assert!(named.applies(StatusCode::OK, &fields.into_iter().collect()));
    }

    #[test]
    fn coded_partial_short_and_untouchable_responses_stay_as_they_are() {
        let html = ("content-type", "text/html");
        assert!(applies(&[html, ("content-length", "512")]));
        assert!(!applies(&[html, ("content-length", "511")]));
        assert!(!applies(&[html, ("content-length", "99999999999")]));
        assert!(!applies(&[html, ("content-encoding", "gzip")]));
        assert!(!applies(&[html, ("content-range", "bytes 0-1/2")]));
        assert!(!applies(&[html, ("cache-control", "max-age=9, No-Transform")]));
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_static("text/html"))];
        let headers: HeaderMap = headers.into_iter().collect();
        for status in
            [StatusCode::NO_CONTENT, StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED]
        {
            assert!(!CompressSettings::default().applies(status, &headers), "{status}");
        }
        assert!(CompressSettings::default().applies(StatusCode::NOT_FOUND, &headers));
    }

    #[test]
    fn pattern_has_one_star_and_the_form_of_a_type() {
        for wrong in ["", "text", "text/*x*", "a b/c", "text/html;q=1", "*", "a/b/c"] {
            assert!(TypePattern::parse(wrong).is_none(), "{wrong}");
        }
        for right in ["*/*", "text/*", "*+json", "application/vnd.a+json"] {
            assert_eq!(TypePattern::parse(right).unwrap().to_string(), right);
        }
    }
}
