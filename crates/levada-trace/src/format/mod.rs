//! The log formats, one file each. To add one, add its file and a line in [`FORMATS`].

mod clf;
mod envoy;
mod haproxy;
mod id_size;
mod json;
mod squid;

use crate::record::{LineProblem, LogRecord};

/// A format of lines.
pub struct LineFormat {
    /// The name in reports and messages.
    pub name: &'static str,
    /// The programs that write it.
    pub summary: &'static str,
    /// Whether a line looks like this format.
    pub sniff: fn(&str) -> bool,
    /// Reads one line.
    pub parse: fn(&str) -> Result<LogRecord, LineProblem>,
}

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

/// A cursor over the fields of a line.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    /// The next field up to white space.
    fn word(&mut self, what: &'static str) -> Result<&'a str, LineProblem> {
        let text = self.0.trim_start();
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        if word.is_empty() { Err(LineProblem::Missing(what)) } else { Ok(word) }
    }

    /// The next field between double quotes; a backslash escapes the next character.
    ///
    /// An unclosed quote extends to the end of the line, because some servers truncate long
    /// requests.
    fn quoted(&mut self, what: &'static str) -> Result<&'a str, LineProblem> {
        let text = self.0.trim_start().strip_prefix('"').ok_or(LineProblem::Missing(what))?;
        let mut escaped = false;
        let end = text.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        let (inner, rest) = end.map_or((text, ""), |at| (&text[..at], &text[at + 1..]));
        self.0 = rest;
        Ok(inner)
    }
}

/// `GET /path HTTP/1.1`, also with an absolute URL or without a version.
///
/// A text that is not a request (`-`, or a TLS handshake sent to a plain port) gets the method `-`:
/// the log line is valid, only the client's request was not.
fn request_line(record: &mut LogRecord, line: &str) {
    let line = line.trim();
    let (method, rest) = line.split_once(' ').unwrap_or(("-", line));
    let known = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic());
    if !known {
        record.method = "-".to_owned();
        record.target = line.to_owned();
        return;
    }
    record.method = method.to_owned();
    let target = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => target,
        _ => rest,
    };
    set_target(record, target.trim());
}

/// Splits an absolute URL into host and path; any other text is the target.
fn set_target(record: &mut LogRecord, target: &str) {
    let absolute = ["http://", "https://"].into_iter().find_map(|scheme| {
        target.get(..scheme.len()).filter(|head| head.eq_ignore_ascii_case(scheme))?;
        target.get(scheme.len()..)
    });
    let Some(rest) = absolute else {
        record.target = target.to_owned();
        return;
    };
    let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(path_at);
    record.host = Some(host.to_ascii_lowercase());
    record.target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
}

/// A status of three digits; `-` and `000` mean that there is none.
fn status(text: &str) -> Result<Option<u16>, LineProblem> {
    if matches!(text, "-" | "-1" | "0" | "000") {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|status| (100..1000).contains(status));
    number.map(Some).ok_or(LineProblem::Unreadable("status"))
}

/// A number of bytes; the common log format writes zero as `-`.
fn bytes(text: &str) -> Result<u64, LineProblem> {
    if text == "-" {
        return Ok(0);
    }
    whole(text).ok_or(LineProblem::Unreadable("number of bytes"))
}

/// A number of plain digits.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
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

    #[test]
    fn request_lines_of_all_kinds_are_split() {
        let split = |line: &str| {
            let mut record = LogRecord::default();
            request_line(&mut record, line);
            (record.method, record.host.unwrap_or_default(), record.target)
        };
        let own = |m: &str, h: &str, t: &str| (m.to_owned(), h.to_owned(), t.to_owned());
        assert_eq!(split("GET /a?b=c HTTP/1.1"), own("GET", "", "/a?b=c"));
        assert_eq!(split("GET /a b HTTP/1.0"), own("GET", "", "/a b"));
        assert_eq!(split("GET /"), own("GET", "", "/"));
        assert_eq!(
            split("GET http://Example.com:81/a HTTP/2.0"),
            own("GET", "example.com:81", "/a")
        );
        assert_eq!(split("HEAD https://example.com?q"), own("HEAD", "example.com", "/?q"));
        assert_eq!(split("-"), own("-", "", "-"));
        assert_eq!(split(r"\x16\x03\x01 x"), own("-", "", r"\x16\x03\x01 x"));
        assert_eq!(split(""), own("-", "", ""));
    }
}
