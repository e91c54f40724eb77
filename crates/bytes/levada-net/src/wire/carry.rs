//! The thread that carries the packets of a wire.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, Release},
        },
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll},
    io::{read, write},
    thread::set_current_timer_slack,
};

use super::{Fate, Meter, Shape, Stage};
use crate::lab::Tun;

/// One end of a wire: a host's device, and the shapes of its two directions.
pub struct End {
    /// The device.
    pub tun: Tun,
    /// The addresses that packets to this end have. With two ends they do not matter. With more,
    /// packets to an unknown address go to the end without addresses, if there is one.
    pub addresses: Vec<IpAddr>,
    /// The shape for packets that the host sends.
    pub up: Shape,
    /// The shape for packets that the host receives.
    pub down: Shape,
}

/// A wire in use; dropping it cuts it.
pub struct Wire {
    meters: Vec<[Arc<Meter>; 2]>,
    over: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Connects `ends`. The seed determines all random choices.
    ///
    /// # Errors
    /// When the system cannot start a thread or open a descriptor.
    pub fn join(ends: Vec<End>, seed: u64) -> io::Result<Self> {
        let meters: Vec<_> = ends.iter().map(|_| [(); 2].map(|()| Arc::default())).collect();
        let over = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let arrivals = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (end, index) in ends.iter().zip(0..) {
            let data = epoll::EventData::new_u64(index);
            epoll::add(&arrivals, &end.tun, data, epoll::EventFlags::IN)?;
        }
        let carrier = Carrier {
            start: Instant::now(),
            arrivals,
            ends: ends
                .into_iter()
                .zip(&meters)
                .zip(0..)
                .map(|((end, [up, down]), index)| Port {
                    tun: end.tun,
                    addresses: end.addresses,
                    up: MeteredStage::new(end.up, seed.wrapping_add(2 * index), up),
                    down: MeteredStage::new(end.down, seed.wrapping_add(2 * index + 1), down),
                })
                .collect(),
            buffer: vec![0; LARGEST_PACKET],
        };
        let (stop, waker) = (over.clone(), wake.clone());
        let thread = std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn(move || carrier.run(&stop, &waker))?;
        Ok(Self { meters, over, wake, thread: Some(thread) })
    }

    /// The meter for packets that the `end`-th host sends.
    pub fn up(&self, end: usize) -> &Arc<Meter> {
        &self.meters[end][0]
    }

