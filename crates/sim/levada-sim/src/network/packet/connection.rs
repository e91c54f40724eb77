//! One connection, from the client's first packet to the server's last acknowledgement.
//!
//! The network reports arrivals and timeouts to it, and polls it for packets to send
//! ([`Connection::poll`]) and for events of the world ([`Connection::poll_event`]).

use levada_topology::{
    calendar::NEVER,
    tcp::{HEADER, Receiver, Reply, Sender, TcpSettings, Timeout},
};

use super::{Packet, PacketKind, paths::PacketPath};

/// A connection: see the module.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) way: PacketPath,
    /// The world's number of the transfer.
    pub(super) transfer: u32,
    /// Distinguishes it from earlier connections with the same number.
    pub(super) generation: u32,
    /// Packets under way. The number is used again only when there are none.
    pub(super) packets: u32,
    /// The time of its timer; [`NEVER`] for none.
    pub(super) timer_at: u64,
    /// When the client received the first segment.
    pub(super) first_byte_at: u64,
    stage: ConnectionState,
    wants: Wants,
    event: Option<ConnectionEvent>,
    sender: Sender,
    receiver: Receiver,
    /// Bytes of the response: in all, and ready.
    total: u64,
    ready: u64,
    /// The segment to retransmit at once.
    again: Option<u32>,
    /// The client's retransmissions: of SYN and request.
    client: Timeout,
    client_deadline: u64,
    /// When the client sent SYN and when the server answered; [`NEVER`] if either packet or its
    /// answer was sent twice.
    syn_at: u64,
    syn_ack_at: u64,
    /// The deadline of a delayed acknowledgement.
    ack_deadline: u64,
}

/// The state of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionState {
    /// The client has sent SYN.
    Opening,
    /// The server has answered.
    HalfOpen,
    /// The client has sent its request.
    Requesting,
    /// The server has the request.
    Requested,
    /// The client has everything.
    Received,
    /// The server has the last acknowledgement.
    Over,
}

/// Packets to send that no window limits.
#[derive(Clone, Copy, Debug, Default)]
struct Wants {
    syn: bool,
    syn_ack: bool,
    request: bool,
    request_ack: bool,
    ack: bool,
}

/// An event for the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEvent {
    Request,
    LastByte,
    Acknowledged,
}

impl Connection {
    pub(super) fn new(transfer: u32, generation: u32, way: PacketPath) -> Self {
        Self {
            way,
            transfer,
            generation,
            packets: 0,
            timer_at: NEVER,
            first_byte_at: NEVER,
            stage: ConnectionState::Opening,
            wants: Wants::default(),
            event: None,
            sender: Sender::idle(),
            receiver: Receiver::default(),
            total: 0,
            ready: 0,
            again: None,
            client: Timeout::default(),
            client_deadline: NEVER,
            syn_at: 0,
            syn_ack_at: 0,
            ack_deadline: NEVER,
        }
    }

    /// The client opens it, or sends its request where the connection is there.
    pub(super) fn begin(&mut self, now: u64, persistent: bool, settings: &TcpSettings) {
        if persistent {
            self.stage = ConnectionState::Requesting;
            self.wants.request = true;
            self.syn_ack_at = NEVER;
        } else {
            self.wants.syn = true;
            self.syn_at = now;
        }
        self.await_answer(now, settings);
    }

    /// The server has `bytes` more of `total` ready.
    pub(super) fn ready(&mut self, bytes: u64, total: u64, settings: &TcpSettings) {
        self.total = total;
        self.ready += bytes;
        let segment = u64::from(settings.segment);
        let segments = total.div_ceil(segment).max(1);
        let ready = if self.ready >= total { segments } else { self.ready / segment };
        // Segment numbers have 32 bits, enough for two terabytes.
        self.sender.segments = segments.min(u64::from(u32::MAX - 1)) as u32;
        self.sender.ready = (ready as u32).min(self.sender.segments);
    }

    /// Handles a packet that arrives.
    pub(super) fn receive(&mut self, packet: Packet, now: u64, settings: &TcpSettings) {
        if self.is_over() {
            return;
        }
        match packet.kind {
            PacketKind::Syn => {
                // A SYN is answered each time it arrives.
                if self.stage <= ConnectionState::HalfOpen {
                    self.wants.syn_ack = true;
                    self.syn_ack_at =
                        if self.stage == ConnectionState::Opening { now } else { NEVER };
                    self.stage = ConnectionState::HalfOpen;
                }
            }
            PacketKind::SynAck => {
                if self.stage == ConnectionState::HalfOpen {
                    if self.syn_at != NEVER {
                        self.client.sample(now - self.syn_at);
                    }
                    self.stage = ConnectionState::Requesting;
                    self.wants.request = true;
                    self.await_answer(now, settings);
                }
            }
            PacketKind::Request => {
                self.wants.request_ack = true;
                if self.stage == ConnectionState::Requesting {
                    let sent_once = self.syn_ack_at != NEVER;
                    let round_trip = sent_once.then(|| now - self.syn_ack_at);
                    self.sender = Sender::new(round_trip, settings);
                    self.stage = ConnectionState::Requested;
                    self.event = Some(ConnectionEvent::Request);
                }
            }
            PacketKind::RequestAck => self.client_deadline = NEVER,
            PacketKind::Data => self.receive_segment(packet.number, now, settings),
            PacketKind::Ack => {
                self.again = self.sender.acknowledge(packet.number, now, settings);
                if self.sender.is_done() {
                    self.stage = ConnectionState::Over;
                    self.event = Some(ConnectionEvent::Acknowledged);
                }
            }
        }
    }

