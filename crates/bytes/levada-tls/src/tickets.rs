//! Session tickets without state: any node of a cluster resumes a session that another one began, and so does a
//! process that replaces one.
//!
//! ```text
//! ticket = name of the key (8) | salt (16) | AES-256-GCM(session) with the key HMAC(key, context, salt)
//! key of an epoch = HKDF(secret, number of the epoch)         an epoch is the time between two rotations
//! ```
//!
//! A new ticket has the key of the epoch that the node's clock is in. Tickets of the epochs before and after are
//! accepted too, so that clocks need not agree: they may differ by almost an epoch. A person who learns the secret can
//! decrypt all tickets that were ever made from it. For TLS 1.3 that reveals no recorded connection, because each
//! resumption exchanges new keys (RFC 8446 Sec. 2.2). In TLS 1.2 it would: those sessions get keys that this
//! process makes at random, and forgets.

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    hkdf, hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use rustls::{ProtocolVersion, server::ProducesTickets};

use crate::{
    pem::{TlsError, shown},
    secret::Secrets,
};

/// How often keys change by default.
pub const ROTATION: Duration = Duration::from_secs(12 * 3600);
/// RFC 8446 Sec. 4.6.1: no ticket lives for more than 7 days.
const LONGEST: u64 = 7 * 24 * 3600;

/// The least length of a secret in a file.
const LEAST: usize = 32;

/// Where keys of tickets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketSettings {
    /// Files with secrets: new tickets come from the first, those of the others are accepted.
    pub files: Vec<PathBuf>,
    /// Whether the secret of the cluster stands in for files.
    pub of_cluster: bool,
    /// How often keys change.
    pub rotation: Duration,
}

impl Default for TicketSettings {
    fn default() -> Self {
        Self { files: Vec::new(), of_cluster: true, rotation: ROTATION }
    }
}

impl TicketSettings {
    /// Makes the keys. `cluster`: the secrets of the cluster, `before`: the keys until now.
    ///
    /// # Errors
    /// When a file cannot be read, or is too short.
    pub fn keys(
        &self,
        cluster: Option<&Secrets>,
        before: Option<&TicketKeys>,
    ) -> Result<Arc<TicketKeys>, TlsError> {
        let mut secrets = self.secrets()?;
        let cluster = cluster.filter(|_| self.of_cluster && self.files.is_empty());
        let of_cluster = cluster.iter().flat_map(|secrets| secrets.iter());
        secrets.extend(of_cluster.map(|secret| secret.as_bytes().to_vec()));
        Ok(TicketKeys::new(&secrets, self.rotation, before))
    }

    /// The secrets of the files.
    ///
    /// # Errors
    /// When a file cannot be read, or is too short.
    pub fn secrets(&self) -> Result<Vec<Vec<u8>>, TlsError> {
        let mut secrets = Vec::new();
        for path in &self.files {
            let wrong = |why| TlsError::Secret { path: shown(path), why };
            let secret = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
            if secret.len() < LEAST {
                return Err(wrong(format!("has {} bytes, fewer than {LEAST}", secret.len())));
            }
            secrets.push(secret);
        }
        Ok(secrets)
    }
}

const NAME: usize = 8;
const SALT: usize = 16;
const KEY: usize = 32;

/// The time in seconds since 1970.
pub type UnixClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The keys of tickets, which change with time.
pub struct TicketKeys {
    /// The secrets that other nodes know as well: new tickets come from the first.
    secrets: Vec<hkdf::Prk>,
    period: u64,
    clock: UnixClock,
    now: ArcSwap<Epoch>,
    turning: Mutex<()>,
}

/// The keys of the time between two rotations.
struct Epoch {
    number: u64,
    /// For sessions of TLS 1.3, the key for new tickets first.
    shared: Vec<Key>,
    /// For other sessions, which stay in this process.
    own: Vec<Arc<Key>>,
}