    /// The meter for packets that the `end`-th host receives.
    pub fn down(&self, end: usize) -> &Arc<Meter> {
        &self.meters[end][1]
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Carrier {
    start: Instant,
    ends: Vec<Port>,
    /// Reports which ends have packets: a wire may have many ends, and few of them are active at a
    /// time.
    arrivals: OwnedFd,
    buffer: Vec<u8>,
}

struct Port {
    tun: Tun,
    addresses: Vec<IpAddr>,
    up: MeteredStage,
    down: MeteredStage,
}

/// A stage and its meter.
struct MeteredStage {
    stage: Stage,
    meter: Arc<Meter>,
}

impl Carrier {
    fn run(mut self, over: &AtomicBool, wake: &OwnedFd) {
        // A packet that is due within this time is delivered at once. If the slack cannot be set,
        // this only costs more CPU time.
        let _ = set_current_timer_slack(NonZeroU64::new(SLACK.as_nanos() as u64));
        let mut ready = Vec::with_capacity(self.ends.len());
        while !over.load(Relaxed) {
            self.wait(wake, &mut ready);
            for event in ready.drain(..) {
                self.collect(event.data.u64() as usize);
            }
            self.deliver();
        }
    }

    /// Waits for a packet, or until one is due; returns the ends that have packets.
    fn wait(&self, wake: &OwnedFd, ready: &mut Vec<epoll::Event>) {
        let due = self.ends.iter().flat_map(|end| [end.up.stage.next(), end.down.stage.next()]);
        let timeout = due.flatten().min().map(|due| due.saturating_sub(self.start.elapsed()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Unlike epoll, this wait is exact to less than a millisecond everywhere.
        let mut fds = [&self.arrivals, wake].map(|fd| PollFd::new(fd, PollFlags::IN));
        // An interruption only causes an extra check.
        let _ = poll(&mut fds, timeout.as_ref());
        if fds[0].revents().contains(PollFlags::IN) {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let _ = epoll::wait(&self.arrivals, spare_capacity(ready), Some(&at_once));
        }
    }

    /// Reads the packets that a host has sent.
    fn collect(&mut self, from: usize) {
        for _ in 0..BATCH {
            let Ok(length @ 1..) = read(&self.ends[from].tun, &mut self.buffer) else { return };
            let (packet, now) = (self.buffer[..length].to_vec(), self.start.elapsed());
            self.ends[from].up.pass(packet, now);
        }
    }

    /// Delivers all packets that are due, in order of time within each direction.
    fn deliver(&mut self) {
        for from in 0..self.ends.len() {
            while let Some((at, packet)) = self.ends[from].up.take(self.start.elapsed()) {
                if let Some(to) = self.destination(from, &packet) {
                    self.ends[to].down.pass(packet, at);
                }
            }
        }
        for end in &mut self.ends {
            while let Some((_, packet)) = end.down.take(self.start.elapsed()) {
                // A device that is down accepts nothing: the packet is lost, as on a real wire.
                let _ = write(&end.tun, &packet);
            }
        }
    }

    fn destination(&self, from: usize, packet: &[u8]) -> Option<usize> {
        if self.ends.len() == 2 {
            return Some(1 - from);
        }
        let address = destination_of(packet)?;
        let owner = self.ends.iter().position(|end| end.addresses.contains(&address));
        owner.or_else(|| self.ends.iter().position(|end| end.addresses.is_empty()))
    }
}

impl MeteredStage {
    fn new(shape: Shape, seed: u64, meter: &Arc<Meter>) -> Self {
        Self { stage: Stage::new(shape, seed), meter: meter.clone() }
    }

    fn pass(&mut self, packet: Vec<u8>, now: Duration) {
        // Read before the packet is counted: a cut holds for every packet that was counted during it.
        let is_cut = self.meter.is_cut();
        self.meter.packets.fetch_add(1, Release);
        if is_cut {
            return;
        }
        match self.stage.offer_at(packet, now, self.meter.slower()) {
            Fate::Taken => {}
            Fate::Lost => drop(self.meter.lost.fetch_add(1, Relaxed)),
            Fate::Overflowed => drop(self.meter.overflowed.fetch_add(1, Relaxed)),
        }
        self.meter.queued.store(self.stage.queued(now) as u64, Relaxed);
    }

    fn take(&mut self, now: Duration) -> Option<(Duration, Vec<u8>)> {
        let taken = self.stage.take(now);
        if let Some((_, packet)) = &taken {
            self.meter.bytes.fetch_add(packet.len() as u64, Relaxed);
            self.meter.queued.store(self.stage.queued(now) as u64, Relaxed);
        }
        taken
    }
}

/// The destination of an IP packet (RFC 791 Sec. 3.1, RFC 8200 Sec. 3).
fn destination_of(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(Ipv4Addr::from(address).into())
        }
        6 => {
            let address: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(Ipv6Addr::from(address).into())
        }
        _ => None,
    }
}

/// How late a timer may be, so that one wake-up handles several packets.
const SLACK: Duration = Duration::from_micros(200);
/// The most packets that are read from one host before the others have their turn.
const BATCH: usize = 64;
/// Large enough for any MTU of the device.
const LARGEST_PACKET: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_by_their_destination() {
        let mut packet = vec![0u8; 20];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 0, 0, 7]);
        assert_eq!(destination_of(&packet), Some(IpAddr::from([10, 0, 0, 7])));
        assert_eq!(destination_of(&packet[..19]), None);
        assert_eq!(destination_of(&[]), None);
        assert_eq!(destination_of(&[0x60; 40]), Some(IpAddr::from([0x60; 16])));
    }
}
