//! One line of a log, and what may be wrong with one.

/// A request as a log or a trace tells it. What the line does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
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
    /// How long the request took.
    pub taken: Option<Taken>,
}

/// How long a request took, in seconds, and until when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Taken {
    /// Until the server's answer began, or as long as the server itself took.
    ToAnswer(f64),
    /// Until the end of the answer, its way to the client included.
    InAll(f64),
}

impl Taken {
    /// The seconds, whatever they tell.
    pub fn seconds(self) -> f64 {
        match self {
            Self::ToAnswer(seconds) | Self::InAll(seconds) => seconds,
        }
    }

    /// `None` for what is no time.
    pub(crate) fn checked(self) -> Option<Self> {
        let seconds = self.seconds();
        (seconds.is_finite() && seconds >= 0.0).then_some(self)
    }
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line ends or changes shape before this field.
    #[error("no {0}")]
    Missing(&'static str),
    /// The field is there and cannot be read.
    #[error("the {0} is not readable")]
    Unreadable(&'static str),
    /// Not the JSON that was expected.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// Longer than [`crate::MAX_LINE`]; the rest of the line was passed over.
    #[error("the line is longer than {} KiB", crate::MAX_LINE / 1024)]
    TooLong,
    /// The file broke off or its compression is damaged; nothing follows.
    #[error("the file cannot be read further: {0}")]
    Broken(String),
}

/// What every parser returns.
pub(crate) type Parsed = Result<Record, Problem>;
