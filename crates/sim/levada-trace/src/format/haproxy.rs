//! HAProxy's `option httplog`, with or without a syslog prefix.
//!
//! ```text
//! ... client:port [date] frontend backend/server TR/Tw/Tc/Tr/Ta status bytes
//!     cookie cookie state a/b/c/d/e q/b [{captured}] [{captured}] "METHOD uri VERSION"
//! ```
//!
//! Bytes include the response's headers. Captured headers have no names, so none of them is used as
//! the host; HTTP/2 requests have the host in the URI.

use super::line::{Fields, LineFormat, bytes, request_line, status, without_port};
use crate::{
    date,
    record::{LineProblem, LogRecord, Parsed, TimeTaken},
};

pub(super) const FORMAT: LineFormat = LineFormat {
    name: "haproxy",
    summary: "HAProxy's option httplog, also after a syslog prefix",
    sniff: |line| parse(line).is_ok(),
    parse,
};

fn parse(line: &str) -> Parsed {
    let (before, time, rest) = around_date(line)?;
    let mut record = LogRecord { time: Some(time), ..LogRecord::default() };
    record.client = before.split_whitespace().next_back().and_then(without_port);
    let mut fields = Fields(rest);
    fields.word("frontend")?;
    slashes(fields.word("backend and server")?, 1)?;
    let timers = fields.word("timers")?;
    slashes(timers, 4)?;
    record.taken = taken(timers);
    record.status = status(fields.word("status")?)?;
    // With `option logasap` a plus sign marks the count as unfinished.
    record.bytes = Some(bytes(fields.word("number of bytes")?.trim_start_matches('+'))?);
    for what in ["request cookie", "response cookie", "termination state"] {
        fields.word(what)?;
    }
    slashes(fields.word("connection counts")?, 4)?;
    slashes(fields.word("queue lengths")?, 1)?;
    // Captured headers may contain blanks; quotes inside fields are written as `#22`.
    let request_at = fields.0.find(" \"").ok_or(LineProblem::Missing("request in quotes"))?;
    request_line(&mut record, Fields(&fields.0[request_at..]).quoted("request in quotes")?);
    Ok(record)
}

/// Tr, the server's time to the head of its response: the fourth of TR/Tw/Tc/Tr/Ta, in
/// milliseconds.
fn taken(timers: &str) -> Option<TimeTaken> {
    let ms: f64 = timers.split('/').nth(3)?.parse().ok()?;
    TimeTaken::ToAnswer(ms / 1e3).checked()
}

fn around_date(line: &str) -> Result<(&str, f64, &str), LineProblem> {
    for (open, _) in line.match_indices('[') {
        let Some((date, rest)) = line[open + 1..].split_once(']') else { break };
        if let Some(time) = date::clf(date) {
            return Ok((&line[..open], time, rest));
        }
    }
    Err(LineProblem::Missing("date in brackets, such as [06/Feb/2009:12:14:14.655]"))
}

fn slashes(field: &str, count: usize) -> Result<(), LineProblem> {
    let found = field.bytes().filter(|&byte| byte == b'/').count();
    if found >= count { Ok(()) } else { Err(LineProblem::Missing("fields of option httplog")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_syslog_are_read() {
        let bare = r#"10.0.0.2:3331 [06/Feb/2009:12:14:14.500] in~ static/s1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {Mozilla 5} {} "GET /a HTTP/1.1""#;
        let record = parse(bare).unwrap();
        assert_eq!(record.time, Some(1_233_922_454.5));
        assert_eq!((record.method.as_str(), record.target.as_str()), ("GET", "/a"));
        assert_eq!((record.status, record.bytes), (Some(200), Some(2750)));
        assert_eq!(record.taken, Some(TimeTaken::ToAnswer(0.069)));
        assert_eq!(record.client.as_deref(), Some("10.0.0.2"));
        let syslog = format!("<134>Feb  6 12:14:14 lb haproxy[14]: {bare}");
        assert_eq!(parse(&syslog).unwrap(), record);
    }

    #[test]
    fn refused_and_shortened_requests_are_read() {
        let refused = r#"10.0.0.2:1 [06/Feb/2009:12:14:14.655] in in/<NOSRV> -1/-1/-1/-1/0 400 187 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>""#;
        assert_eq!(parse(refused).unwrap().method, "-");
        let aborted = r#"10.0.0.2:1 [06/Feb/2009:12:14:14.655] in b/s 9/0/-1/-1/+9 -1 +0 - - CH-- 1/1/0/0/0 0/0 "GET https://Example.com/lo"#;
        let record = parse(aborted).unwrap();
        assert_eq!((record.status, record.host.as_deref()), (None, Some("example.com")));
        assert_eq!(record.taken, None, "the server never answered");
    }
}
