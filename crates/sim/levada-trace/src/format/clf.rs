//! Common and combined log format, as written by Apache, nginx, varnishncsa and Levada.
//!
//! ```text
//! [vhost:port] client ident user [day/Mon/year:h:m:s zone] "request" status bytes ["referer" "agent" ...]
//! ```
//!
//! The parser ignores everything after the bytes, so additional fields (request_time, cache status)
//! do no harm.

use super::line::{Fields, LineFormat, bytes, request_line, stated, status};
use crate::{
    date,
    record::{LineProblem, LogRecord, Parsed, TimeTaken},
};

pub(super) const FORMAT: LineFormat = LineFormat {
    name: "clf",
    summary: "common and combined log format: Apache, nginx, varnishncsa; fields may follow",
    sniff: |line| parse(line).is_ok(),
    parse,
};

fn parse(line: &str) -> Parsed {
    let (before, time, after) = split_at_date(line)?;
    let mut record = LogRecord { time: Some(time), ..LogRecord::default() };
    record.host = virtual_host(before);
    let mut fields = Fields(after);
    request_line(&mut record, fields.quoted("request in quotes")?);
    record.status = status(fields.word("status")?)?;
    record.bytes = Some(bytes(fields.word("number of bytes")?)?);
    record.client = client(before, record.host.is_some());
    combined(&mut record, fields);
    Ok(record)
}

/// The first field, or the second one after a virtual host.
fn client(before: &str, has_host: bool) -> Option<String> {
    stated(before.split_whitespace().nth(usize::from(has_host))?)
}

/// Takes the fields of the combined format, and time and cache result after them as Levada writes them and
/// many do with nginx's `$request_time` and `$upstream_cache_status`.
fn combined(record: &mut LogRecord, mut fields: Fields<'_>) -> Option<()> {
    record.referer = stated(fields.quoted("referer").ok()?);
    record.user_agent = stated(fields.quoted("user agent").ok()?);
    let mut word = fields.word("time").ok()?;
    if let Some(taken) = taken(word) {
        record.taken = taken.checked();
        word = fields.word("cache result").ok()?;
    }
    record.cache = is_cache_result(word).then(|| word.to_owned());
    Some(())
}

/// A time that is written with a point. A whole number there can have any meaning, for example Apache's
/// `%D` or `%T`.
fn taken(word: &str) -> Option<TimeTaken> {
    let plain = word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    word.parse().ok().filter(|_| plain).map(TimeTaken::InAll)
}

/// Whether the word is a result of a cache in nginx or Levada.
fn is_cache_result(word: &str) -> bool {
    const RESULTS: [&str; 12] = [
        "hit",
        "miss",
        "expired",
        "stale",
        "updating",
        "revalidated",
        "bypass",
        "scarce",
        "collapsed",
        "relayed",
        "pieces",
        "none",
    ];
    RESULTS.iter().any(|result| word.eq_ignore_ascii_case(result))
}

/// Finds the date by its brackets, because a user name before it may contain blanks and brackets.
fn split_at_date(line: &str) -> Result<(&str, f64, &str), LineProblem> {
    for (open, _) in line.match_indices(" [") {
        let rest = &line[open + 2..];
        let Some((date, after)) = rest.split_once(']') else { break };
        if let Some(time) = date::clf(date) {
            return Ok((&line[..open], time, after));
        }
    }
    Err(LineProblem::Missing("date in brackets, such as [17/May/2015:10:05:03 +0000]"))
}

/// Apache's `vhost_combined` writes the host and its port before the three usual fields.
fn virtual_host(before: &str) -> Option<String> {
    let words: Vec<&str> = before.split_whitespace().take(5).collect();
    let (host, port) = words.first()?.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (words.len() == 4 && is_port && !host.is_empty()).then(|| words[0].to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_and_combined_lines_are_read() {
        let common =
            parse(r#"10.0.0.2 - ann [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326"#);
        let expected = LogRecord {
            time: Some(971_211_336.0),
            method: "GET".to_owned(),
            host: None,
            target: "/a.gif".to_owned(),
            status: Some(200),
            bytes: Some(2326),
            client: Some("10.0.0.2".to_owned()),
            ..LogRecord::default()
        };
        assert_eq!(common.unwrap(), expected);
        let combined = r#"10.0.0.2 - ann [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326 "http://example.com/\"q\"" "Agent (x)" 0.003 HIT"#;
        let expected = LogRecord {
            taken: Some(TimeTaken::InAll(0.003)),
            referer: Some(r#"http://example.com/\"q\""#.to_owned()),
            user_agent: Some("Agent (x)".to_owned()),
            cache: Some("HIT".to_owned()),
            ..expected
        };
        assert_eq!(parse(combined).unwrap(), expected);
        let whole = combined.replace("0.003", "3127");
        assert_eq!(parse(&whole).unwrap().taken, None, "the meaning of the number is unknown");
    }

    #[test]
    fn odd_but_honest_lines_are_read() {
        let read = |line: &str| parse(line).unwrap();
        let minus = read(r#"::1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 304 -"#);
        assert_eq!((minus.status, minus.bytes), (Some(304), Some(0)));
        let no_request = read(r#"::1 - - [10/Oct/2000:13:55:36 +0000] "-" 408 0 "-" "-""#);
        assert_eq!(no_request.method, "-");
        let user = read(r#"::1 - a [x] b [10/Oct/2000:13:55:36 +0000] "GET /\"q HTTP/1.1" 200 1"#);
        assert_eq!(user.target, r#"/\"q"#);
        let vhost = read(
            r#"Www.example.com:443 ::1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1"#,
        );
        assert_eq!(vhost.host.as_deref(), Some("www.example.com:443"));
        assert_eq!(vhost.client.as_deref(), Some("::1"));
        let varnish = read(
            r#"::1 - - [10/Oct/2000:13:55:36 +0000] "GET http://example.com/a HTTP/1.1" 200 1 "-" "-""#,
        );
        assert_eq!((varnish.host.as_deref(), varnish.target.as_str()), (Some("example.com"), "/a"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let problem = |line: &str| parse(line).unwrap_err().to_string();
        assert!(problem("10.0.0.2 - - GET /").contains("no date"));
        assert!(problem("a - - [10/Oct/2000:13:55:36 +0000] GET /").contains("no request"));
        assert!(problem(r#"a - - [10/Oct/2000:13:55:36 +0000] "GET /"#).contains("no status"));
        assert!(problem(r#"a - - [10/Oct/2000:13:55:36 +0000] "GET /" 20x 1"#).contains("status"));
        assert!(problem(r#"a - - [10/Oct/2000:13:55:36 +0000] "GET /" 200 1k"#).contains("bytes"));
    }
}
