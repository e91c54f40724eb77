//! Connection ids whose first bit says at which of the two sockets of an address their connection is
//! ([`levada_net::udp`]), and whose second byte says from which secret their reset token comes ([`crate::keys`]).

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::QuicKeys;

/// Long enough that nobody guesses one.
const LENGTH: usize = 8;
const DRAWN: usize = 32 * LENGTH;

/// See the module.
pub(crate) struct MarkedIds {
    socket: u8,
    keys: Arc<ArcSwap<QuicKeys>>,
    random: SystemRandom,
    /// Random bytes for the next ids: one system call brings those of several connections.
    drawn: [u8; DRAWN],
    used: usize,
}

impl MarkedIds {
    /// Ids of connections at the socket of this number, 0 or 1.
    pub(crate) fn at(socket: usize, keys: Arc<ArcSwap<QuicKeys>>) -> Self {
        let (socket, random) = ((socket & 1) as u8, SystemRandom::new());
        Self { socket, keys, random, drawn: [0; DRAWN], used: DRAWN }
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
        id[0] = id[0] & !1 | self.socket;
        self.keys.load().mark(&mut id);
        ConnectionId::new(&id)
    }

    /// A packet for another id gets no reset.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if self.keys.load().know(id) { Ok(()) } else { Err(InvalidCid) }
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
            let mut ids = MarkedIds::at(socket, Arc::default());
            let many: Vec<_> = (0..100).map(|_| ids.generate_cid()).collect();
            assert!(many.iter().all(|id| id.len() == LENGTH && id[0] & 1 == socket as u8));
            assert_eq!(many.iter().collect::<HashSet<_>>().len(), many.len());
        }
    }
}
