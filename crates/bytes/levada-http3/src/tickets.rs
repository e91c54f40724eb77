//! Sessions that clients resume: at this node with early data, at the others without.
//!
//! Early data needs a record of the sessions that were used (RFC 8446 Sec. 8.1), so rustls gives it for sessions that the
//! node keeps only: a ticket is their number. Here a ticket is the number, and the session behind it, sealed by the keys of
//! session tickets that all nodes have. A node that does not keep the session opens the sealed one, whose age is wrong, so
//! that rustls resumes it without its early data.
//!
//! ```text
//! ticket = number at the node that made it (32) | sealed session
//! ```

use std::sync::Arc;

use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};

/// Sessions that a node keeps, each with early data once.
const SESSIONS: usize = 4096;
/// The bytes of a number.
const NUMBER: usize = 32;
/// The end of a session, as rustls writes it: seconds of Unix time (8), and an offset (4).
const TIMES: usize = 12;
const OFFSET: usize = 4;

/// The type of the message (RFC 8446 Sec. 4), and the bytes of it before the nonce: type, length, lifetime, age.
const NEW_SESSION_TICKET: u8 = 4;
const BEFORE_NONCE: usize = 4 + 4 + 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sessions {
    kept: Arc<ServerSessionMemoryCache>,
    sealing: Arc<dyn ProducesTickets>,
}

impl Sessions {
    /// No sessions yet; `sealing` makes tickets that other nodes read.
    pub(crate) fn new(sealing: Arc<dyn ProducesTickets>) -> Self {
        Self { kept: ServerSessionMemoryCache::new(SESSIONS), sealing }
    }

    /// Adds the sealed session to each ticket in messages of a handshake, which are whole.
    pub(crate) fn seal_tickets(&self, messages: &mut Vec<u8>) {
        let (mut at, mut done) = (0, Vec::new());
        while let Some(length) = messages.get(at + 1..at + 4).map(number) {
            let Some(message) = messages.get(at..at + 4 + length) else { break };
            let ticket = (message[0] == NEW_SESSION_TICKET).then(|| self.sealed(message));
            match ticket.flatten() {
                Some(longer) => done.extend(longer),
                None => done.extend_from_slice(message),
            }
            at += 4 + length;
        }
        // Anything else stays as it is.
        done.extend_from_slice(&messages[at..]);
        *messages = done;
    }

    /// The same message with the longer ticket; `None` without a session or a key.
    fn sealed(&self, message: &[u8]) -> Option<Vec<u8>> {
        let nonce = usize::from(*message.get(BEFORE_NONCE)?);
        let at = BEFORE_NONCE + 1 + nonce;
        let length = number(message.get(at..at + 2)?);
        let (head, rest) = message.split_at_checked(at + 2)?;
        let (ticket, extensions) = rest.split_at_checked(length)?;
        let mut session = self.kept.get(ticket)?;
        let end = session.len();
        // It was made in 1970: rustls takes early data of the last minute only.
        session.get_mut(end.checked_sub(TIMES)?..end - OFFSET)?.fill(0);
        let sealed = self.sealing.encrypt(&session)?;
        let ticket = [ticket, &sealed].concat();
        let mut longer = [&head[..at], &u16::try_from(ticket.len()).ok()?.to_be_bytes()].concat();
        longer.extend([&ticket, extensions].concat());
        let length = u32::try_from(longer.len() - 4).ok().filter(|length| length >> 24 == 0)?;
        longer[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
        Some(longer)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, number: Vec<u8>, session: Vec<u8>) -> bool {
        self.kept.put(number, session)
    }

    fn get(&self, number: &[u8]) -> Option<Vec<u8>> {
        self.kept.get(number)
    }

    /// The session of a ticket.
    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (number, sealed) = ticket.split_at_checked(NUMBER)?;
        self.kept.take(number).or_else(|| self.sealing.decrypt(sealed))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reverses what it seals.
    #[derive(Debug)]
    struct Reversed;

    impl ProducesTickets for Reversed {
        fn enabled(&self) -> bool {
            true
        }

        fn lifetime(&self) -> u32 {
            1
        }

        fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
            Some(plain.iter().rev().copied().collect())
        }

        fn decrypt(&self, sealed: &[u8]) -> Option<Vec<u8>> {
            self.encrypt(sealed).filter(|plain| !plain.is_empty())
        }
    }

    /// A message with this ticket.
    fn message(ticket: &[u8]) -> Vec<u8> {
        let mut body = vec![7; 8];
        body.extend([2, 8, 8]);
        body.extend((ticket.len() as u16).to_be_bytes());
        body.extend(ticket);
        body.extend([0, 0]);
        [&[NEW_SESSION_TICKET, 0, 0, body.len() as u8], &body[..]].concat()
    }

    #[test]
    fn ticket_has_the_session_for_other_nodes_with_another_age() {
        let [node, other] = [(); 2].map(|()| Sessions::new(Arc::new(Reversed)));
        let (number, session) = (vec![9; NUMBER], b"session 12345678oooo".to_vec());
        node.put(number.clone(), session.clone());
        let unknown = message(&[3; NUMBER]);
        let mut messages = [&unknown[..], &message(&number), b"\x14\0\0\x01x"].concat();
        node.seal_tickets(&mut messages);
        let aged = b"session \0\0\0\0\0\0\0\0oooo";
        let ticket = [&number[..], &Reversed.encrypt(aged).unwrap()].concat();
        assert_eq!(messages, [&unknown[..], &message(&ticket), b"\x14\0\0\x01x"].concat());
        assert_eq!(other.take(&ticket).as_deref(), Some(&aged[..]));
        assert_eq!(node.take(&ticket), Some(session), "once");
        assert_eq!(node.take(&ticket).as_deref(), Some(&aged[..]));
        for short in 0..=NUMBER {
            assert_eq!(node.take(&ticket[..short]), None);
        }
    }

    #[test]
    fn bytes_that_are_no_messages_stay_as_they_are() {
        let node = Sessions::new(Arc::new(Reversed));
        let whole = message(&[3; NUMBER]);
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            node.seal_tickets(&mut cut);
            assert_eq!(cut, whole[..end]);
            // A message whose fields are longer than itself.
            let mut shorter = whole[..end.max(4)].to_vec();
            shorter[3] = (shorter.len() - 4) as u8;
            let before = shorter.clone();
            node.seal_tickets(&mut shorter);
            assert_eq!(shorter, before);
        }
    }
}
