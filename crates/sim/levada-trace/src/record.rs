//! One line of a log, and the errors of a line.

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
