//! A format of lines, and the fields that several formats share.

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

/// A cursor over the fields of a line.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a str);

impl<'a> Fields<'a> {
    /// The next field up to white space.
    pub(super) fn word(&mut self, what: &'static str) -> Result<&'a str, LineProblem> {
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
    pub(super) fn quoted(&mut self, what: &'static str) -> Result<&'a str, LineProblem> {
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
pub(super) fn request_line(record: &mut LogRecord, line: &str) {
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
pub(super) fn set_target(record: &mut LogRecord, target: &str) {
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
pub(super) fn status(text: &str) -> Result<Option<u16>, LineProblem> {
    if matches!(text, "-" | "-1" | "0" | "000") {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|status| (100..1000).contains(status));
    number.map(Some).ok_or(LineProblem::Unreadable("status"))
}

/// A text; `-` and an empty one mean that there is none.
pub(super) fn stated(text: &str) -> Option<String> {
    (!matches!(text, "" | "-")).then(|| text.to_owned())
}

/// The address of `address:port`; IPv6 addresses may be in brackets.
pub(super) fn without_port(text: &str) -> Option<String> {
    let address = match text.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or(inner),
        None => match text.rsplit_once(':') {
            Some((address, port)) if port.bytes().all(|b| b.is_ascii_digit()) => address,
            _ => text,
        },
    };
    stated(address)
}

/// A number of bytes; the common log format writes zero as `-`.
pub(super) fn bytes(text: &str) -> Result<u64, LineProblem> {
    if text == "-" {
        return Ok(0);
    }
    whole(text).ok_or(LineProblem::Unreadable("number of bytes"))
}

/// A number of plain digits.
pub(super) fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
