//! A zone file (RFC 1035 Sec. 5) as its records.

use std::path::{Path, PathBuf};

use domain::{
    base::{
        Name as ParsedName, ToName as _,
        iana::Class,
        rdata::{ComposeRecordData as _, RecordData as _},
    },
    zonefile::inplace::{Entry, Zonefile},
};

use super::times::in_seconds;
use crate::wire::Name;

/// A record of a zone file.
pub struct FileRecord {
    /// Its owner.
    pub owner: Name,
    /// Its type.
    pub kind: u16,
    /// Its TTL.
    pub ttl: u32,
    /// Its data without compression, with names in lower case (RFC 4034 Sec. 6.2).
    pub data: Vec<u8>,
}

/// Why a zone file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ZoneFileError {
    /// A line is wrong.
    #[error("{}:{why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, column and reason.
        why: String,
    },
    /// It has `$INCLUDE`.
    #[error("{}: `$INCLUDE {other}` is not supported: write its records here", path.display())]
    Include {
        /// The file.
        path: PathBuf,
        /// The other file.
        other: String,
    },
}

/// A zone file.
#[derive(Clone, Copy)]
pub struct ZoneFile<'f> {
    /// Where it is, for errors.
    pub path: &'f Path,
    /// Its text.
    pub text: &'f [u8],
}

impl ZoneFile<'_> {
    /// Its records. Names without a dot at the end are below the name of the zone.
    ///
    /// # Errors
    /// With the first thing that is wrong.
    pub fn records(self, zone: &Name) -> Result<Vec<FileRecord>, ZoneFileError> {
        parse(self.text, self.path, zone)
    }
}

fn parse(text: &[u8], path: &Path, zone: &Name) -> Result<Vec<FileRecord>, ZoneFileError> {
    let text = in_seconds(text);
    let mut file = Zonefile::with_capacity(text.len() + 1);
    file.extend_from_slice(&text);
    // The last line may lack its end.
    file.extend_from_slice(b"\n");
    let line = |why: String| ZoneFileError::Line { path: path.to_owned(), why: at_its_line(why) };
    let origin = ParsedName::from_octets(zone.wire().to_vec().into());
    file.set_origin(origin.map_err(|error| line(error.to_string()))?);
    file.set_default_class(Class::IN);
    let mut records = Vec::new();
    while let Some(entry) = file.next_entry().map_err(|error| line(error.to_string()))? {
        let record = match entry {
            Entry::Record(record) => record,
            Entry::Include { path: other, .. } => {
                let other = other.to_string();
                return Err(ZoneFileError::Include { path: path.to_owned(), other });
            }
        };
        let owner = Name::from_wire(&record.owner().to_vec().into_octets());
        let mut data = Vec::new();
        // A vector takes all that is appended.
        let _ = record.data().compose_canonical_rdata(&mut data);
        let (kind, ttl) = (record.data().rtype().to_int(), record.ttl().as_secs());
        records.push(FileRecord { owner, kind, ttl, data });
    }
    Ok(records)
}

/// The parser says where it stands: at the beginning of the next line after the last word of a line.
fn at_its_line(why: String) -> String {
    let mut parts = why.splitn(3, ':');
    let line = parts.next().and_then(|line| line.parse::<usize>().ok());
    match (line, parts.next(), parts.next()) {
        (Some(line @ 2..), Some("1"), Some(reason)) => format!("{}:{reason}", line - 1),
        _ => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::kind;

    fn records(text: &str) -> Result<Vec<FileRecord>, ZoneFileError> {
        parse(text.as_bytes(), Path::new("a.zone"), &"a.test".parse().unwrap())
    }

    #[test]
    fn records_of_a_file_have_their_owners_types_and_data() {
        let text = "$TTL 60\n@ SOA ns hostmaster 1 2 3 4 5\n  NS ns\nns 5m A 192.0.2.1\n\
                    * IN TXT \"a b\" c\n@ CAA 0 issue \"ca.test\"\n$ORIGIN b.a.test.\nx TYPE999 \\# 2 0a0B\n\
                    h HTTPS 1 . alpn=h2";
        let records = records(text).unwrap();
        let seen: Vec<_> = records.iter().map(|r| (r.owner.to_string(), r.kind, r.ttl)).collect();
        let row = |owner: &str, kind, ttl| (owner.to_owned(), kind, ttl);
        let expected = [
            row("a.test", kind::SOA, 60),
            row("a.test", kind::NS, 60),
            row("ns.a.test", kind::A, 300),
            row("*.a.test", 16, 60),
            row("a.test", 257, 60),
            row("x.b.a.test", 999, 60),
            row("h.b.a.test", kind::HTTPS, 60),
        ];
        assert_eq!(seen, expected);
        assert_eq!(records[1].data, b"\x02ns\x01a\x04test\0");
        assert_eq!(records[2].data, [192, 0, 2, 1]);
        assert_eq!(records[3].data, b"\x03a b\x01c");
        assert_eq!(records[5].data, [10, 11]);
    }

    #[test]
    fn error_names_the_file_and_the_line() {
        let wrong = |text| records(text).err().unwrap().to_string();
        let line = wrong("$TTL 60\n@ SOA ns hostmaster 1 2 3 4 5\nwww A 192.0.2.256\n");
        assert!(line.starts_with("a.zone:3:"), "{line}");
        assert!(wrong("$INCLUDE other\n").contains("write its records here"));
        assert!(wrong("a 60 CH TXT x\n").contains("class"));
    }
}
