//! Envoy's default format.
//!
//! ```text
//! [time] "METHOD path PROTOCOL" status flags received sent duration upstream_time
//!     "forwarded-for" "agent" "request id" "authority" "upstream"
//! ```

use super::line::{Fields, LineFormat, bytes, request_line, stated, status};
use crate::{
    date,
    record::{LineProblem, LogRecord, Parsed, TimeTaken},
};

pub(super) const FORMAT: LineFormat = LineFormat {
    name: "envoy",
    summary: "Envoy's default access log",
    sniff: |line| parse(line).is_ok(),
    parse,
};

fn parse(line: &str) -> Parsed {
    let inner = line.trim_start().strip_prefix('[').ok_or(LineProblem::Missing("[time]"))?;
    let (time, rest) = inner.split_once(']').ok_or(LineProblem::Missing("end of [time]"))?;
    let time = date::iso(time).ok_or(LineProblem::Unreadable("time"))?;
    let mut record = LogRecord { time: Some(time), ..LogRecord::default() };
    let mut fields = Fields(rest);
    request_line(&mut record, fields.quoted("request in quotes")?);
    record.status = status(fields.word("status")?)?;
    fields.word("response flags")?;
    fields.word("bytes received")?;
    record.bytes = Some(bytes(fields.word("bytes sent")?)?);
    record.taken = taken(fields);
    quoted_fields(&mut record, fields);
    Ok(record)
}

/// The server's own time if the server answered, else the time of the whole request; both in
/// milliseconds.
fn taken(mut fields: Fields<'_>) -> Option<TimeTaken> {
    let whole = fields.word("duration").ok()?;
    let server = fields.word("upstream time").ok().and_then(|text| text.parse::<f64>().ok());
    let whole = whole.parse::<f64>().ok().map(|ms| TimeTaken::InAll(ms / 1e3));
    server.map(|ms| TimeTaken::ToAnswer(ms / 1e3)).or(whole)?.checked()
}

/// Takes the fields in quotes; older or shortened formats lack some.
fn quoted_fields(record: &mut LogRecord, mut fields: Fields<'_>) -> Option<()> {
    fields.word("duration").ok()?;
    fields.word("upstream time").ok()?;
    // The last proxy wrote the last address.
    let forwarded = fields.quoted("forwarded for").ok()?;
    record.client = stated(forwarded.rsplit(',').next()?.trim());
    record.user_agent = stated(fields.quoted("user agent").ok()?);
    fields.quoted("request id").ok()?;
    record.host = stated(fields.quoted("authority").ok()?).map(|host| host.to_ascii_lowercase());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_format_is_read() {
        let line = r#"[2024-03-01T00:00:00.250Z] "GET /a?b HTTP/2" 200 - 0 154 226 100 "10.0.0.2" "curl/8" "6f1b" "Example.com" "10.0.0.9:80""#;
        let record = parse(line).unwrap();
        assert_eq!(record.time, Some(1_709_251_200.25));
        assert_eq!(record.taken, Some(TimeTaken::ToAnswer(0.1)));
        assert_eq!(record.host.as_deref(), Some("example.com"));
        assert_eq!(record.client.as_deref(), Some("10.0.0.2"));
        assert_eq!(record.user_agent.as_deref(), Some("curl/8"));
        assert_eq!(
            (record.target.as_str(), record.status, record.bytes),
            ("/a?b", Some(200), Some(154))
        );
    }

    #[test]
    fn a_reset_request_has_no_status() {
        let line = r#"[2024-03-01T00:00:00Z] "GET /a HTTP/2" 0 DC 0 0 7 - "-" "-" "-" "-" "-""#;
        let record = parse(line).unwrap();
        assert_eq!((record.status, record.host), (None, None));
    }
}
