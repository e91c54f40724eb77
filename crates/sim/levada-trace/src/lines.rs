//! Lines of a stream with a limit on their length, so that no file can exhaust the memory.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read},
};

/// The longest line, in bytes.
pub const MAX_LINE: usize = 64 * 1024;

/// A line without its end, and its number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Counted from 1, empty lines and comments included.
    pub(crate) number: u64,
    /// The text; bytes that are not UTF-8 are replaced. At most [`MAX_LINE`] bytes were read.
    pub(crate) text: String,
    /// Whether the line was longer than the limit.
    pub(crate) too_long: bool,
}

/// Reads lines; skips empty ones and those that begin with `#`.
pub(crate) struct Lines {
    stream: BufReader<Box<dyn Read + Send>>,
    number: u64,
    /// Lines that [`Lines::peek`] has read ahead, and the error that ended reading, which is
    /// returned after them: a decompressor must not be read again after an error.
    ahead: VecDeque<Line>,
    failure: Option<io::Error>,
}

impl Lines {
    pub(crate) fn new(stream: Box<dyn Read + Send>) -> Self {
        Self { stream: BufReader::new(stream), number: 0, ahead: VecDeque::new(), failure: None }
    }

    /// Returns up to `count` lines without consuming them.
    ///
    /// If the stream fails after some lines, these are returned; [`Lines::next`] returns the error
    /// after them.
    pub(crate) fn peek(&mut self, count: usize) -> io::Result<&VecDeque<Line>> {
        while self.ahead.len() < count && self.failure.is_none() {
            match self.fetch() {
                Ok(Some(line)) => self.ahead.push_back(line),
                Ok(None) => break,
                Err(error) if self.ahead.is_empty() => return Err(error),
                Err(error) => self.failure = Some(error),
            }
        }
        Ok(&self.ahead)
    }

    /// The next line; `None` at the end. Must not be called again after an error.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line>> {
        match self.ahead.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.failure.take().map_or_else(|| self.fetch(), Err),
        }
    }

    /// The next lines until `bytes` of text; none at the end. Must not be called again after an error.
    pub(crate) fn batch(&mut self, bytes: usize) -> (Vec<Line>, io::Result<()>) {
        let (mut lines, mut size) = (Vec::new(), 0);
        while size < bytes {
            match self.next() {
                Ok(Some(line)) => {
                    size += line.text.len();
                    lines.push(line);
                }
                Ok(None) => break,
                Err(error) => return (lines, Err(error)),
            }
        }
        (lines, Ok(()))
    }

    /// The number of the line last read from the stream.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn fetch(&mut self) -> io::Result<Option<Line>> {
        loop {
            let mut bytes = Vec::new();
            let limit = MAX_LINE as u64 + 2; // room for CR and LF
            let read = self.stream.by_ref().take(limit).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let ended = bytes.last() == Some(&b'\n');
            if !ended && read as u64 == limit {
                self.pass_over_rest()?;
            }
            let mut text = trim_end(&bytes);
            if self.number == 1 {
                text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
            }
            let too_long = text.len() > MAX_LINE;
            if text.iter().all(u8::is_ascii_whitespace) && !too_long || text.starts_with(b"#") {
                continue;
            }
            let text = String::from_utf8_lossy(&text[..text.len().min(MAX_LINE)]).into_owned();
            return Ok(Some(Line { number: self.number, text, too_long }));
        }
    }

    fn pass_over_rest(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.stream.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let used = end.map_or(buffer.len(), |at| at + 1);
            self.stream.consume(used);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &'static [u8]) -> Lines {
        Lines::new(Box::new(bytes))
    }

    fn all(bytes: &'static [u8]) -> Vec<(u64, String)> {
        let mut lines = lines(bytes);
        std::iter::from_fn(|| lines.next().unwrap()).map(|line| (line.number, line.text)).collect()
    }

    #[test]
    fn line_ends_comments_and_gaps_keep_the_numbers_right() {
        let expected = vec![(2, "a".to_owned()), (4, "b".to_owned()), (5, "c".to_owned())];
        assert_eq!(all(b"# header\na\r\n\nb\nc"), expected);
        assert_eq!(all(b"\xef\xbb\xbfa\n"), [(1, "a".to_owned())]);
        assert!(all(b"").is_empty());
    }

    #[test]
    fn a_huge_line_is_cut_and_the_next_one_is_whole() {
        let mut bytes = vec![b'x'; 3 * MAX_LINE];
        bytes.extend_from_slice(b"\nnext\n");
        let mut lines = Lines::new(Box::new(io::Cursor::new(bytes)));
        let first = lines.next().unwrap().unwrap();
        assert!(first.too_long && first.text.len() == MAX_LINE);
        let second = lines.next().unwrap().unwrap();
        assert_eq!((second.number, second.text.as_str(), second.too_long), (2, "next", false));
    }

    /// Returns two lines and an error, and must not be read after that.
    struct Failing(u8);

    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 => b"a\nb\n".as_slice().read(buffer),
                2 => Err(io::Error::other("damaged")),
                _ => unreachable!("read after a failure"),
            }
        }
    }

    #[test]
    fn a_failure_is_told_once_after_the_lines_before_it() {
        let mut lines = Lines::new(Box::new(Failing(0)));
        assert_eq!(lines.peek(16).unwrap().len(), 2);
        assert_eq!(lines.peek(16).unwrap().len(), 2);
        assert_eq!(lines.next().unwrap().unwrap().text, "a");
        assert_eq!(lines.next().unwrap().unwrap().text, "b");
        assert_eq!(lines.next().unwrap_err().to_string(), "damaged");
    }

    #[test]
    fn peeking_consumes_nothing() {
        let mut lines = lines(b"a\nb\nc\n");
        assert_eq!(lines.peek(2).unwrap().len(), 2);
        assert_eq!(lines.next().unwrap().unwrap().text, "a");
        assert_eq!(lines.peek(5).unwrap().len(), 2);
        assert_eq!(lines.next().unwrap().unwrap().number, 2);
    }
}
