//! Connection ids whose first bit says at which of the two sockets of an address their connection is
//! ([`levada_net::udp`]).

use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Long enough that nobody guesses one.
const LENGTH: usize = 8;
const DRAWN: usize = 32 * LENGTH;

/// See the module.
pub(crate) struct MarkedIds {
    mark: u8,
    random: SystemRandom,
    /// Random bytes for the next ids: one system call brings those of several connections.
    drawn: [u8; DRAWN],
    used: usize,
}

impl MarkedIds {
    /// Ids of connections at the socket of this number, 0 or 1.
    pub(crate) fn at(socket: usize) -> Self {
        let random = SystemRandom::new();
        Self { mark: (socket & 1) as u8, random, drawn: [0; DRAWN], used: DRAWN }
    }
}

impl ConnectionIdGenerator for MarkedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        if self.used == DRAWN {
            // Without randomness no handshake would have come this far.
            let _ = self.random.fill(&mut self.drawn);
            self.used = 0;
        }
        let mut id = [0; LENGTH];
        id.copy_from_slice(&self.drawn[self.used..self.used + LENGTH]);
        self.used += LENGTH;
        id[0] = id[0] & !1 | self.mark;
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_tell_their_socket_and_differ() {
        for socket in [0, 1] {
            let mut ids = MarkedIds::at(socket);
            let many: Vec<_> = (0..100).map(|_| ids.generate_cid()).collect();
            assert!(many.iter().all(|id| id.len() == LENGTH && id[0] & 1 == socket as u8));
            assert_eq!(many.iter().collect::<HashSet<_>>().len(), many.len());
        }
    }
}