struct Key {
    name: [u8; NAME],
    key: hmac::Key,
}

impl TicketKeys {
    /// Keys from secrets that other nodes have too; new tickets come from the first one. Without a secret, they
    /// are of this process only. `before` hands over the keys that this process has made.
    pub fn new(secrets: &[Vec<u8>], period: Duration, before: Option<&Self>) -> Arc<Self> {
        let clock = || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(0, |time| time.as_secs())
        };
        Self::by_clock(secrets, period, before, Arc::new(clock))
    }

    /// The same by another clock.
    pub fn by_clock(
        secrets: &[Vec<u8>],
        period: Duration,
        before: Option<&Self>,
        clock: UnixClock,
    ) -> Arc<Self> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"levada session tickets 1");
        let secrets: Vec<_> = secrets.iter().map(|secret| salt.extract(secret)).collect();
        let period = period.as_secs().clamp(1, LONGEST);
        let number = clock() / period;
        let own = before.map(|before| before.now.load().own.clone());
        let own = own.unwrap_or_else(|| vec![Arc::new(Key::random())]);
        let now = Epoch { number, shared: shared(&secrets, number), own };
        let now = ArcSwap::from_pointee(now);
        Arc::new(Self { secrets, period, clock, now, turning: Mutex::default() })
    }

    /// The maker of tickets in a context. Tickets of one context are of no use in another.
    pub fn ticketer(self: &Arc<Self>, context: &[u8]) -> Arc<dyn ProducesTickets> {
        let digest = ring::digest::digest(&ring::digest::SHA256, context);
        let mut context = [0; KEY];
        context.copy_from_slice(digest.as_ref());
        Arc::new(Ticketer { keys: self.clone(), context })
    }

    fn epoch(&self) -> arc_swap::Guard<Arc<Epoch>> {
        let number = (self.clock)() / self.period;
        let now = self.now.load();
        if now.number == number {
            return now;
        }
        let _turning = self.turning.lock();
        let now = self.now.load();
        if now.number != number {
            // Where there was no handshake for longer than an epoch, the former key is too old.
            let former = now.own.first().filter(|_| number == now.number + 1).cloned();
            let own = std::iter::once(Arc::new(Key::random())).chain(former).collect();
            let shared = shared(&self.secrets, number);
            self.now.store(Arc::new(Epoch { number, shared, own }));
        }
        drop(now);
        self.now.load()
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("period", &self.period).finish_non_exhaustive()
    }
}

/// The keys of this epoch, the one before and the one after, which a node with a fast clock is in already.
fn shared(secrets: &[hkdf::Prk], number: u64) -> Vec<Key> {
    let epochs = [number, number.saturating_sub(1), number + 1];
    let of = |secret| epochs.map(|number| Key::derived(secret, number));
    secrets.iter().flat_map(of).collect()
}

impl Key {
    fn derived(secret: &hkdf::Prk, epoch: u64) -> Self {
        let mut bytes = [0; NAME + KEY];
        let info = [b"epoch", &epoch.to_be_bytes()[..]];
        let filled = secret.expand(&info, Length).and_then(|okm| okm.fill(&mut bytes));
        filled.unwrap_or_else(|_| unreachable!("the length is that of the buffer"));
        Self::of(&bytes)
    }

    fn random() -> Self {
        let mut bytes = [0; NAME + KEY];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.unwrap_or_else(|_| unreachable!("the system has randomness"));
        Self::of(&bytes)
    }

    fn of(bytes: &[u8; NAME + KEY]) -> Self {
        let mut name = [0; NAME];
        name.copy_from_slice(&bytes[..NAME]);
        Self { name, key: hmac::Key::new(hmac::HMAC_SHA256, &bytes[NAME..]) }
    }

