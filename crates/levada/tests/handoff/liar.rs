//! The channel between a front-end and a back-end, written a second time, from its description: for attackers that
//! know the secret.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use levada_redirector::handoff::fuzzing::Frame;
use ring::hmac::{self, HMAC_SHA256, Key};

pub(crate) struct Channel {
    stream: TcpStream,
    own: Marks,
    others: Marks,
    /// The frames of the last batch that are not taken yet.
    heard: Vec<u8>,
}

struct Marks {
    key: Key,
    count: u64,
}

const GREETING: &[u8; 16] = b"levada-handoff/4";
const NONCE: [u8; 32] = [7; 32];

impl Channel {
    /// As a back-end.
    pub(crate) fn of_back(mut stream: TcpStream, secret: &str) -> Self {
        stream.write_all(&[&GREETING[..], &NONCE].concat()).unwrap();
        let front = nonce(&mut stream);
        let [of_front, of_back] = keys(secret, &NONCE, &front);
        stream.read_exact(&mut [0; 32]).unwrap();
        stream.write_all(hmac::sign(&of_back, b"back").as_ref()).unwrap();
        Self { stream, own: Marks::new(of_back), others: Marks::new(of_front), heard: Vec::new() }
    }

    /// As a front-end. Whether it is believed shows when it says something.
    pub(crate) fn of_front(mut stream: TcpStream, secret: &str) -> Self {
        let back = nonce(&mut stream);
        stream.write_all(&[&GREETING[..], &NONCE].concat()).unwrap();
        let [of_front, of_back] = keys(secret, &back, &NONCE);
        stream.write_all(hmac::sign(&of_front, b"front").as_ref()).unwrap();
        let _ = stream.read_exact(&mut [0; 32]);
        Self { stream, own: Marks::new(of_front), others: Marks::new(of_back), heard: Vec::new() }
    }

    pub(crate) fn say(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.say_bytes(&bytes);
    }

    /// Says what may be no frame, marked as one.
    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) {
        let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes();
        let frame = [&length(bytes)[..], bytes].concat();
        let mark = self.own.next(&frame);
        let _ = self.stream.write_all(&[&length(&frame)[..], &mark, &frame].concat());
    }

    /// The next frame of the other side; `None` when it has closed.
    pub(crate) fn hear(&mut self) -> Option<Frame> {
        if self.heard.is_empty() {
            let (mut length, mut mark) = ([0; 4], [0; 16]);
            self.stream.read_exact(&mut length).ok()?;
            self.stream.read_exact(&mut mark).ok()?;
            self.heard = vec![0; u32::from_be_bytes(length) as usize];
            self.stream.read_exact(&mut self.heard).ok()?;
            assert_eq!(mark, self.others.next(&self.heard));
        }
        let length = u32::from_be_bytes(*self.heard.first_chunk().unwrap()) as usize;
        let frame: Vec<u8> = self.heard.drain(..4 + length).skip(4).collect();
        Some(Frame::read(&frame).unwrap())
    }
}

impl Marks {
    fn new(key: Key) -> Self {
        Self { key, count: 0 }
    }

    fn next(&mut self, bytes: &[u8]) -> [u8; 16] {
        let counted = [&self.count.to_be_bytes()[..], bytes].concat();
        self.count += 1;
        *hmac::sign(&self.key, &counted).as_ref().first_chunk().unwrap()
    }
}

fn nonce(stream: &mut TcpStream) -> [u8; 32] {
    let mut greeting = [0; 48];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..16], GREETING);
    *greeting.last_chunk().unwrap()
}

/// The front-end's and the back-end's.
fn keys(secret: &str, back: &[u8], front: &[u8]) -> [Key; 2] {
    let secret = Key::new(HMAC_SHA256, secret.as_bytes());
    [&b"front"[..], b"back"].map(|side| {
        let key = hmac::sign(&secret, &[side, back, front].concat());
        Key::new(HMAC_SHA256, key.as_ref())
    })
}
