//! Moving bytes from one socket to another within the kernel (splice(2)).

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// A kernel pipe that buffers bytes between two sockets.
#[derive(Debug)]
pub struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    held: AtomicUsize,
}

/// The size that is requested for a pipe: the most that an unprivileged process may have.
const ROOM: usize = 1 << 20;

impl Pipe {
    /// Creates an empty pipe.
    ///
    /// # Errors
    /// When the process has reached its limit of open files.
    pub fn new() -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user with many pipes gets small ones; these need more calls.
        let _ = fcntl_setpipe_size(&into, ROOM);
        Ok(Self { out, into, held: AtomicUsize::new(0) })
    }

    /// The number of bytes in the pipe.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Moves at most `most` received bytes from a socket into the pipe; returns 0 if its peer has
    /// closed. Does not block. Call it with an empty pipe only, because a full pipe and a socket
    /// without data give the same error.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no data is available.
    pub fn fill(&self, from: impl AsFd, most: usize) -> io::Result<usize> {
        let moved = splice(from, None, &self.into, None, most, FLAGS)?;
        self.held.fetch_add(moved, Relaxed);
        Ok(moved)
    }

    /// Moves at most `most` bytes from the pipe to a socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket's buffer is full.
    pub fn drain(&self, to: impl AsFd, most: usize) -> io::Result<usize> {
        let moved = splice(&self.out, None, to, None, most, FLAGS)?;
        self.held.fetch_sub(moved, Relaxed);
        Ok(moved)
    }
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_go_through_a_pipe_in_order_and_their_end_is_told() {
        let ((mut from, near), (far, mut to)) = (pair(), pair());
        near.set_nonblocking(true).unwrap();
        let pipe = Pipe::new().unwrap();
        let nothing = pipe.fill(&near, 10).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        from.write_all(b"hello world").unwrap();
        drop(from);
        let mut taken = 0;
        while taken < 11 {
            match pipe.fill(&near, 5) {
                Ok(count) => {
                    assert_eq!(pipe.held(), count);
                    while pipe.held() > 0 {
                        pipe.drain(&far, 3).unwrap();
                    }
                    taken += count;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let end = loop {
            match pipe.fill(&near, 5) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                end => break end.unwrap(),
            }
        };
        drop(far);
        let mut text = String::new();
        to.read_to_string(&mut text).unwrap();
        assert_eq!((end, &*text), (0, "hello world"));
    }
}
