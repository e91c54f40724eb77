//! The places where lines can be written.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::log::syslog::{Syslog, SyslogClient};

/// The place where lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file that lines are appended to, or a named pipe.
    File(PathBuf),
    /// A syslog daemon.
    Syslog(Syslog),
    /// The collector of the node, which gets records instead of lines.
    Collector,
}

impl LogTarget {
    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::Stderr => f.write_str("standard error"),
            Self::File(path) => path.display().fmt(f),
            Self::Syslog(syslog) => syslog.fmt(f),
            Self::Collector => f.write_str("the collector of OpenTelemetry"),
        }
    }
}

/// An open target.
pub(crate) enum Output {
    Stream(Stream),
    Syslog(SyslogClient),
}

/// The result of writing some lines.
pub(crate) struct Written {
    /// Bytes of the lines that need not be written again.
    pub(crate) bytes: usize,
    /// Lines among them that are lost.
    pub(crate) lost: u64,
    /// The error that stopped the rest.
    pub(crate) result: io::Result<()>,
}

impl Output {
    pub(crate) fn open(target: &LogTarget) -> io::Result<Self> {
        let stream: Box<dyn Write + Send> = match target {
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::Stderr => Box::new(io::stderr()),
            LogTarget::File(path) => Box::new(open_file(path)?),
            LogTarget::Syslog(syslog) => {
                return Ok(Self::Syslog(SyslogClient::new(syslog.clone())));
            }
            LogTarget::Collector => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(Self::Stream(Stream { out: stream, is_torn: false }))
    }

    /// Writes whole lines.
    pub(crate) fn write(&mut self, lines: &[u8]) -> Written {
        match self {
            Self::Stream(stream) => stream.write(lines),
            Self::Syslog(client) => client.write(lines),
        }
    }
}

/// The permissions of a new file of an access log: it has addresses of clients and their URLs.
pub const FILE_MODE: u32 = 0o640;

/// Opens a file for appending. A pipe is opened for reading as well: opening waits for no reader then, and
/// lines wait for the next reader when one has gone.
fn open_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
    let is_pipe = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    match is_pipe {
        true => File::options().read(true).write(true).open(path),
        false => File::options().create(true).append(true).mode(FILE_MODE).open(path),
    }
}

pub(crate) struct Stream {
    out: Box<dyn Write + Send>,
    /// The last thing in it is a part of a line.
    is_torn: bool,
}

impl Stream {
    /// Writes lines. What a failure leaves is lost: waiting for room on a disk would only fill the memory.
    fn write(&mut self, lines: &[u8]) -> Written {
        let mut done = 0;
        let result = self.mend().and_then(|()| {
            while done < lines.len() {
                match self.out.write(&lines[done..]) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            self.out.flush()
        });
        if result.is_err() && done > 0 {
            self.is_torn = lines[done - 1] != b'\n';
        }
        Written { bytes: lines.len(), lost: count(&lines[done..]), result }
    }

    /// Ends the line that a failure has torn.
    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.out.write_all(b"\n")?;
            self.is_torn = false;
        }
        Ok(())
    }
}

/// The number of lines that end in `lines`.
pub(crate) fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}
