//! Messages and descriptors over the Unix socket between two processes.
//!
//! ```text
//! message       length:4 JSON
//! descriptors   one byte for up to 64 of them (SCM_RIGHTS)
//! ```

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};

/// The most bytes of a message: the purge log of a cluster is smaller.
const MAX_MESSAGE: u32 = 256 << 20;
/// Descriptors that are sent at once; Linux allows 253.
const AT_ONCE: usize = 64;

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(UnixStream);

impl Channel {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self(socket)
    }

    /// How long the other end may take for a message.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)?;
        self.0.set_write_timeout(timeout)
    }

    pub(crate) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        (&self.0).write_all(&length.to_le_bytes())?;
        (&self.0).write_all(&text)
    }

    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<T> {
        let mut length = [0; 4];
        (&self.0).read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_MESSAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = Vec::new();
        (&self.0).take(length.into()).read_to_end(&mut text)?;
        if text.len() < length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&text)?)
    }

    pub(crate) fn send_descriptors(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        for some in descriptors.chunks(AT_ONCE) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(some));
            sendmsg(&self.0, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    pub(crate) fn receive_descriptors(&self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut received = Vec::new();
        while received.len() < count {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let into = &mut [IoSliceMut::new(&mut byte)];
            let message = recvmsg(&self.0, into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let before = received.len();
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(some) = part {
                    received.extend(some);
                }
            }
            if message.bytes == 0 || received.len() == before {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(received)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::fd::AsFd as _};

    use super::*;

    fn pair() -> (Channel, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one), other)
    }

    #[test]
    fn many_sockets_arrive_in_order_between_messages() {
        let (old, new) = pair();
        let new = Channel::new(new);
        let listeners: Vec<_> =
            (0..150).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let descriptors: Vec<_> = listeners.iter().map(|one| one.as_fd()).collect();
        old.send(&"before").unwrap();
        old.send_descriptors(&descriptors).unwrap();
        old.send(&"after").unwrap();
        assert_eq!(new.receive::<String>().unwrap(), "before");
        let received = new.receive_descriptors(150).unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let received: Vec<_> = received.into_iter().map(TcpListener::from).collect();
        assert!(received.iter().map(address).eq(listeners.iter().map(address)));
        assert_eq!(new.receive::<String>().unwrap(), "after");
    }

    #[test]
    fn an_end_that_breaks_off_or_sends_nonsense_is_an_error() {
        for bytes in [&b""[..], b"\x05\0", b"\x05\0\0\0\"ab", b"\xff\xff\xff\xff", b"\x01\0\0\0{"] {
            let (old, mut new) = pair();
            new.write_all(bytes).unwrap();
            drop(new);
            assert!(old.receive::<String>().is_err(), "{bytes:?}");
            assert!(old.receive_descriptors(1).is_err());
        }
    }
}
