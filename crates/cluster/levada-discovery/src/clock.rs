//! The difference of this machine's clock to that of a server, by the `Date` of its answers (RFC 9110 Sec. 6.6.1).

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};
use parking_lot::Mutex;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<i64>>);

impl ServerClock {
    /// The seconds by which this machine was ahead at the last answer; `None` before the first that had a date. It may be
    /// one second wrong.
    pub(crate) fn ahead(&self) -> Option<i64> {
        *self.0.lock()
    }

    /// Notes an answer that has just come.
    pub(crate) fn heard(&self, fields: &HeaderMap) {
        let date = fields.get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let seconds = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            i64::try_from(since).unwrap_or(i64::MAX)
        };
        if let Some(date) = date {
            *self.0.lock() = Some(seconds(SystemTime::now()) - seconds(date));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn difference_is_that_to_the_last_date_which_could_be_read() {
        let clock = ServerClock::default();
        let heard = |text: &str| {
            clock.heard(&HeaderMap::from_iter([(header::DATE, text.parse().unwrap())]));
            clock.ahead()
        };
        assert_eq!(heard("noon"), None);
        let earlier = SystemTime::now() - Duration::from_secs(100);
        let ahead = heard(&httpdate::fmt_http_date(earlier)).unwrap();
        assert!((99..=101).contains(&ahead), "{ahead}");
        assert_eq!(heard("noon"), Some(ahead));
    }
}
