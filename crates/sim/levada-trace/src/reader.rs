//! Opening a file and reading its records.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::{
    format::{self, FORMATS, LineFormat},
    lines::{Line, Lines},
    record::{LineProblem, LogRecord},
    source,
};

/// The number of lines that decide the format of a file.
const SAMPLE: usize = 16;

/// The length of the excerpt of a line, in characters.
const EXCERPT: usize = 80;

/// Opens a trace or an access log; compression and format are recognised by content.
///
/// # Errors
/// When the file cannot be read, is empty, or has an unknown format.
pub fn open(path: impl AsRef<Path>) -> Result<TraceReader, OpenError> {
    let path = path.as_ref();
    let name = path.to_owned();
    match File::open(path) {
        // Opening a directory succeeds on Unix; only reading it fails, with a less clear error.
        Ok(file) if file.metadata().is_ok_and(|meta| meta.is_dir()) => {
            Err(OpenError::Directory(name))
        }
        Ok(file) => TraceReader::new(file, name),
        Err(error) => Err(OpenError::Read { path: name, error }),
    }
}

/// The reason why a file cannot be read as a trace or an access log.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system or the decompressor returned an error.
    #[error("cannot read {}: {error}; check that it exists, is complete and readable", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error; it is part of the message, so it is not also returned as the source.
        error: io::Error,
    },
    /// The path is a directory.
    #[error("{} is a directory; name one of the files in it", .0.display())]
    Directory(PathBuf),
    /// The file has no lines with content.
    #[error("{} has no lines; name a log that has requests", .0.display())]
    Empty(PathBuf),
    /// The compression is not supported.
    #[error("{} is compressed with {compression}; decompress it with `{remedy}` first (gzip, xz and zstd are decompressed automatically)", .path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// The name of the compression.
        compression: &'static str,
        /// The command that decompresses it.
        remedy: &'static str,
    },
    /// The format is unknown.
    #[error(
        "{} has an unknown format; its first line is `{excerpt}`. Known formats:{}",
        .path.display(), KnownFormats
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The beginning of its first line.
        excerpt: String,
    },
}

/// A line that is not a record. The reader continues with the next one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}: `{excerpt}`")]
pub struct LineError {
    /// Counted from 1 in the (decompressed) file.
    pub line: u64,
    /// The error.
    pub problem: LineProblem,
    /// The beginning of the line, without control characters.
    pub excerpt: String,
}

/// The records of a file, one line at a time.
pub struct TraceReader {
    lines: Lines,
    format: &'static LineFormat,
    broken: bool,
}

impl TraceReader {
    /// Reads from any stream; errors use `name` for it.
    ///
    /// # Errors
    /// As [`open`].
    pub fn new(
        stream: impl Read + Send + 'static,
        name: impl Into<PathBuf>,
    ) -> Result<Self, OpenError> {
        let path = name.into();
        let text = match source::decompress(Box::new(stream)) {
            Ok(Ok(text)) => text,
            Ok(Err(foreign)) => {
                let (compression, remedy) = (foreign.name, foreign.remedy);
                return Err(OpenError::Compressed { path, compression, remedy });
            }
            Err(error) => return Err(OpenError::Read { path, error }),
        };
        let mut lines = Lines::new(text);
        let sample = match lines.peek(SAMPLE) {
            Ok(sample) => sample,
            Err(error) => return Err(OpenError::Read { path, error }),
        };
        let Some(first) = sample.front() else { return Err(OpenError::Empty(path)) };
        let texts = sample.iter().map(|line| line.text.as_str());
        match format::recognise(texts) {
            Some(format) => Ok(Self { lines, format, broken: false }),
            None => Err(OpenError::UnknownFormat { path, excerpt: excerpt(&first.text) }),
        }
    }

    /// The recognised format.
    pub fn format(&self) -> &'static LineFormat {
        self.format
    }

    /// Some of the next lines, whose records another thread may read; `None` at the end. Lines of a file
    /// that cannot be read further end with an error.
    pub fn next_batch(&mut self) -> Option<LineBatch> {
        if self.broken {
            return None;
        }
        let (lines, result) = self.lines.batch(BATCH);
        let failure = result.err().map(|error| self.broken_by(&error));
        let is_some = !lines.is_empty() || failure.is_some();
        is_some.then_some(LineBatch { lines, format: self.format, failure })
    }

    fn broken_by(&mut self, error: &io::Error) -> LineError {
        self.broken = true;
        let line = self.lines.number() + 1;
        let problem = LineProblem::Broken(error.to_string());
        LineError { line, problem, excerpt: String::new() }
    }
}

/// Lines that have been read, but not yet as records.
pub struct LineBatch {
    lines: Vec<Line>,
    format: &'static LineFormat,
    failure: Option<LineError>,
}

impl LineBatch {
    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Result<LogRecord, LineError>> {
        let failure = self.failure.iter().map(|error| Err(error.clone()));
        self.lines.iter().map(|line| read(self.format, line)).chain(failure)
    }

    /// Bytes of text.
    pub fn bytes(&self) -> u64 {
        self.lines.iter().map(|line| line.text.len() as u64 + 1).sum()
    }
}

/// Bytes of text in a batch.
const BATCH: usize = 256 << 10;

fn read(format: &LineFormat, line: &Line) -> Result<LogRecord, LineError> {
    let parsed = if line.too_long { Err(LineProblem::TooLong) } else { (format.parse)(&line.text) };
    parsed.map_err(|problem| LineError { line: line.number, problem, excerpt: excerpt(&line.text) })
}

