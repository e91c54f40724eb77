//! Traces of cache research: `sequence id size`, the format of webcachesim and similar programs.
//!
//! Columns after the third are ignored. The first column is a sequence number in some traces and
//! seconds, milliseconds or request counts in others, so it is not used as a time.

use super::line::{Fields, LineFormat, whole};
use crate::{
    date,
    record::{LineProblem, LogRecord, Parsed},
};

pub(super) const FORMAT: LineFormat = LineFormat {
    name: "id-size",
    summary: "traces of `sequence id size`, one request a line (webcachesim)",
    sniff: |line| parse(line).is_ok(),
    parse,
};

fn parse(line: &str) -> Parsed {
    let mut fields = Fields(line);
    date::unix(fields.word("sequence number")?)
        .ok_or(LineProblem::Unreadable("sequence number"))?;
    let id = fields.word("object id")?;
    let size = whole(fields.word("size")?).ok_or(LineProblem::Unreadable("size"))?;
    Ok(LogRecord {
        method: "GET".to_owned(),
        target: id.to_owned(),
        bytes: Some(size),
        ..LogRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_or_more_columns_are_read() {
        for line in ["1 17 4096", "1\t17\t4096\t3 0.5", "  1  17  4096 "] {
            let record = parse(line).unwrap();
            assert_eq!((record.target.as_str(), record.bytes), ("17", Some(4096)), "{line}");
            assert_eq!((record.time, record.status), (None, None));
        }
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for line in ["", "1 17", "1 17 big", "x 17 4096", "1 17 -5", "1 17 99999999999999999999"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
