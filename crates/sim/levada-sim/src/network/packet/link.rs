//! One direction of a link: a queue, a transmitter and a wire.
//!
//! ```text
//! packet --> [ waiting, at most `limit` ] --> transmitter, a packet at a time --> wire, `latency` --> other end
//! ```
//!
//! Packets leave in the order in which they came, so a packet's arrival time at the other end is known when
//! it enters: a packet costs one event per link, not one per stage. A ring holds them, from the next arrival
//! to the last packet that entered.

use super::Packet;

/// A direction of a link: see the module.
#[derive(Debug)]
pub(super) struct Link {
    /// The ring; its length is a power of two.
    ring: Vec<UnderWay>,
    head: u32,
    count: u32,
    /// Number of packets at the front of the ring that are known to have left the transmitter.
    sent: u32,
    /// Packets that may wait, not counting the one that is transmitted.
    limit: u32,
    /// The time at which the transmitter has sent all packets in the queue.
    free_at: u64,
    latency: u64,
    /// Transmission time of a byte, in 2^-[`FRACTION`] ns.
    per_byte: u64,
    /// Bytes that entered so far.
    pub(super) carried: u64,
    /// Packets that found the queue full.
    pub(super) dropped: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    arrives: u64,
    packet: Packet,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dropped;

const FRACTION: u32 = 20;
const SMALLEST_RING: usize = 4;

impl Link {
    pub(super) fn new(latency_ns: u64, bits_per_second: u64, queue_packets: u32) -> Self {
        let byte_ns = 8_000_000_000_u64;
        Self {
            ring: vec![UnderWay::default(); SMALLEST_RING],
            head: 0,
            count: 0,
            sent: 0,
            limit: queue_packets,
            free_at: 0,
            latency: latency_ns,
            per_byte: (byte_ns << FRACTION) / bits_per_second.max(1),
            carried: 0,
            dropped: 0,
        }
    }

    /// Transmission time of a packet of `bytes`, in ns.
    pub(super) fn transmission(&self, bytes: u16) -> u64 {
        ((u128::from(bytes) * u128::from(self.per_byte)) >> FRACTION) as u64
    }

    /// Adds `packet` at `now`, or drops it if the queue is full. Returns true when it is the only
    /// packet, so that its arrival is the next one.
    #[inline]
    pub(super) fn send(&mut self, packet: Packet, now: u64) -> Result<bool, Dropped> {
        // One packet is at the transmitter; the other unsent packets wait.
        if self.count - self.sent > self.limit && self.unsent(now) > self.limit {
            self.dropped += 1;
            return Err(Dropped);
        }
        self.carried += u64::from(packet.bytes);
        self.free_at = self.free_at.max(now) + self.transmission(packet.bytes);
        if self.count as usize == self.ring.len() {
            self.grow();
        }
        let place = self.place(self.count);
        self.ring[place] = UnderWay { arrives: self.free_at + self.latency, packet };
        self.count += 1;
        Ok(self.count == 1)
    }

    /// The next arrival at the other end; `u64::MAX` when no packet is under way.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        if self.count == 0 { u64::MAX } else { self.ring[self.place(0)].arrives }
    }

    /// Takes the next packet to arrive, and returns the arrival time of the one after it.
    ///
    /// # Panics
    /// When none is under way.
    #[inline]
    pub(super) fn receive(&mut self) -> (Packet, u64) {
        assert!(self.count > 0, "only links with something under way come up");
        let packet = self.ring[self.place(0)].packet;
        self.head = self.place(1) as u32;
        self.count -= 1;
        self.sent = self.sent.saturating_sub(1);
        (packet, self.next())
    }

    /// Number of packets that have not left the transmitter at `now`. Each packet is examined once.
    fn unsent(&mut self, now: u64) -> u32 {
        while self.sent < self.count {
            let left = self.ring[self.place(self.sent)].arrives - self.latency;
            if left > now {
                break;
            }
            self.sent += 1;
        }
        self.count - self.sent
    }

    fn place(&self, number: u32) -> usize {
        (self.head + number) as usize & (self.ring.len() - 1)
    }

