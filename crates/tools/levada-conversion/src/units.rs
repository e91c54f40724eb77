//! Times and sizes, as others write them and as Levada does.

use crate::table::Value;

/// Reads the value of a key, or says why it cannot.
pub type Read = fn(&str) -> Result<Value, String>;

/// A whole number.
pub fn number(text: &str) -> Result<Value, String> {
    Ok(text.parse::<u64>().map_err(|_| "is no number")?.into())
}

/// Any text.
pub fn text(text: &str) -> Result<Value, String> {
    Ok(text.into())
}

/// A size in bytes.
pub fn size_value(text: &str) -> Result<Value, String> {
    Ok(size(byte_size(text).ok_or("is no size")?).into())
}

/// A time of a node, of an hour at most.
pub fn bounded(milliseconds: u64) -> Value {
    duration(milliseconds.clamp(1, 3_600_000)).into()
}

/// Writes milliseconds in the largest unit that is exact.
pub fn duration(milliseconds: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    if milliseconds == 0 { "0s".to_owned() } else { in_units(milliseconds, &UNITS) }
}

/// Writes bytes in the largest binary unit that is exact.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 5] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
    in_units(bytes, &UNITS)
}

fn in_units(number: u64, units: &[(u64, &str)]) -> String {
    let exact = |(unit, _): &&(u64, &str)| number >= *unit && number.is_multiple_of(*unit);
    let (unit, name) = units.iter().find(exact).or(units.last()).unwrap_or(&(1, ""));
    format!("{}{name}", number / unit)
}

/// Reads a time of nginx in milliseconds: `1h30m`, `90s`, `500ms`, `90`.
pub fn nginx_time(text: &str) -> Option<u64> {
    with_units(
        text,
        1_000,
        &[
            ("ms", 1),
            ("s", 1_000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
            ("w", 7 * 86_400_000),
            ("M", 30 * 86_400_000),
            ("y", 365 * 86_400_000),
        ],
    )
}

/// Reads a time of HAProxy in milliseconds, which is also its unit: `10s`, `500`, `1h`.
pub fn haproxy_time(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "us" => return Some(number / 1_000),
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Reads a time of Go in milliseconds, and days: `10s`, `1m30s`, `1.5h`, `2d`.
pub fn go_time(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0.0);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ns" => 0.000_001,
            "us" => 0.001,
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => return None,
        };
        rest = &rest[letters..];
        sum += number * unit;
    }
    (sum.is_finite() && (0.0..1e15).contains(&sum)).then_some(sum.round() as u64)
}

/// Reads a time of VCL in milliseconds: `10s`, `1.5m`.
pub fn vcl_time(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let unit = match unit {
        "ms" => 1.0,
        "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        "w" => 7.0 * 86_400_000.0,
        "y" => 365.0 * 86_400_000.0,
        _ => return None,
    };
    let value = number.trim().parse::<f64>().ok()? * unit;
    (value.is_finite() && (0.0..1e15).contains(&value)).then_some(value.round() as u64)
}

/// Reads a size: `10m`, `512k`, `8192`, `1G`.
pub fn byte_size(text: &str) -> Option<u64> {
    with_units(
        &text.to_ascii_lowercase(),
        1,
        &[("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)],
    )
}

/// Sums numbers with units; a number without one counts in `bare`.
fn with_units(text: &str, bare: u64, units: &[(&str, u64)]) -> Option<u64> {
    let mut rest = text.trim();
    let mut sum = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "" => bare,
            name => units.iter().find(|(own, _)| *own == name)?.1,
        };
        rest = rest[letters..].trim_start();
        sum = sum.checked_add(number.checked_mul(unit)?)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::{byte_size, duration, go_time, haproxy_time, nginx_time, size, vcl_time};

    #[test]
    fn times_and_sizes_keep_their_values() {
        let time = |text| nginx_time(text).map(duration);
        assert_eq!(time("1d").as_deref(), Some("1d"));
        assert_eq!(time("1h30m").as_deref(), Some("90m"));
        assert_eq!(time("60").as_deref(), Some("1m"));
        assert_eq!(time("1500ms").as_deref(), Some("1500ms"));
        assert_eq!(time("0").as_deref(), Some("0s"));
        assert_eq!(time("soon"), None);
        assert_eq!(byte_size("10m").map(size).as_deref(), Some("10MiB"));
        assert_eq!(byte_size("99999999999999999999g"), None);
        assert_eq!(go_time("1m30s").map(duration).as_deref(), Some("90s"));
        assert_eq!(go_time("soon"), None);
        assert_eq!(haproxy_time("500").map(duration).as_deref(), Some("500ms"));
        assert_eq!(haproxy_time("1h").map(duration).as_deref(), Some("1h"));
        assert_eq!(vcl_time("1.5m").map(duration).as_deref(), Some("90s"));
    }
}
