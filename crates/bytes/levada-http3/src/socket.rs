//! The UDP socket of an endpoint.
//!
//! It differs from that of quinn in two ways. A call that finds fewer packets than it has room for has found all of
//! them, so that no second call asks again. And nothing leaves that would be too much for an address that is not proved
//! yet ([`Amplification`]).

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, atomic::AtomicUsize},
    task::{Context, Poll, ready},
};

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit, UdpSocketState},
};
use tokio::{io::Interest, net::UdpSocket};

use crate::amplification::Amplification;

/// Packets that are looked for at first. Each of them costs a header, whether it comes or not.
const FEW: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    amplification: Amplification,
}

impl Socket {
    /// `handshakes` is the number of those that are under way. Call it within the runtime that is to receive.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn new(
        socket: std::net::UdpSocket,
        handshakes: Arc<AtomicUsize>,
    ) -> io::Result<Self> {
        let amplification = Amplification::new(handshakes);
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Self { io: UdpSocket::from_std(socket)?, state, amplification })
    }

    /// Receives what is there. Returns how many buffers are filled, and whether there may be more.
    fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> io::Result<(usize, bool)> {
        let few = FEW.min(buffers.len());
        let (first, rest) = buffers.split_at_mut(few);
        let count = self.state.recv((&self.io).into(), first, metas)?;
        if count < few || rest.is_empty() {
            return Ok((count, count == few));
        }
        let more = self.state.recv((&self.io).into(), rest, &mut metas[few..]).unwrap_or(0);
        Ok((few + more, more == rest.len()))
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let length = self.amplification.allowed(
            transmit.destination,
            transmit.contents,
            transmit.segment_size.unwrap_or(transmit.contents.len()),
        );
        if length == 0 {
            return Ok(());
        }
        let transmit = Transmit { contents: &transmit.contents[..length], ..transmit.clone() };
        self.io.try_io(Interest::WRITABLE, || self.state.send((&self.io).into(), &transmit))
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            let mut received = 0;
            // Without more packets the runtime has to wait for the next one, as if the call had found none.
            let _ = self.io.try_io(Interest::READABLE, || {
                let (count, more) = self.receive(buffers, metas)?;
                received = count;
                if more { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            });
            if received > 0 {
                for (meta, buffer) in metas.iter().zip(buffers.iter()).take(received) {
                    for packet in buffer[..meta.len].chunks(meta.stride.max(1)) {
                        self.amplification.received(meta.addr, packet);
                    }
                }
                return Poll::Ready(Ok(received));
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.state.gro_segments()
    }
}

/// A connection that sends, and may have to wait for room.
struct Writable {
    socket: Arc<Socket>,
    waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").finish_non_exhaustive()
    }
}

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.waiting.is_none() && this.socket.io.try_io(Interest::WRITABLE, || Ok(())).is_ok() {
            return Poll::Ready(Ok(()));
        }
        let socket = &this.socket;
        let waiting = this.waiting.get_or_insert_with(|| {
            let socket = socket.clone();
            Box::pin(async move { socket.io.writable().await })
        });
        let writable = ready!(waiting.as_mut().poll(cx));
        this.waiting = None;
        Poll::Ready(writable)
    }
}
