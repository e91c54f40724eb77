//! The three time formats of logs, parsed to seconds since 1970.

/// `17/May/2015:10:05:03 +0000` (Apache, nginx) or `06/Feb/2009:12:14:14.655` (HAProxy, no zone).
pub(crate) fn clf(text: &str) -> Option<f64> {
    let (date, rest) = text.split_once(':')?;
    let mut parts = date.split('/');
    let day = digits(parts.next()?)?;
    let month = month(parts.next()?)?;
    let year = digits(parts.next()?)?;
    let (clock, zone) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(days(year, month, day)? * 86_400.0 + seconds(clock)? - offset(zone)?)
}

/// `2016-04-15T20:17:00.310Z`, also with a blank instead of `T` and with an offset (RFC 3339).
pub(crate) fn iso(text: &str) -> Option<f64> {
    let (date, rest) = text.split_once(['T', ' '])?;
    let mut parts = date.split('-');
    let year = digits(parts.next()?)?;
    let month = digits(parts.next()?)?;
    let day = digits(parts.next()?)?;
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    Some(days(year, month, day)? * 86_400.0 + seconds(clock)? - offset(zone)?)
}

/// `1286536309.586`: seconds since 1970.
pub(crate) fn unix(text: &str) -> Option<f64> {
    // Digits and a point only: `f64` would also parse "inf", "nan" and "1e999".
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| plain && text.len() <= 24)
}

fn month(name: &str) -> Option<u32> {
    const NAMES: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    (1..).zip(NAMES).find(|(_, known)| *known == name).map(|(number, _)| number)
}

fn digits(text: &str) -> Option<u32> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// `12:14:14` with or without a fraction.
fn seconds(clock: &str) -> Option<f64> {
    let mut parts = clock.splitn(3, ':');
    let hour = digits(parts.next()?).filter(|hour| *hour < 24)?;
    let minute = digits(parts.next()?).filter(|minute| *minute < 60)?;
    let second = unix(parts.next()?).filter(|second| *second < 61.0)?;
    Some(f64::from(hour * 3600 + minute * 60) + second)
}

/// `+0200`, `+02:00`, `Z` or nothing.
fn offset(zone: &str) -> Option<f64> {
    let (sign, rest) = match zone.as_bytes().first() {
        None | Some(b'Z') => return Some(0.0),
        Some(b'+') => (1.0, &zone[1..]),
        Some(b'-') => (-1.0, &zone[1..]),
        Some(_) => return None,
    };
    let number = digits(&rest.replace(':', ""))?;
    Some(sign * f64::from(number / 100 * 3600 + number % 100 * 60))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
///
/// Years begin in March, so that the leap day is the last day and needs no special case.
fn days(year: u32, month: u32, day: u32) -> Option<f64> {
    let valid = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !valid {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = (month + 9) % 12;
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let leap_days = year / 4 - year / 100 + year / 400;
    Some(f64::from(year * 365 + leap_days + day_of_year) - 719_468.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_read() {
        assert_eq!(clf("01/Jan/1970:00:00:00 +0000"), Some(0.0));
        assert_eq!(clf("10/Oct/2000:13:55:36 -0700"), Some(971_211_336.0));
        assert_eq!(clf("06/Feb/2009:12:14:14.5"), Some(1_233_922_454.5));
        assert_eq!(clf("29/Feb/2024:23:59:60 +0000"), Some(1_709_251_200.0));
        assert_eq!(iso("2024-03-01T02:00:00+02:00"), Some(1_709_251_200.0));
        assert_eq!(iso("2024-03-01 00:00:00.25Z"), Some(1_709_251_200.25));
        assert_eq!(unix("1286536309.586"), Some(1_286_536_309.586));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in ["", "-", "1/2/3", "32/Jan/2000:00:00:00 +0000", "01/Foo/2000:00:00:00 +0000"] {
            assert_eq!(clf(text), None, "{text}");
        }
        for text in
            ["", "T", "2024-13-01T00:00:00Z", "2024-01-01T25:00:00Z", "0000-01-01T00:00:00Z"]
        {
            assert_eq!(iso(text), None, "{text}");
        }
        for text in ["", "inf", "NaN", "1e9", "-1", "."] {
            assert_eq!(unix(text), None, "{text}");
        }
    }
}
