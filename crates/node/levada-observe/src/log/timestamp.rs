//! The time of a line, in the forms that formats use. Date and clock are written once per second and thread.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

/// A moment as lines show it.
pub(crate) struct Timestamp<'a> {
    /// Since 1970.
    pub(crate) since_epoch: Duration,
    /// `17/May/2015:10:05:03 +0000`.
    pub(crate) local: &'a str,
    /// `2015-05-17T10:05:03+00:00`.
    pub(crate) iso: &'a str,
}

#[derive(Default)]
struct Second {
    number: u64,
    local: String,
    iso: String,
}

thread_local! {
    static SECOND: RefCell<Second> = RefCell::default();
}

/// Calls `write` with the time.
pub(crate) fn with_now<T>(write: impl FnOnce(&Timestamp<'_>) -> T) -> T {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SECOND.with_borrow_mut(|second| {
        if second.number != since_epoch.as_secs() || second.local.is_empty() {
            let time = SystemTime::UNIX_EPOCH + since_epoch;
            *second = Second {
                number: since_epoch.as_secs(),
                local: local_time(time),
                iso: iso_time(time),
            };
        }
        write(&Timestamp { since_epoch, local: &second.local, iso: &second.iso })
    })
}

/// `17/May/2015:10:05:03 +0000`, in UTC.
fn local_time(time: SystemTime) -> String {
    // An IMF-fixdate reads "Sun, 17 May 2015 10:05:03 GMT".
    let date = httpdate::fmt_http_date(time);
    format!("{}/{}/{}:{} +0000", &date[5..7], &date[8..11], &date[12..16], &date[17..25])
}

/// `2015-05-17T10:05:03+00:00`.
pub(crate) fn iso_time(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let date = httpdate::fmt_http_date(time);
    let month = MONTHS.iter().position(|m| *m == &date[8..11]).map_or(0, |m| m + 1);
    format!("{}-{month:02}-{}T{}+00:00", &date[12..16], &date[5..7], &date[17..25])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_formats() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_431_857_103);
        assert_eq!(local_time(time), "17/May/2015:10:05:03 +0000");
        assert_eq!(iso_time(time), "2015-05-17T10:05:03+00:00");
    }
}
