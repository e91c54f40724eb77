//! HTTP dates, parsed as RFC 9110, Sec. 5.6.7 requires.
//!
//! ```text
//! Sun, 06 Nov 1994 08:49:37 GMT     IMF-fixdate, the preferred format
//! Sunday, 06-Nov-94 08:49:37 GMT    RFC 850, obsolete
//! Sun Nov  6 08:49:37 1994          asctime, obsolete
//! ```
//!
//! Names are compared without regard to case, because a different case does not change the date. Any
//! other text is invalid, and a cache treats an invalid `Expires` as a time in the past (RFC 9111,
//! Sec. 5.3).

use std::{iter, time::UNIX_EPOCH};

/// Seconds since 1970-01-01T00:00:00Z; `None` if `text` is not an HTTP date from 1970 to 9999.
pub fn parse_date(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let usual = usual_case(text);
    let (day, rest) = usual.split_at(usual.find(|letter: char| !letter.is_ascii_alphabetic())?);
    let days = [SHORT_DAYS, LONG_DAYS].into_iter().find(|days| days.contains(&day))?;
    // `httpdate` refuses a name that is not the day's. Origins send such dates, and they are clear.
    let others = days.iter().map(|day| format!("{day}{rest}"));
    let mut dates =
        iter::once(usual.clone()).chain(others).map(|text| httpdate::parse_http_date(&text));
    let date = dates.find_map(Result::ok)?;
    i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

const SHORT_DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The text with day and month capitalized and the zone in upper case, as `httpdate` expects them.
fn usual_case(text: &str) -> String {
    let mut usual = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let begins_word = !usual.ends_with(|before: char| before.is_ascii_alphabetic());
        let is_zone = at + "GMT".len() >= text.len();
        usual.push(match begins_word || is_zone {
            true => letter.to_ascii_uppercase(),
            false => letter.to_ascii_lowercase(),
        });
    }
    usual
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_three_formats_name_the_same_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
            "SUN, 06 nov 1994 08:49:37 gmt",
            // A wrong name of the day does not change the date.
            "Thu, 06 Nov 1994 08:49:37 GMT",
            "Monday, 06-Nov-94 08:49:37 GMT",
            "Tue Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn what_only_resembles_a_date_is_none() {
        for text in [
            "",
            "0",
            "-1",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +000",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Foo, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 UTC",
        ] {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn leap_days_and_distant_years_are_counted() {
        assert_eq!(parse_date(b"Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(parse_date(b"Wed, 29 Feb 2023 00:00:00 GMT"), None);
        assert_eq!(parse_date(b"Fri, 31 Dec 9999 23:59:59 GMT"), Some(253_402_300_799));
    }

    proptest! {
        #[test]
        fn dates_written_by_others_are_read(seconds in 0u64..253_402_300_799) {
            let text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            prop_assert_eq!(parse_date(text.as_bytes()), Some(seconds as i64));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_date(&bytes);
        }

        #[test]
        fn nearly_dates_never_panic(at in 0usize..33, byte: u8) {
            for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
                         "Sun Nov  6 08:49:37 1994"] {
                let mut bytes = text.as_bytes().to_vec();
                if let Some(place) = bytes.get_mut(at) { *place = byte; }
                let _ = parse_date(&bytes);
            }
        }
    }
}
