//! The format of a line: a name, or a string with variables in nginx's notation. It is read once, with the
//! configuration, so that a line costs no parsing.

use std::{fmt, sync::Arc};

use http::HeaderName;

use crate::log::escape::Escape;

/// A variable of a format string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    RemoteAddr,
    RemoteUser,
    TimeLocal,
    TimeIso8601,
    Msec,
    Request,
    RequestMethod,
    Scheme,
    Host,
    RequestUri,
    Uri,
    Args,
    ServerProtocol,
    Status,
    BodyBytesSent,
    RequestTime,
    UpstreamAddr,
    UpstreamCacheStatus,
    Policy,
    Decision,
    Candidates,
    Complete,
    Error,
    RequestId,
    Pieces,
    PieceRetries,
    PieceHedges,
    WindowStalls,
    Sample,
    Hostname,
    /// One of the captured fields of the request.
    RequestField(usize),
    /// One of the captured fields of the response.
    ResponseField(usize),
    /// The counts of a large file and the identifier, each with its name and only where there is one: the
    /// end of the combined format.
    Details,
}

/// The variables without those that name a header field.
pub(crate) const VARIABLES: &[(&str, Variable)] = &[
    ("remote_addr", Variable::RemoteAddr),
    ("remote_user", Variable::RemoteUser),
    ("time_local", Variable::TimeLocal),
    ("time_iso8601", Variable::TimeIso8601),
    ("msec", Variable::Msec),
    ("request", Variable::Request),
    ("request_method", Variable::RequestMethod),
    ("scheme", Variable::Scheme),
    ("host", Variable::Host),
    ("request_uri", Variable::RequestUri),
    ("uri", Variable::Uri),
    ("args", Variable::Args),
    ("server_protocol", Variable::ServerProtocol),
    ("status", Variable::Status),
    ("body_bytes_sent", Variable::BodyBytesSent),
    ("request_time", Variable::RequestTime),
    ("upstream_addr", Variable::UpstreamAddr),
    ("upstream_cache_status", Variable::UpstreamCacheStatus),
    ("policy", Variable::Policy),
    ("decision", Variable::Decision),
    ("candidates", Variable::Candidates),
    ("complete", Variable::Complete),
    ("error", Variable::Error),
    ("request_id", Variable::RequestId),
    ("pieces", Variable::Pieces),
    ("piece_retries", Variable::PieceRetries),
    ("piece_hedges", Variable::PieceHedges),
    ("window_stalls", Variable::WindowStalls),
    ("sample", Variable::Sample),
    ("hostname", Variable::Hostname),
];

/// The names of all variables; those of header fields by their prefix.
pub fn variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|(name, _)| *name).chain(["http_", "sent_http_"])
}

/// The formats with a name.
pub const FORMAT_NAMES: [&str; 3] = ["combined", "common", "json"];

const COMMON: &str =
    r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent"#;
/// The fields of the combined format beyond the common one.
const BEYOND: &str = r#" "$http_referer" "$http_user_agent" $request_time $upstream_cache_status $upstream_addr $policy $decision $candidates"#;

/// A format that can be written.
#[derive(Clone, Debug)]
pub struct LogFormat(Arc<Parts>);

#[derive(Debug)]
pub(crate) struct Parts {
    /// As it was stated.
    source: String,
    pub(crate) parts: Vec<Part>,
    /// Fields of the request that lines need.
    pub(crate) request_fields: Vec<HeaderName>,
    /// Fields of the response that lines need.
    pub(crate) response_fields: Vec<HeaderName>,
    pub(crate) has_user: bool,
}

/// A part of a line.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Literal(String),
    Value(Variable, Escape),
    /// The object of the format `json`.
    Object,
}

impl Part {
    /// The part in the line of a request of which nothing is known but what every request has.
    fn least(&self) -> &str {
        use Variable as V;
        match self {
            Self::Literal(text) => text,
            Self::Value(V::Complete, _) => "true",
            Self::Value(
                V::Msec | V::Status | V::BodyBytesSent | V::RequestTime | V::Candidates | V::Sample,
                _,
            ) => "0",
            Self::Value(..) | Self::Object => "",
        }
    }
}

/// Why a text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// There is no variable, and no format has this name.
    #[error(
        "there is no format {0:?}: formats are combined, common, json, or a string with variables such as $remote_addr"
    )]
    UnknownName(String),
    /// There is no such variable.
    #[error("there is no variable ${0}")]
    UnknownVariable(String),
    /// A dollar sign without a name.
    #[error("a `$` without the name of a variable; `$$` is a dollar sign")]
    NoName,
    /// A line has one line.
    #[error("a format has no line ends and no control characters")]
    Control,
    /// It begins with a brace, and lines would not be JSON.
    #[error(
        "a format that begins with `{{` is JSON, but its lines would not be: {0}; variables other than numbers need quotes"
    )]
    NotJson(String),
}

impl LogFormat {
    /// The combined format, with Levada's own fields at its end.
    pub fn combined() -> Self {
        let mut format = Reader::read("combined", &format!("{COMMON}{BEYOND}"));
        format.parts.push(Part::Value(Variable::Details, Escape::Quoted));
        Self(Arc::new(format))
    }

    /// The common log format.
    pub fn common() -> Self {
        Self(Arc::new(Reader::read("common", COMMON)))
    }

    /// One JSON object a line.
    pub fn json() -> Self {
        Self(Arc::new(Parts {
            source: "json".to_owned(),
            parts: vec![Part::Object],
            request_fields: vec![http::header::REFERER, http::header::USER_AGENT],
            response_fields: Vec::new(),
            has_user: false,
        }))
    }

