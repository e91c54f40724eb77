//! The state of a connection that three parties share: the service, the guard under hyper, and the task
//! that logs the connection's end.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use http::StatusCode;

use super::fault::Fault;

/// One connection's shared state. A request costs one addition.
#[derive(Debug, Default)]
pub struct Ledger {
    finished: AtomicU64,
    leaves: AtomicBool,
    breaks: AtomicBool,
    rests: AtomicBool,
    switches: AtomicBool,
    ending: OnceLock<ConnectionEnd>,
}

/// One request being answered; ends when it is dropped.
///
/// It must live as long as the response's body: the guard takes its end as the moment from which
/// the next words on the connection may be its own.
#[derive(Debug)]
pub struct ActiveRequest(Arc<Ledger>);

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

impl Ledger {
    /// Begins a request. It ends when the returned value is dropped. Call this as soon as the service is
    /// called: a future that is never polled must count as answered, too.
    pub fn begin(self: &Arc<Self>) -> ActiveRequest {
        ActiveRequest(Arc::clone(self))
    }

    /// Why the connection ended, as far as the guard knows.
    pub fn ending(&self) -> ConnectionEnd {
        self.ending.get().copied().unwrap_or(ConnectionEnd::Finished)
    }

    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Whether the connection closes as soon as all that was written has left.
    pub(super) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    /// Whether a response broke off in the middle.
    pub(super) fn breaks(&self) -> bool {
        self.breaks.load(Ordering::Acquire)
    }

    /// Whether nothing has moved for a while, and the stream can be had back.
    pub fn rests(&self) -> bool {
        self.rests.load(Ordering::Relaxed)
    }

    pub(super) fn rest(&self) {
        self.rests.store(true, Ordering::Relaxed);
    }

    /// Whether the last response has switched to another protocol.
    pub(super) fn switches(&self) -> bool {
        self.switches.load(Ordering::Acquire)
    }

    /// Notes why the connection ends. The first reason stays: later ones follow from it.
    pub(super) fn end(&self, ending: ConnectionEnd) {
        let _ = self.ending.set(ending);
    }
}

impl ActiveRequest {
    /// This response switches to another protocol: no byte after its request is taken for HTTP. The stream
    /// can be had back when it was sent ([`Guarded::into_switched`](super::Guarded::into_switched)).
    pub fn switch(&self) {
        self.0.switches.store(true, Ordering::Release);
    }

    /// Ends the connection in the middle of this response, by an orderly close. The caller sends no more,
    /// and does not tell hyper so, which would cut the connection.
    pub fn leave(&self) {
        self.0.leaves.store(true, Ordering::Release);
    }

    /// Ends the connection in the middle of this response with a reset: a client, or a cache, may take an
    /// orderly close for the end of a body. The caller sends no more, and does not tell hyper so.
    pub fn break_off(&self) {
        self.0.breaks.store(true, Ordering::Release);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::Release);
    }
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
    fn an_exchange_lasts_until_it_is_dropped() {
        let ledger = Arc::new(Ledger::default());
        let exchange = ledger.begin();
        assert_eq!(ledger.finished(), 0);
        drop(exchange);
        assert_eq!(ledger.finished(), 1);
    }

    #[test]
    fn the_first_reason_for_an_ending_stays() {
        let ledger = Ledger::default();
        assert_eq!(ledger.ending(), ConnectionEnd::Finished);
        ledger.end(ConnectionEnd::HeadTimeout);
        ledger.end(ConnectionEnd::Broken);
        assert_eq!(ledger.ending().as_str(), "head-timeout");
    }

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
