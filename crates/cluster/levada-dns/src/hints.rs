//! The addresses of chosen nodes, as records.

use crate::{
    route::{Family, NodeState},
    wire::{Records, kind},
};

/// The addresses of nodes.
#[derive(Default)]
pub(crate) struct Hints {
    v4: Vec<u8>,
    v6: Vec<u8>,
}

/// Keys of parameters (RFC 9460 Sec. 14.3.2).
const ALPN: u16 = 1;
const IPV4: u16 = 4;
const IPV6: u16 = 6;

impl Hints {
    /// Removes all, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.v4.clear();
        self.v6.clear();
    }

    /// Adds the addresses of nodes.
    pub(crate) fn add<'n>(&mut self, nodes: impl Iterator<Item = &'n NodeState>, family: Family) {
        for node in nodes {
            match family {
                Family::V4 => node.v4.iter().for_each(|address| self.v4.extend(address.octets())),
                Family::V6 => node.v6.iter().for_each(|address| self.v6.extend(address.octets())),
            }
        }
    }

    /// Writes records of a type, if there are addresses.
    pub(crate) fn write(&self, of: u16, alpn: &[u8], records: &mut Records) {
        match of {
            kind::HTTPS if self.v4.is_empty() && self.v6.is_empty() => {}
            kind::HTTPS => records.push(&self.https(alpn)),
            kind::A => self.v4.chunks(4).for_each(|address| records.push(address)),
            _ => self.v6.chunks(16).for_each(|address| records.push(address)),
        }
    }

    /// Priority 1 at the same name, with the protocols, and the addresses for clients that have not asked for them yet
    /// (RFC 9460 Sec. 2.2 and 7.3).
    fn https(&self, alpn: &[u8]) -> Vec<u8> {
        let mut data = vec![0, 1, 0];
        for (key, value) in [(ALPN, alpn), (IPV4, &self.v4), (IPV6, &self.v6)] {
            if !value.is_empty() {
                data.extend_from_slice(&key.to_be_bytes());
                data.extend_from_slice(&(value.len() as u16).to_be_bytes());
                data.extend_from_slice(value);
            }
        }
        data
    }
}
