//! The log formats, one file each. To add one, add its file and a line in [`FORMATS`].

mod clf;
mod envoy;
mod haproxy;
mod id_size;
mod json;
mod line;
mod squid;

pub use line::LineFormat;

/// All formats. The order decides if several match, so formats that are easier to recognise come
/// first.
pub const FORMATS: &[&LineFormat] = &[
    &json::FORMAT,
    &haproxy::FORMAT,
    &clf::FORMAT,
    &envoy::FORMAT,
    &squid::FORMAT,
    &id_size::FORMAT,
];

/// The format that most of `lines` match, if at least half of them do.
pub(crate) fn recognise<'a>(
    lines: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'static LineFormat> {
    let matching = |format: &LineFormat| lines.clone().filter(|line| (format.sniff)(line)).count();
    // `max_by_key` returns the last of equal elements, so the list is reversed.
    let best = FORMATS.iter().rev().copied().max_by_key(|format| matching(format))?;
    let count = matching(best);
    (count > 0 && count * 2 >= lines.count()).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line per format, which only that format must recognise.
    const SAMPLES: &[(&str, &str)] = &[
        ("json", r#"{"request_method":"GET","request_uri":"/a","status":200,"body_bytes_sent":7}"#),
        (
            "haproxy",
            r#"Feb  6 12:14:14 lb haproxy[14]: 10.0.0.2:3331 [06/Feb/2009:12:14:14.655] in static/s1 1/0/3/6/10 200 27 - - ---- 1/1/1/1/0 0/0 "GET /a HTTP/1.1""#,
        ),
        ("clf", r#"10.0.0.2 - - [06/Feb/2009:12:14:14 +0100] "GET /a HTTP/1.1" 200 27"#),
        (
            "envoy",
            r#"[2024-03-01T00:00:00.310Z] "GET /a HTTP/2" 200 - 0 27 3 2 "-" "curl" "id" "example.com" "10.0.0.9:80""#,
        ),
        (
            "squid",
            "1286536309.586 921 10.0.0.2 TCP_MISS/200 507 GET http://example.com/a - DIRECT/10.0.0.9 text/html",
        ),
        ("id-size", "1 17 4096"),
    ];

    #[test]
    fn every_format_recognises_its_own_line_and_no_other() {
        assert_eq!(SAMPLES.len(), FORMATS.len());
        for (name, line) in SAMPLES {
            let claiming: Vec<_> =
                FORMATS.iter().filter(|f| (f.sniff)(line)).map(|f| f.name).collect();
            assert_eq!(claiming, [*name]);
            assert_eq!(recognise([*line].into_iter()).unwrap().name, *name);
        }
    }

    #[test]
    fn a_sniffed_line_parses() {
        for (name, line) in SAMPLES {
            let format = FORMATS.iter().find(|format| format.name == *name).unwrap();
            (format.parse)(line).unwrap();
        }
    }

    #[test]
    fn a_minority_does_not_decide() {
        let lines = ["1 17 4096", "what", "is", "this"];
        assert!(recognise(lines.into_iter()).is_none());
        assert_eq!(recognise(["x", "1 17 4096"].into_iter()).unwrap().name, "id-size");
        assert!(recognise(std::iter::empty()).is_none());
    }
}
