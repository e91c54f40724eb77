//! One line of a log, and the errors of a line.

use levada_types::Key;

/// A request as described by a log or a trace. A fact that the line does not state is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogRecord {
    /// Seconds since 1970 (logs without a time zone count as UTC).
    pub time: Option<f64>,
    /// The method as logged; `-` when the client sent no readable request.
    pub method: String,
    /// Host and port, from an absolute URL, a virtual host column or a field of its own.
    pub host: Option<String>,
    /// Path and query, or the object's identifier in a trace.
    pub target: String,
    /// The status of the response; traces have none.
    pub status: Option<u16>,
    /// Bytes of the response as logged: the body in most formats, with headers in Squid's and
    /// HAProxy's; in a trace the size of the object.
    pub bytes: Option<u64>,
    /// The time that the request took.
    pub taken: Option<TimeTaken>,
    /// The client's address, without its port.
    pub client: Option<String>,
    /// The field `Referer` as logged.
    pub referer: Option<String>,
    /// The field `User-Agent` as logged.
    pub user_agent: Option<String>,
    /// The result of the cache as logged, such as `HIT` or `TCP_MEM_HIT`.
    pub cache: Option<String>,
}

impl LogRecord {
    /// The name of the requested object: host and path with query, as far as the log has them.
    pub fn object_name(&self) -> String {
        [self.host.as_deref().unwrap_or(""), &self.target].concat()
    }

    /// The key of [`LogRecord::object_name`].
    pub fn object_key(&self) -> Key {
        match &self.host {
            Some(_) => Key::of(self.object_name().as_bytes()),
            None => Key::of(self.target.as_bytes()),
        }
    }

    /// The size of the object as far as this response states it: a response with 206 is a part, one with 304 has
    /// no body.
    pub fn stated_size(&self) -> StatedSize {
        match (self.status, self.bytes) {
            (Some(304), _) | (_, None) => StatedSize::Unknown,
            (Some(206), Some(bytes)) => StatedSize::AtLeast(bytes),
            (_, Some(bytes)) => StatedSize::Whole(bytes),
        }
    }
}

/// The size of an object in bytes, as far as responses state it. The largest statement is the best: aborted
/// transfers are shorter, and a whole response is better than any part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatedSize {
    /// Not stated.
    #[default]
    Unknown,
    /// A part of the object has this size.
    AtLeast(u64),
    /// The whole object has this size.
    Whole(u64),
}

impl StatedSize {
    /// The size; a lower bound if only a part is known.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::AtLeast(bytes) | Self::Whole(bytes) => Some(bytes),
        }
    }
}

/// The time that a request took, in seconds, and the event that ended it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimeTaken {
    /// Until the server's response began, or the server's own time.
    ToAnswer(f64),
    /// Until the end of the response, including its transfer to the client.
    InAll(f64),
}

impl TimeTaken {
    /// The seconds, of either kind.
    pub fn seconds(self) -> f64 {
        match self {
            Self::ToAnswer(seconds) | Self::InAll(seconds) => seconds,
        }
    }

    /// `None` if the time is not valid.
    pub(crate) fn checked(self) -> Option<Self> {
        let seconds = self.seconds();
        (seconds.is_finite() && seconds >= 0.0).then_some(self)
    }
}

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// The line ends or has another form before this field.
    #[error("no {0}")]
    Missing(&'static str),
    /// The field is present but invalid.
    #[error("the {0} is not readable")]
    Unreadable(&'static str),
    /// The line is not the expected JSON.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// The line is longer than [`crate::MAX_LINE`]; its rest was skipped.
    #[error("the line is longer than {} KiB", crate::MAX_LINE / 1024)]
    TooLong,
    /// The file is truncated or its compression is damaged; no line follows.
    #[error("the file cannot be read further: {0}")]
    Broken(String),
}

/// The result of every parser.
pub(crate) type Parsed = Result<LogRecord, LineProblem>;
