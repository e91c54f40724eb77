//! The costs of serving, as in Logsim (OSDI'02 Sec. 4.1, ASPLOS'98 Sec. 3.1): a Pentium II of 300
//! MHz with Flash on FreeBSD, and its disk.

use crate::scenario::Servers;

/// Costs in nanoseconds, for CPU and disk of the speeds that a scenario gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Establishing a connection; taking it down costs the same again.
    pub(crate) connection: u64,
    transmit: u64,
    seek: u64,
    further_seek: u64,
    transfer: u64,
}

/// The unit of reading and transmitting: reading the next block overlaps with transmitting this
/// one.
pub(crate) const BLOCK: u64 = 44 << 10;

const TRANSMIT_UNIT: u64 = 512;
const TRANSFER_UNIT: u64 = 4 << 10;

impl Cost {
    /// The costs of server `number` after all speeds have moved on by `moves` servers.
    pub(crate) fn new(servers: &Servers, number: usize, moves: usize) -> Self {
        let from = (number + servers.count - moves % servers.count) % servers.count;
        let own = servers.speeds.get(from).copied().unwrap_or(1.0);
        let at =
            |microseconds: f64, speed: f64| (microseconds * 1e3 / (speed * own)).round() as u64;
        let (seek, further_seek) = match servers.disk_latency {
            // The first read of a file brings what follows it.
            Some(latency) => (at(latency.0.as_secs_f64() * 1e6, 1.0), 0),
            None => (at(28_000.0, servers.disk), at(14_000.0, servers.disk)),
        };
        let transfer = servers.disk_bytes_per_second.map_or_else(
            || at(410.0, servers.disk),
            |rate| at(TRANSFER_UNIT as f64 * 1e6 / rate as f64, 1.0),
        );
        Self {
            connection: at(145.0, servers.cpu),
            transmit: at(40.0, servers.cpu),
            seek,
            further_seek,
            transfer,
        }
    }

    /// CPU time for transmitting a block.
    pub(crate) fn transmit(&self, bytes: u64) -> u64 {
        bytes.div_ceil(TRANSMIT_UNIT) * self.transmit
    }

    /// Disk time for reading block `number` of a file, which has `bytes`.
    pub(crate) fn read(&self, number: u32, bytes: u64) -> u64 {
        let seek = if number == 0 { self.seek } else { self.further_seek };
        seek + bytes.div_ceil(TRANSFER_UNIT) * self.transfer
    }

    /// Disk time for writing a file behind the last one: nothing is sought.
    pub(crate) fn write(&self, bytes: u64) -> u64 {
        bytes.div_ceil(TRANSFER_UNIT) * self.transfer
    }
}

/// Number of blocks of a file; an empty file has one block.
pub(crate) fn blocks(size: u64) -> u32 {
    u32::try_from(size.div_ceil(BLOCK).max(1)).unwrap_or(u32::MAX)
}

/// The bytes of block `number` of a file.
pub(crate) fn block_bytes(size: u64, number: u32) -> u64 {
    (size - u64::from(number) * BLOCK).min(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_kilobytes_from_memory_are_served_1075_times_a_second() {
        let cost = Cost::new(&Servers::default(), 0, 0);
        let all = 2 * cost.connection + cost.transmit(8 << 10);
        assert_eq!(1_000_000_000 / all, 1075);
    }

    #[test]
    fn long_files_cost_a_further_seek_per_block() {
        let cost = Cost::new(&Servers::default(), 0, 0);
        let size = 100 << 10;
        assert_eq!(blocks(size), 3);
        let read: u64 = (0..3).map(|n| cost.read(n, block_bytes(size, n))).sum();
        assert_eq!(read, (28_000 + 2 * 14_000 + 25 * 410) * 1000);
        assert_eq!((blocks(0), block_bytes(0, 0)), (1, 0));
    }
}
