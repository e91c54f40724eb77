//! Values as people read them.

/// Text of a log on a terminal or a page: control characters and marks that turn the direction of writing are
/// replaced, since they would change what stands around them.
pub(crate) fn printable(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// A moment in UTC: `2015-05-17 10:05:03`.
pub(crate) fn utc(since_epoch: f64) -> String {
    let seconds = since_epoch.max(0.0) as u64;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day since 1970, by counting 400 years from 1 March on (Hinnant, *chrono-Compatible
/// Low-Level Date Algorithms*).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// A part in percent: `12.3 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// A number with its thousands apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Requests in the shortest unit of time that has at least one of them: `12.5 requests/min`.
pub(crate) fn rate(per_second: f64) -> String {
    let units = [("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let unit = units.into_iter().find(|(_, seconds)| per_second * seconds >= 1.0);
    let (unit, seconds) = unit.unwrap_or(("day", 86_400.0));
    format!("{:.1} requests/{unit}", per_second * seconds)
}

/// A time: `1.5 ms`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_for_people() {
        assert_eq!(utc(1_431_857_103.9), "2015-05-17 10:05:03");
        let rates = [12.34, 1.0, 0.5, 0.002, 0.0001].map(rate);
        let shown = ["12.3 requests/s", "1.0 requests/s", "30.0 requests/min", "7.2 requests/h"];
        assert_eq!((&rates[..4], &*rates[4]), (&shown.map(str::to_owned)[..], "8.6 requests/day"));
        assert_eq!(utc(951_782_400.0), "2000-02-29 00:00:00");
        assert_eq!(utc(0.0), "1970-01-01 00:00:00");
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(printable("a\u{1b}[2J\u{202e}b"), "a\u{fffd}[2J\u{fffd}b");
    }
}