    /// Doubles the ring, with the packets in order from its beginning.
    #[cold]
    fn grow(&mut self) {
        let mut ring = Vec::with_capacity(self.ring.len() * 2);
        ring.extend((0..self.count).map(|number| self.ring[self.place(number)]));
        ring.resize(self.ring.len() * 2, UnderWay::default());
        self.ring = ring;
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use levada_types::Rng;

    use super::*;

    fn packet(number: u32, bytes: u16) -> Packet {
        Packet { number, bytes, ..Packet::default() }
    }

    /// 8 Mbit/s: a byte takes a microsecond.
    fn link(latency_ns: u64, queue_packets: u32) -> Link {
        Link::new(latency_ns, 8_000_000, queue_packets)
    }

    #[test]
    fn a_packet_takes_its_transmission_and_the_latency() {
        let mut link = link(5_000, 10);
        assert_eq!(link.send(packet(1, 100), 0), Ok(true));
        assert_eq!(link.next(), 100_000 + 5_000);
        // The second waits for the first; the third does not wait.
        assert_eq!(link.send(packet(2, 50), 30_000), Ok(false));
        assert_eq!(link.receive().0.number, 1);
        assert_eq!(link.next(), 150_000 + 5_000);
        assert_eq!(link.receive().0.number, 2);
        assert_eq!(link.next(), u64::MAX);
        assert_eq!(link.send(packet(3, 10), 400_000), Ok(true));
        assert_eq!((link.next(), link.carried), (415_000, 160));
    }

    #[test]
    fn a_full_queue_drops_what_comes_last() {
        let mut link = link(1_000_000, 3);
        // One packet is transmitted, three wait.
        for number in 0..4 {
            assert!(link.send(packet(number, 10), 0).is_ok());
        }
        assert_eq!(link.send(packet(4, 10), 9_999), Err(Dropped));
        // At 10 us the first has left, although it is still on the wire: a place is free.
        assert!(link.send(packet(5, 10), 10_000).is_ok());
        assert_eq!(link.send(packet(6, 10), 10_000), Err(Dropped));
        let received: Vec<u32> = (0..5).map(|_| link.receive().0.number).collect();
        assert_eq!((received, link.dropped), (vec![0, 1, 2, 3, 5], 2));
    }

    /// Simulates random arrivals of packets of a fixed size: M/D/1/K with K = `limit` + 1 places.
    /// Returns the share of dropped packets and the part of the time that the link transmits.
    fn poisson(load: f64, limit: u32) -> (f64, f64) {
        let mut link = link(0, limit);
        let mut rng = Rng::new(3);
        let (mut now, packets) = (0.0_f64, 2_000_000_u64);
        for _ in 0..packets {
            now += rng.exponential() * 1_000.0 / load;
            while link.next() <= now as u64 {
                link.receive();
            }
            let _ = link.send(packet(0, 1), now as u64);
        }
        (link.dropped as f64 / packets as f64, link.carried as f64 * 1_000.0 / now)
    }

    #[test]
    fn losses_of_a_full_queue_are_those_of_the_closed_form() {
        for (load, limit) in [(0.8, 2), (1.0, 4), (1.5, 4), (0.9, 9)] {
            let (lost, busy) = poisson(load, limit);
            let expected = m_d_1_k_loss(load, limit as usize + 1);
            assert!((lost / expected - 1.0).abs() < 0.03, "{load} {limit}: {lost}, not {expected}");
            // Packets that are not lost are carried.
            assert!((busy - load * (1.0 - expected)).abs() < 0.005, "{load} {limit}: {busy}");
        }
    }

    /// Loss of M/D/1/K by its embedded chain at departures (Gross and Harris, Sec. 5.1.8): with the
    /// stationary shares q_j left behind, the loss is 1 - 1 / (q_0 + load).
    fn m_d_1_k_loss(load: f64, places: usize) -> f64 {
        let mut poisson = vec![(-load).exp()];
        for n in 1..places {
            let before = poisson[n - 1];
            poisson.push(before * load / n as f64);
        }
        // Balance: q_j = q_0 a_j + sum over i from 1 to j + 1 of q_i a_(j + 1 - i).
        let mut shares = vec![1.0];
        for j in 0..places - 1 {
            let others: f64 = (1..=j).map(|i| shares[i] * poisson[j + 1 - i]).sum();
            let next = (shares[j] - shares[0] * poisson[j] - others) / poisson[0];
            shares.push(next);
        }
        let sum: f64 = shares.iter().sum();
        1.0 - 1.0 / (shares[0] / sum + load)
    }

    #[test]
    fn rings_grow_without_losing_order() {
        let mut link = link(1_000_000_000, 1_000);
        for number in 0..3 {
            assert!(link.send(packet(number, 1), 0).is_ok());
        }
        assert_eq!(link.receive().0.number, 0);
        for number in 3..500 {
            assert!(link.send(packet(number, 1), 0).is_ok());
        }
        assert!((1..500).all(|number| link.receive().0.number == number));
    }

    #[test]
    fn slow_and_fast_links_keep_time() {
        assert_eq!(Link::new(0, 1, 1).transmission(1500), 12_000_000_000_000);
        // 576 bytes at OC-48.
        assert_eq!(Link::new(0, 2_488_000_000, 1).transmission(576), 1_852);
    }
}
