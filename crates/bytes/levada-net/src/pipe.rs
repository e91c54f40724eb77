//! Moving bytes from one socket to another within the kernel (splice(2)).

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// A kernel pipe that buffers bytes between two sockets. The kernel's part of it is used again after the drop.
#[derive(Debug)]
pub struct Pipe {
    ends: Arc<PipeEnds>,
    held: AtomicUsize,
}

#[derive(Debug)]
struct PipeEnds {
    out: OwnedFd,
    into: OwnedFd,
}

thread_local! {
    /// Empty pipes that were dropped: opening, enlarging and closing one takes 7 us.
    static SPARE: RefCell<Vec<Arc<PipeEnds>>> = const { RefCell::new(Vec::new()) };
}

/// The most of them: the kernel counts their room against what a user may have in pipes.
const MOST_SPARE: usize = 8;

/// The size that is requested for a pipe: the most that an unprivileged process may have.
const ROOM: usize = 1 << 20;

impl Pipe {
    /// An empty pipe.
    ///
    /// # Errors
    /// When the process has reached its limit of open files.
    pub fn new() -> io::Result<Self> {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let ends = spare.map_or_else(PipeEnds::new, Ok)?;
        Ok(Self { ends, held: AtomicUsize::new(0) })
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
        let moved = splice(from, None, &self.ends.into, None, most, FLAGS)?;
        self.held.fetch_add(moved, Relaxed);
        Ok(moved)
    }

    /// Moves at most `most` bytes from the pipe to a socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket's buffer is full.
    pub fn drain(&self, to: impl AsFd, most: usize) -> io::Result<usize> {
        let moved = splice(&self.ends.out, None, to, None, most, FLAGS)?;
        self.held.fetch_sub(moved, Relaxed);
        Ok(moved)
    }
}

impl PipeEnds {
    fn new() -> io::Result<Arc<Self>> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user with many pipes gets small ones; these need more calls.
        let _ = fcntl_setpipe_size(&into, ROOM);
        Ok(Arc::new(Self { out, into }))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.held() > 0 {
            return;
        }
        // A thread that ends has no spares any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MOST_SPARE {
                spare.push(self.ends.clone());
            }
        });
    }
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd as _,
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

    #[test]
    fn only_an_empty_pipe_is_used_again() {
        let (mut from, near) = pair();
        let of = |pipe: &Pipe| pipe.ends.out.as_raw_fd();
        let (full, empty) = (Pipe::new().unwrap(), Pipe::new().unwrap());
        let (was_full, was_empty) = (Arc::downgrade(&full.ends), of(&empty));
        from.write_all(b"hello").unwrap();
        assert_eq!(full.fill(&near, 5).unwrap(), 5);
        drop((full, empty));
        assert!(was_full.upgrade().is_none(), "another body would begin with these bytes");
        assert_eq!(of(&Pipe::new().unwrap()), was_empty);
        drop((0..2 * MOST_SPARE).map(|_| Pipe::new().unwrap()).collect::<Vec<_>>());
        assert_eq!(SPARE.with_borrow(Vec::len), MOST_SPARE);
    }
}
