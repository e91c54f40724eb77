//! HTTP dates, parsed as RFC 9110, Sec. 5.6.7 requires.
//!
//! ```text
//! Sun, 06 Nov 1994 08:49:37 GMT     IMF-fixdate, the preferred format
//! Sunday, 06-Nov-94 08:49:37 GMT    RFC 850, obsolete
//! Sun Nov  6 08:49:37 1994          asctime, obsolete
//! ```
//!
//! All three formats have fixed widths and spacing. Names are compared without regard to case,
//! because a different case does not change the date. Any other text is invalid, and a cache treats
//! an invalid `Expires` as a time in the past (RFC 9111, Sec. 5.3).

/// Seconds since 1970-01-01T00:00:00Z, negative before; `None` if `text` is not an HTTP date.
///
/// The two-digit year of RFC 850 means 1970 to 2069. The RFC moves this window with the clock. With
/// a fixed window the result does not depend on the current time, and it is the same for all dates
/// less than 40 years in the past or future.
pub fn parse_date(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    let comma = text.iter().take(10).position(|&b| b == b',');
    match (comma, text.len()) {
        (Some(3), 29) => imf_fixdate(text),
        (Some(day_end), length) if length == day_end + 24 => rfc850(text, day_end),
        (None, 24) => asctime(text),
        _ => None,
    }
}

fn imf_fixdate(t: &[u8]) -> Option<i64> {
    named(&t[..3], &SHORT_DAYS)?;
    separators(t, &[(4, b' '), (7, b' '), (11, b' '), (16, b' '), (25, b' ')])?;
    gmt(&t[26..])?;
    let month = named(&t[8..11], &MONTHS)?;
    seconds(number(&t[12..16])?, month, number(&t[5..7])?, clock(&t[17..25])?)
}

fn rfc850(t: &[u8], day_end: usize) -> Option<i64> {
    named(&t[..day_end], &LONG_DAYS)?;
    let t = &t[day_end + 1..];
    separators(t, &[(0, b' '), (3, b'-'), (7, b'-'), (10, b' '), (19, b' ')])?;
    gmt(&t[20..])?;
    let short_year = number(&t[8..10])?;
    let year = if short_year < 70 { 2000 + short_year } else { 1900 + short_year };
    seconds(year, named(&t[4..7], &MONTHS)?, number(&t[1..3])?, clock(&t[11..19])?)
}

fn asctime(t: &[u8]) -> Option<i64> {
    named(&t[..3], &SHORT_DAYS)?;
    separators(t, &[(3, b' '), (7, b' '), (10, b' '), (19, b' ')])?;
    // The day is padded with a space, not with a zero.
    let day = if t[8] == b' ' { number(&t[9..10])? } else { number(&t[8..10])? };
    seconds(number(&t[20..24])?, named(&t[4..7], &MONTHS)?, day, clock(&t[11..19])?)
}

const SHORT_DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn separators(text: &[u8], expected: &[(usize, u8)]) -> Option<()> {
    expected.iter().all(|&(at, byte)| text[at] == byte).then_some(())
}

fn gmt(zone: &[u8]) -> Option<()> {
    zone.eq_ignore_ascii_case(b"GMT").then_some(())
}

/// The position of a name in its list, from 1.
fn named(name: &[u8], names: &[&str]) -> Option<i64> {
    let at = names.iter().position(|n| n.as_bytes().eq_ignore_ascii_case(name))?;
    Some(at as i64 + 1)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0i64, |n, &b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
}

/// Seconds since midnight from `hh:mm:ss`; a leap second counts as the second before it.
fn clock(t: &[u8]) -> Option<i64> {
    separators(t, &[(2, b':'), (5, b':')])?;
    let (hour, minute, second) = (number(&t[..2])?, number(&t[3..5])?, number(&t[6..8])?);
    (hour < 24 && minute < 60 && second <= 60).then(|| hour * 3600 + minute * 60 + second.min(59))
}

fn seconds(year: i64, month: i64, day: i64, in_day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if day == 0 || day > longest {
        return None;
    }
    // Years begin in March, so that the leap day is the last day of its year and no table is
    // needed.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    let days = y * 365 + leap_days + (m * 153 + 2) / 5 + day - 1;
    /// Days from 1 March of year 0 to 1 January 1970.
    const EPOCH: i64 = 719_468;
    Some((days - EPOCH) * 86_400 + in_day)
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
        assert!(parse_date(b"Mon, 01 Jan 0001 00:00:00 GMT").unwrap() < 0);
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
