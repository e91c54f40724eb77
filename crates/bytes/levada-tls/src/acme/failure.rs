//! Why there is no certificate, and how soon it is worth another try.

use std::time::{Duration, SystemTime};

use instant_acme::Error;

use crate::acme::storage::StorageError;

/// Why an order failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderFailure {
    /// The server could not be reached, or is not well. Trying again costs it little.
    #[error("{0}")]
    Unreachable(String),
    /// The server wants no more requests for a while.
    #[error("{why}; the next try is in {}", levada_types::format_duration(*wait))]
    Limited { why: String, wait: Duration },
    /// The server refused. Servers count such failures, and allow few of them.
    #[error("{0}")]
    Refused(String),
    /// Nothing is ordered that would be lost.
    #[error("nothing is ordered, because it could not be stored: {0}")]
    Storage(#[from] StorageError),
}

/// The wait after a refusal because of limits that says no time. Authorities count by hours.
const LIMITED_BACKOFF: Duration = Duration::from_secs(3600);

impl OrderFailure {
    /// The failure of a step.
    pub(crate) fn of(step: &str, error: &Error, retry_at: Option<SystemTime>) -> Self {
        let why = format!("{step}: {}", in_words(error));
        let wait = retry_at.and_then(|at| at.duration_since(SystemTime::now()).ok());
        match (error, wait) {
            (_, Some(wait)) => Self::Limited { why, wait },
            (Error::Api(problem), None) => match kind(problem.r#type.as_deref()) {
                "rateLimited" => Self::Limited { why, wait: LIMITED_BACKOFF },
                "badNonce" | "serverInternal" => Self::Unreachable(why),
                _ => Self::Refused(why),
            },
            (Error::Unsupported(_), None) => Self::Refused(why),
            _ => Self::Unreachable(why),
        }
    }
}

/// Whether the server says that it does not know the account.
pub(crate) fn is_unknown_account(error: &Error) -> bool {
    let Error::Api(problem) = error else { return false };
    kind(problem.r#type.as_deref()) == "accountDoesNotExist"
}

/// Whether the server refuses an order because the former certificate has been replaced already.
pub(crate) fn is_replaced(error: &Error) -> bool {
    match error {
        Error::Api(problem) => kind(problem.r#type.as_deref()) == "alreadyReplaced",
        Error::Unsupported(_) | Error::Other(_) => true,
        _ => false,
    }
}

/// The last part of a problem's type (RFC 8555 Sec. 6.7).
pub(crate) fn kind(of_problem: Option<&str>) -> &str {
    of_problem.and_then(|kind| kind.rsplit(':').next()).unwrap_or_default()
}

fn in_words(error: &Error) -> String {
    match error {
        Error::Api(problem) => {
            let detail = problem.detail.as_deref().unwrap_or("no detail");
            format!("the server refuses ({}): {detail}", kind(problem.r#type.as_deref()))
        }
        Error::Json(error) => format!("the server's answer is not understood: {error}"),
        Error::Timeout(_) => "the server has not come to a result in time".to_owned(),
        other => other.to_string(),
    }
}
