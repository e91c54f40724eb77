//! The time of responses.

use std::{
    cell::RefCell,
    time::{SystemTime, UNIX_EPOCH},
};

use http::HeaderValue;

thread_local! {
    /// The last value of `Date` and its second.
    static LAST: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
}

/// The value of `Date` at this moment, written once a second.
pub fn now() -> HeaderValue {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|last| match last {
        Some((written, value)) if *written == second => value.clone(),
        _ => {
            let value = HeaderValue::try_from(httpdate::fmt_http_date(now));
            let value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
            last.insert((second, value)).1.clone()
        }
    })
}