    /// Reads the name of a format or a format string.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        match text {
            "combined" => return Ok(Self::combined()),
            "common" => return Ok(Self::common()),
            "json" => return Ok(Self::json()),
            _ if !text.contains('$') => return Err(FormatError::UnknownName(text.to_owned())),
            _ if text.contains(|c: char| c.is_control() && c != '\t') => {
                return Err(FormatError::Control);
            }
            _ => {}
        }
        let mut reader = Reader::new(text);
        reader.all(text)?;
        let format = Self(Arc::new(reader.format));
        if text.trim_start().starts_with('{') {
            let sample: String = format.0.parts.iter().map(Part::least).collect();
            serde_json::from_str::<serde::de::IgnoredAny>(&sample)
                .map_err(|error| FormatError::NotJson(error.to_string()))?;
        }
        Ok(format)
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.0
    }
}

impl PartialEq for LogFormat {
    fn eq(&self, other: &Self) -> bool {
        self.0.source == other.0.source
    }
}

impl Eq for LogFormat {}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.source)
    }
}

/// Reads a format string.
struct Reader {
    format: Parts,
    is_json: bool,
    /// A quote is open.
    in_quotes: bool,
}

impl Reader {
    fn new(source: &str) -> Self {
        let format = Parts {
            source: source.to_owned(),
            parts: Vec::new(),
            request_fields: Vec::new(),
            response_fields: Vec::new(),
            has_user: false,
        };
        Self { format, is_json: source.trim_start().starts_with('{'), in_quotes: false }
    }

    /// A format string of this program.
    fn read(source: &str, text: &str) -> Parts {
        let mut reader = Self::new(source);
        reader.all(text).expect("the variables of named formats exist");
        reader.format
    }

    fn all(&mut self, text: &str) -> Result<(), FormatError> {
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('$') {
            self.literal(literal);
            if let Some(after) = after.strip_prefix('$') {
                self.literal("$");
                rest = after;
                continue;
            }
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            self.variable(name)?;
            rest = after;
        }
        self.literal(rest);
        Ok(())
    }

    fn literal(&mut self, text: &str) {
        let quotes = text.bytes().filter(|byte| *byte == b'"').count();
        self.in_quotes ^= quotes % 2 == 1;
        match self.format.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Literal(before)) => before.push_str(text),
            _ => self.format.parts.push(Part::Literal(text.to_owned())),
        }
    }

    fn variable(&mut self, name: &str) -> Result<(), FormatError> {
        if name.is_empty() {
            return Err(FormatError::NoName);
        }
        let unknown = || FormatError::UnknownVariable(name.to_owned());
        let field = |name: &str| {
            HeaderName::from_bytes(name.replace('_', "-").as_bytes()).map_err(|_| unknown())
        };
        let known = VARIABLES.iter().find(|(known, _)| *known == name);
        let variable = if let Some((_, variable)) = known {
            *variable
        } else if let Some(name) = name.strip_prefix("sent_http_") {
            Variable::ResponseField(place(&mut self.format.response_fields, field(name)?))
        } else if let Some(name) = name.strip_prefix("http_") {
            Variable::RequestField(place(&mut self.format.request_fields, field(name)?))
        } else {
            return Err(unknown());
        };
        self.format.has_user |= variable == Variable::RemoteUser;
        let escape = match (self.is_json, self.in_quotes) {
            (true, _) => Escape::Json,
            (false, true) => Escape::Quoted,
            (false, false) => Escape::Bare,
        };
        self.format.parts.push(Part::Value(variable, escape));
        Ok(())
    }
}

/// The place of `name` in the list, which has it then.
fn place(fields: &mut Vec<HeaderName>, name: HeaderName) -> usize {
    fields.iter().position(|known| *known == name).unwrap_or_else(|| {
        fields.push(name);
        fields.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_of_nginx_is_read() {
        let text = r#"$remote_addr - $remote_user [$time_local] "$request" $status $$ "$http_x_forwarded_for" "$sent_http_content_type" $http_x_forwarded_for"#;
        let format = LogFormat::parse(text).unwrap();
        let parts = format.parts();
        assert_eq!(parts.request_fields, ["x-forwarded-for"]);
        assert_eq!(parts.response_fields, ["content-type"]);
        assert_eq!(parts.parts[0], Part::Value(Variable::RemoteAddr, Escape::Bare));
        assert!(parts.parts.contains(&Part::Value(Variable::Request, Escape::Quoted)));
        assert!(parts.parts.contains(&Part::Literal(" $ \"".to_owned())));
        assert_eq!(parts.parts.last(), Some(&Part::Value(Variable::RequestField(0), Escape::Bare)));
        assert_eq!(format.to_string(), text);
    }

    #[test]
    fn wrong_formats_say_what_is_wrong() {
        let said = |text: &str| LogFormat::parse(text).unwrap_err().to_string();
        assert!(said("jsn").contains("no format \"jsn\""));
        assert_eq!(said("$remote_adr"), "there is no variable $remote_adr");
        assert_eq!(said("$http_"), "there is no variable $http_");
        assert!(said("$status $").contains("`$$` is a dollar sign"));
        assert!(said("$status\n").contains("no line ends"));
        assert!(said(r#"{"a": $request_id}"#).contains("need quotes"));
        assert!(LogFormat::parse(r#"{"a": "$request_id", "n": $status}"#).is_ok());
    }

    #[test]
    fn every_variable_is_documented() {
        let page = include_str!("../../../../../docs/operate/logs.md");
        for name in variables() {
            let name = name.replace("http_", "http_NAME");
            assert!(page.contains(&format!("`${name}`")), "docs/operate/logs.md lacks ${name}");
        }
    }
}
