//! Times and sizes, as others write them and as Levada does.

/// Writes milliseconds in the largest unit that is exact.
pub(crate) fn duration(milliseconds: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let exact =
        |(unit, _): &&(u64, &str)| milliseconds >= *unit && milliseconds.is_multiple_of(*unit);
    match UNITS.iter().find(exact) {
        Some((unit, name)) => format!("{}{name}", milliseconds / unit),
        None if milliseconds == 0 => "0s".to_owned(),
        None => format!("{milliseconds}ms"),
    }
}

/// Writes bytes in the largest binary unit that is exact.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let exact = |(unit, _): &&(u64, &str)| bytes >= *unit && bytes.is_multiple_of(*unit);
    match UNITS.iter().find(exact) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// Reads a time of nginx in milliseconds: `1h30m`, `90s`, `500ms`, `90`.
pub(crate) fn nginx_time(text: &str) -> Option<u64> {
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

/// Reads a time of VCL in milliseconds: `10s`, `1.5m`.
pub(crate) fn vcl_time(text: &str) -> Option<u64> {
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
pub(crate) fn byte_size(text: &str) -> Option<u64> {
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
    use super::{byte_size, duration, nginx_time, size, vcl_time};

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
        assert_eq!(vcl_time("1.5m").map(duration).as_deref(), Some("90s"));
    }
}
