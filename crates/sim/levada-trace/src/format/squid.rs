//! Squid's native format, which Traffic Server can also write.
//!
//! ```text
//! seconds.millis elapsed client result/status bytes METHOD url user hierarchy/peer type
//! ```
//!
//! Bytes include the response's headers.

use super::line::{Fields, LineFormat, bytes, set_target, stated, status};
use crate::{
    date,
    record::{LineProblem, LogRecord, Parsed, TimeTaken},
};

pub(super) const FORMAT: LineFormat = LineFormat {
    name: "squid",
    summary: "Squid's native access.log, also Traffic Server's squid format",
    sniff: |line| parse(line).is_ok(),
    parse,
};

fn parse(line: &str) -> Parsed {
    let mut fields = Fields(line);
    let time = date::unix(fields.word("time")?).ok_or(LineProblem::Unreadable("time"))?;
    let mut record = LogRecord { time: Some(time), ..LogRecord::default() };
    let elapsed = fields.word("elapsed time")?.parse::<f64>().ok();
    record.taken = elapsed.and_then(|ms| TimeTaken::InAll(ms / 1e3).checked());
    record.client = stated(fields.word("client")?);
    let (result, code) =
        fields.word("result")?.split_once('/').ok_or(LineProblem::Missing("result/status"))?;
    record.cache = stated(result);
    record.status = status(code)?;
    record.bytes = Some(bytes(fields.word("number of bytes")?)?);
    record.method = fields.word("method")?.to_owned();
    set_target(&mut record, fields.word("URL")?);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_lines_are_read() {
        let line = "1286536309.586    921 10.0.0.2 TCP_MISS/200 507 GET http://example.com/a?b - HIER_DIRECT/10.0.0.9 text/html";
        let record = parse(line).unwrap();
        assert_eq!(record.time, Some(1_286_536_309.586));
        assert_eq!((record.host.as_deref(), record.target.as_str()), (Some("example.com"), "/a?b"));
        assert_eq!((record.status, record.bytes), (Some(200), Some(507)));
        assert_eq!(record.taken, Some(TimeTaken::InAll(0.921)));
        assert_eq!(record.client.as_deref(), Some("10.0.0.2"));
        assert_eq!(record.cache.as_deref(), Some("TCP_MISS"));
    }

    #[test]
    fn errors_and_tunnels_are_read() {
        let denied =
            parse("1286536309.586 0 ::1 TAG_NONE/000 0 NONE error:invalid-request - HIER_NONE/- -")
                .unwrap();
        assert_eq!((denied.status, denied.method.as_str()), (None, "NONE"));
        let tunnel = parse(
            "1286536309.586 9 ::1 TCP_TUNNEL/200 39 CONNECT example.com:443 - HIER_DIRECT/::2 -",
        );
        assert_eq!(tunnel.unwrap().target, "example.com:443");
    }
}