    /// Handles the timer.
    pub(super) fn time_out(&mut self, now: u64, settings: &TcpSettings) {
        if now >= self.client_deadline {
            self.client.double();
            if self.stage <= ConnectionState::HalfOpen {
                self.wants.syn = true;
                self.syn_at = NEVER;
            } else {
                self.wants.request = true;
                self.syn_ack_at = NEVER;
            }
            self.await_answer(now, settings);
        }
        if now >= self.ack_deadline {
            self.ack_deadline = NEVER;
            if self.receiver.owes() {
                self.receiver.acknowledge();
                self.wants.ack = true;
            }
        }
        if now >= self.sender.deadline {
            self.sender.time_out(now, settings);
        }
    }

    /// The next packet to send: kind, number, bytes with headers.
    #[inline]
    pub(super) fn poll(
        &mut self,
        now: u64,
        settings: &TcpSettings,
    ) -> Option<(PacketKind, u32, u16)> {
        if self.stage == ConnectionState::Requested || self.stage == ConnectionState::Received {
            let segment = self.again.take().or_else(|| self.sender.poll(now, settings));
            if let Some(number) = segment {
                return Some((PacketKind::Data, number, self.segment_bytes(number, settings)));
            }
        }
        let bare = HEADER as u16;
        let wants = &mut self.wants;
        if std::mem::take(&mut wants.ack) {
            return Some((PacketKind::Ack, self.receiver.expected, bare));
        }
        if std::mem::take(&mut wants.syn) {
            return Some((PacketKind::Syn, 0, bare));
        }
        if std::mem::take(&mut wants.syn_ack) {
            return Some((PacketKind::SynAck, 0, bare));
        }
        if std::mem::take(&mut wants.request) {
            return Some((PacketKind::Request, 0, (HEADER + settings.request) as u16));
        }
        std::mem::take(&mut wants.request_ack).then_some((PacketKind::RequestAck, 0, bare))
    }

    /// The next event for the world.
    pub(super) fn poll_event(&mut self) -> Option<ConnectionEvent> {
        self.event.take()
    }

    /// The time of the next timer.
    pub(super) fn deadline(&self) -> u64 {
        if self.stage == ConnectionState::Over {
            return NEVER;
        }
        self.client_deadline.min(self.sender.deadline).min(self.ack_deadline)
    }

    /// Whether the connection is over, except for packets under way.
    pub(super) fn is_over(&self) -> bool {
        self.stage == ConnectionState::Over
    }

    /// Bytes of the response that the client has in order.
    pub(super) fn received(&self, settings: &TcpSettings) -> u64 {
        (u64::from(self.receiver.expected) * u64::from(settings.segment)).min(self.total)
    }

    /// Both ends forget the connection.
    pub(super) fn abort(&mut self) {
        self.stage = ConnectionState::Over;
        self.wants = Wants::default();
        self.event = None;
        self.again = None;
    }

    fn receive_segment(&mut self, number: u32, now: u64, settings: &TcpSettings) {
        self.first_byte_at = self.first_byte_at.min(now);
        // The end that answers has received the request.
        self.client_deadline = NEVER;
        let last = number + 1 == self.sender.segments;
        match self.receiver.take(number, last, settings) {
            Reply::Now => {
                self.wants.ack = true;
                self.ack_deadline = NEVER;
            }
            Reply::Later => {
                self.ack_deadline = self.ack_deadline.min(now + settings.ack_delay);
            }
        }
        let everything = self.ready >= self.total && self.receiver.expected == self.sender.segments;
        if everything && self.stage == ConnectionState::Requested {
            self.stage = ConnectionState::Received;
            self.event = Some(ConnectionEvent::LastByte);
        }
    }

    fn segment_bytes(&self, number: u32, settings: &TcpSettings) -> u16 {
        let before = u64::from(number) * u64::from(settings.segment);
        let payload = (self.total - before.min(self.total)).min(u64::from(settings.segment));
        (payload as u32 + HEADER) as u16
    }

    fn await_answer(&mut self, now: u64, settings: &TcpSettings) {
        self.client_deadline =
            now + self.client.length(settings.first_timeout, settings.least_timeout);
    }
}