impl Iterator for TraceReader {
    type Item = Result<LogRecord, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.broken {
            return None;
        }
        match self.lines.next() {
            Ok(line) => line.map(|line| read(self.format, &line)),
            Err(error) => Some(Err(self.broken_by(&error))),
        }
    }
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("format", &self.format.name).finish_non_exhaustive()
    }
}

/// All formats with their summaries, one per line.
struct KnownFormats;

impl fmt::Display for KnownFormats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FORMATS.iter().try_for_each(|known| write!(f, "\n  {:8} {}", known.name, known.summary))
    }
}

/// The beginning of `text`, safe to print on a terminal.
fn excerpt(text: &str) -> String {
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(EXCERPT).map(printable).collect();
    if text.chars().nth(EXCERPT).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use proptest::prelude::*;

    use super::*;
    use crate::MAX_LINE;

    fn reader(text: impl Into<Vec<u8>>) -> Result<TraceReader, OpenError> {
        TraceReader::new(Cursor::new(text.into()), "access.log")
    }

    #[test]
    fn a_file_is_opened_by_content_not_by_name() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"1 a 10\n2 b 20\n").unwrap();
        file.write_all(&gzip.finish().unwrap()).unwrap();
        let reader = open(file.path()).unwrap();
        assert_eq!(reader.format().name, "id-size");
        assert_eq!(reader.filter_map(Result::ok).count(), 2);
    }

    #[test]
    fn what_cannot_be_opened_is_named_with_a_remedy() {
        let missing = open("no/such.log").unwrap_err().to_string();
        assert!(missing.contains("no/such.log") && missing.contains("check"), "{missing}");
        let directory = open(".").unwrap_err().to_string();
        assert!(directory.contains("directory"), "{directory}");
        for nothing in ["", "\n\r\n", "# only a comment\n"] {
            assert!(matches!(reader(nothing), Err(OpenError::Empty(_))), "{nothing:?}");
        }
        let bzip2 = reader(*b"BZh91AY&SY").unwrap_err().to_string();
        assert!(bzip2.contains("bunzip2"), "{bzip2}");
    }

    #[test]
    fn an_unknown_format_lists_the_known_ones() {
        let message = reader("Dear diary,\x07\n").unwrap_err().to_string();
        assert!(message.contains("access.log") && message.contains("Dear diary,\u{fffd}"));
        assert!(FORMATS.iter().all(|format| message.contains(format.summary)), "{message}");
    }

    #[test]
    fn a_bad_line_is_told_and_the_next_one_read() {
        let mut text = b"1 a 10\n\xff\xfe garbage\n3 c 30\r\n".to_vec();
        text.extend_from_slice(&vec![b'7'; MAX_LINE + 10]);
        text.extend_from_slice(b"\n5 e 50\n6 f");
        let read: Vec<_> = reader(text).unwrap().collect();
        assert_eq!(read.len(), 6);
        assert!(read[0].is_ok() && read[2].is_ok());
        let garbage = read[1].as_ref().unwrap_err();
        assert_eq!(garbage.line, 2);
        assert!(garbage.to_string().starts_with("line 2: the sequence number is not readable"));
        assert_eq!(read[3].as_ref().unwrap_err().problem, LineProblem::TooLong);
        assert!(read[3].as_ref().unwrap_err().excerpt.len() < 100);
        let cut = read[5].as_ref().unwrap_err();
        assert_eq!((cut.line, &cut.problem), (6, &LineProblem::Missing("size")));
    }

    #[test]
    fn a_file_that_breaks_off_says_so_once() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        for n in 0..20_000 {
            writeln!(gzip, "{n} {n} 10").unwrap();
        }
        let whole = gzip.finish().unwrap();
        let read: Vec<_> = reader(&whole[..whole.len() / 2]).unwrap().collect();
        let (last, before) = read.split_last().unwrap();
        assert!(matches!(last.as_ref().unwrap_err().problem, LineProblem::Broken(_)));
        assert!(before.len() > 5_000 && before.iter().all(Result::is_ok));
    }

    /// Lines composed of fragments of the formats reach more code than random bytes.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let known = prop::sample::select(vec![
            "1",
            "17",
            "-",
            "-1",
            "\"",
            "\\",
            "[",
            "]",
            "{",
            "}",
            "/",
            ":",
            " ",
            " ",
            "\n",
            "\r\n",
            "\t",
            "GET /a HTTP/1.1",
            "\"GET /a\"",
            "http://",
            "HTTP/",
            "200",
            "TCP_MISS/200",
            "[06/Feb/2009:12:14:14 +0000]",
            "06/Feb/2009:12:14:14.655",
            "2024-03-01T00:00:00Z",
            "1/1/1/1/1",
            "a/b",
            "{\"uri\":\"/\",\"method\":\"GET\"",
            "\"request\":",
            "é",
            "\u{0}",
            "99999999999999999999",
            "+",
            "Z",
            "1286536309.586",
        ]);
        prop::collection::vec(known, 0..60).prop_map(|parts| parts.concat().into_bytes())
    }

    fn drain(bytes: Vec<u8>) {
        for format in FORMATS {
            let _ = (format.parse)(&String::from_utf8_lossy(&bytes));
        }
        if let Ok(reader) = reader(bytes) {
            for item in reader {
                let _ = item.map_err(|error| error.to_string());
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            drain(bytes);
        }

        #[test]
        fn no_pieces_panic(bytes in pieces()) {
            drain(bytes);
        }

        #[test]
        fn no_damaged_compression_panics(
            magic in prop::sample::select(vec![
                &b"\xfd7zXZ\0\0\x01"[..],
                b"\x1f\x8b\x08\0",
                b"\x28\xb5\x2f\xfd",
            ]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            drain([magic, &rest].concat());
        }
    }
}
