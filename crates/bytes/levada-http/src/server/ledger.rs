//! Why connections end.

use http::StatusCode;

use super::fault::Fault;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionEnd {
    /// This side closed it: after `Connection: close`, at the end of a drain.
    Finished,
    /// It did not end: everything is answered, and the stream given back.
    Resting,
    /// The client closed it between two requests.
    Closed,
    /// The client closed it within a request, or before its response was complete.
    Cut,
    /// Reading or writing failed.
    Broken,
    /// No request came in time.
    IdleTimeout,
    /// It had no request, and gave way to another connection.
    GaveWay,
    /// A head was not complete in time.
    HeadTimeout,
    /// The next piece of a body did not come in time.
    BodyTimeout,
    /// The client did not take a response in time.
    SendTimeout,
    /// Neither data nor its retransmissions were acknowledged.
    Dormant,
    /// This side closed it in the middle of a body, so that the client continues at another node.
    Moved,
    /// The client broke the protocol.
    Violation(Fault),
}

impl ConnectionEnd {
    /// The name used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Resting => "resting",
            Self::Closed => "closed",
            Self::Cut => "cut",
            Self::Broken => "broken",
            Self::IdleTimeout => "idle-timeout",
            Self::GaveWay => "gave-way",
            Self::HeadTimeout => "head-timeout",
            Self::BodyTimeout => "body-timeout",
            Self::SendTimeout => "send-timeout",
            Self::Dormant => "dormant",
            Self::Moved => "moved",
            Self::Violation(fault) => fault.as_str(),
        }
    }

    /// The whole response that tells the client, when there is one to tell.
    pub(super) fn response(self) -> Option<Vec<u8>> {
        let (status, sentence) = match self {
            Self::Violation(fault) => (fault.status()?, fault.sentence()),
            Self::HeadTimeout => {
                (LATE, "The request head took too long (RFC 9110 section 15.5.9).")
            }
            Self::BodyTimeout => {
                (LATE, "The request body took too long (RFC 9110 section 15.5.9).")
            }
            _ => return None,
        };
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        Some(
            format!(
                "HTTP/1.1 {status}\r\nDate: {date}\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                 Content-Length: {}\r\n\r\n{sentence}\n",
                sentence.len() + 1,
            )
            .into_bytes(),
        )
    }
}

const LATE: StatusCode = StatusCode::REQUEST_TIMEOUT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_complete_response() {
        let response = ConnectionEnd::Violation(Fault::HostMissing).response().unwrap();
        let response = String::from_utf8(response).unwrap();
        assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{response}");
        assert_eq!(body, "The Host field is missing (RFC 9112 section 3.2).\n");
    }
}