    /// The key of one ticket. It is never used twice, so that all nodes together may make any number of tickets.
    fn of_ticket(&self, context: &[u8; KEY], salt: &[u8]) -> Option<LessSafeKey> {
        let mut signed = hmac::Context::with_key(&self.key);
        signed.update(context);
        signed.update(salt);
        UnboundKey::new(&AES_256_GCM, signed.sign().as_ref()).ok().map(LessSafeKey::new)
    }
}

struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        NAME + KEY
    }
}

/// Makes and reads the tickets of one context.
#[derive(Debug)]
struct Ticketer {
    keys: Arc<TicketKeys>,
    context: [u8; KEY],
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    /// A ticket is accepted for one epoch at least.
    fn lifetime(&self) -> u32 {
        self.keys.period as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let epoch = self.keys.epoch();
        let shared = epoch.shared.first().filter(|_| is_tls13(plain));
        let key = match shared {
            Some(key) => key,
            None => epoch.own.first()?,
        };
        let mut salt = [0; SALT];
        SystemRandom::new().fill(&mut salt).ok()?;
        let sealing = key.of_ticket(&self.context, &salt)?;
        let mut ticket = Vec::with_capacity(NAME + SALT + plain.len() + AES_256_GCM.tag_len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&salt);
        ticket.extend_from_slice(plain);
        let (head, body) = ticket.split_at_mut(NAME + SALT);
        let tag = sealing.seal_in_place_separate_tag(nonce(), Aad::from(&*head), body).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (head, body) = ticket.split_at_checked(NAME + SALT)?;
        let (name, salt) = head.split_at(NAME);
        let epoch = self.keys.epoch();
        let own = epoch.own.iter().map(|key| &**key);
        let key = epoch.shared.iter().chain(own).find(|key| key.name == name)?;
        let opening = key.of_ticket(&self.context, salt)?;
        let mut plain = body.to_vec();
        let length = opening.open_in_place(nonce(), Aad::from(head), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

/// Each key has one nonce, because it seals one ticket.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// Whether a session is one of TLS 1.3. It begins with the server name, if there was one, and the version.
fn is_tls13(session: &[u8]) -> bool {
    let version = match session {
        [0, rest @ ..] => rest,
        [1, length, rest @ ..] => rest.get(usize::from(*length)..).unwrap_or_default(),
        _ => return false,
    };
    version.starts_with(&u16::from(ProtocolVersion::TLSv1_3).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    const HOUR: u64 = 3600;
    /// The beginnings of sessions, as the library writes them.
    const TLS13: &[u8] = &[1, 1, b'a', 3, 4, 7, 7, 7];
    const TLS12: &[u8] = &[0, 3, 3, 7, 7, 7];

    fn node(secret: Option<&str>, clock: &Arc<AtomicU64>) -> Arc<TicketKeys> {
        let secrets: Vec<_> = secret.map(|text| text.as_bytes().to_vec()).into_iter().collect();
        let clock = clock.clone();
        let clock = Arc::new(move || clock.load(Relaxed));
        TicketKeys::by_clock(&secrets, Duration::from_secs(HOUR), None, clock)
    }

    #[test]
    fn ticket_is_read_by_another_node_after_one_rotation_but_not_after_two() {
        let clock = Arc::new(AtomicU64::new(1000 * HOUR + 1800));
        let (one, other) = (node(Some("secret"), &clock), node(Some("secret"), &clock));
        let ticket = one.ticketer(b"").encrypt(TLS13).unwrap();
        assert_eq!(other.ticketer(b"").decrypt(&ticket).as_deref(), Some(TLS13));
        clock.fetch_add(HOUR, Relaxed);
        assert_eq!(other.ticketer(b"").decrypt(&ticket).as_deref(), Some(TLS13));
        clock.fetch_add(HOUR, Relaxed);
        assert_eq!(other.ticketer(b"").decrypt(&ticket), None);
    }

    #[test]
    fn tickets_of_each_secret_of_the_cluster_are_read_while_it_changes() {
        let node = |all: &[&str]| {
            let secrets = Secrets::new(all.iter().map(|one| (*one).to_owned()).collect());
            TicketSettings::default().keys(secrets.as_ref(), None).unwrap()
        };
        let rounds = [node(&["old"]), node(&["old", "new"]), node(&["new", "old"]), node(&["new"])];
        let reads = |reader: usize, maker: usize| {
            let ticket = rounds[maker].ticketer(b"").encrypt(TLS13).unwrap();
            rounds[reader].ticketer(b"").decrypt(&ticket).is_some()
        };
        for (one, next) in [(0, 1), (1, 2), (2, 3)] {
            assert!(reads(one, next) && reads(next, one), "rounds {one} and {next}");
        }
        assert!(!reads(3, 0) && !reads(3, 1), "the old secret is gone");
    }

    #[test]
    fn clocks_may_differ_by_minutes_at_the_moment_of_a_rotation() {
        let (slow, fast) = (1000 * HOUR - 300, 1000 * HOUR + 300);
        let slow = node(Some("secret"), &Arc::new(AtomicU64::new(slow)));
        let fast = node(Some("secret"), &Arc::new(AtomicU64::new(fast)));
        for (issues, reads) in [(&slow, &fast), (&fast, &slow)] {
            let ticket = issues.ticketer(b"").encrypt(TLS13).unwrap();
            assert!(reads.ticketer(b"").decrypt(&ticket).is_some());
        }
    }

    #[test]
    fn ticket_of_another_secret_context_or_bytes_is_not_read() {
        let clock = Arc::new(AtomicU64::new(HOUR));
        let one = node(Some("secret"), &clock);
        let ticket = one.ticketer(b"a").encrypt(TLS13).unwrap();
        assert_eq!(one.ticketer(b"b").decrypt(&ticket), None);
        assert_eq!(node(Some("other"), &clock).ticketer(b"a").decrypt(&ticket), None);
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(one.ticketer(b"a").decrypt(&changed), None);
            assert_eq!(one.ticketer(b"a").decrypt(&ticket[..at]), None);
        }
        assert_eq!(one.ticketer(b"a").decrypt(&ticket).as_deref(), Some(TLS13));
    }

    #[test]
    fn sessions_of_tls12_stay_in_their_process() {
        let clock = Arc::new(AtomicU64::new(HOUR));
        let (one, other) = (node(Some("secret"), &clock), node(Some("secret"), &clock));
        let ticket = one.ticketer(b"").encrypt(TLS12).unwrap();
        assert_eq!(one.ticketer(b"").decrypt(&ticket).as_deref(), Some(TLS12));
        assert_eq!(other.ticketer(b"").decrypt(&ticket), None);
        clock.fetch_add(HOUR, Relaxed);
        assert_eq!(one.ticketer(b"").decrypt(&ticket).as_deref(), Some(TLS12));
        clock.fetch_add(HOUR, Relaxed);
        assert_eq!(one.ticketer(b"").decrypt(&ticket), None);
    }

    #[test]
    fn reload_keeps_the_keys_of_the_process_and_accepts_those_of_a_former_secret() {
        let clock = Arc::new(AtomicU64::new(HOUR));
        let before = node(None, &clock);
        let own = before.ticketer(b"").encrypt(TLS13).unwrap();
        let now: UnixClock = Arc::new(move || clock.load(Relaxed));
        let period = Duration::from_secs(HOUR);
        let secret = |text: &str| text.as_bytes().to_vec();
        let after = TicketKeys::by_clock(&[secret("1")], period, Some(&before), now.clone());
        assert!(after.ticketer(b"").decrypt(&own).is_some());
        let ticket = after.ticketer(b"").encrypt(TLS13).unwrap();
        let changed = TicketKeys::by_clock(&[secret("2"), secret("1")], period, None, now);
        assert!(changed.ticketer(b"").decrypt(&ticket).is_some());
    }
}
