//! The forms of password hashes in an htpasswd file, as Apache and nginx read them.
//!
//! ```text
//! $2y$10$...   bcrypt (also $2a$, $2b$): htpasswd -B
//! $apr1$...    Apache's MD5: htpasswd -m, and its default
//! $1$...       the MD5 of crypt(3)
//! $5$ $6$...   SHA-256 and SHA-512 of crypt(3): htpasswd -2, -5
//! {SHA}...     SHA-1 without salt: htpasswd -s
//! ```
//!
//! Absent on purpose: plain text, and the DES of crypt(3), which looks at eight characters only.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use blowfish::Blowfish;
use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;

/// A password's hash.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    form: Form,
    /// The text of the hash, without what stands before it.
    hash: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Form {
    Bcrypt {
        cost: u32,
        salt: [u8; 16],
    },
    /// With its magic, `$apr1$` or `$1$`.
    Md5 {
        magic: &'static str,
        salt: String,
    },
    Sha {
        wide: bool,
        rounds: u32,
        salt: String,
    },
    Sha1,
}

/// The text is no hash of a known form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a hash by bcrypt ($2y$), apr1, SHA-256 ($5$), SHA-512 ($6$) or {{SHA}}")]
pub struct NoHash;

/// The highest cost of bcrypt: beyond it, one password takes longer than a second.
const MOST_COST: u32 = 16;
/// The most rounds of the SHA forms, for the same reason.
const MOST_ROUNDS: u32 = 1_000_000;

impl PasswordHash {
    /// Reads a hash.
    ///
    /// # Errors
    /// When it is of no known form, or would take too long to compare with.
    pub fn read(text: &str) -> Result<Self, NoHash> {
        if let Some(hash) = text.strip_prefix("{SHA}") {
            let length = STANDARD.decode(hash).map_err(|_| NoHash)?.len();
            let is_good = length == 20;
            return if is_good {
                Ok(Self { form: Form::Sha1, hash: hash.to_owned() })
            } else {
                Err(NoHash)
            };
        }
        let parts: Vec<&str> = text.strip_prefix('$').ok_or(NoHash)?.split('$').collect();
        let (form, hash) = match *parts.as_slice() {
            ["2a" | "2b" | "2y", cost, rest] if rest.len() == 53 && rest.is_ascii() => {
                let cost = cost.parse().ok().filter(|cost| (4..=MOST_COST).contains(cost));
                let salt = bcrypt_decode(&rest[..22]).ok_or(NoHash)?;
                (Form::Bcrypt { cost: cost.ok_or(NoHash)?, salt }, &rest[22..])
            }
            ["apr1", salt, hash] if hash.len() == 22 => {
                (Form::Md5 { magic: "$apr1$", salt: beginning(salt, 8) }, hash)
            }
            ["1", salt, hash] if hash.len() == 22 => {
                (Form::Md5 { magic: "$1$", salt: beginning(salt, 8) }, hash)
            }
            [kind @ ("5" | "6"), ref rest @ .., hash] => {
                let (rounds, salt) = match *rest {
                    [salt] => (5000, salt),
                    [rounds, salt] => {
                        let rounds = rounds.strip_prefix("rounds=").and_then(|n| n.parse().ok());
                        (rounds.filter(|n| (1000..=MOST_ROUNDS).contains(n)).ok_or(NoHash)?, salt)
                    }
                    _ => return Err(NoHash),
                };
                let wide = kind == "6";
                if hash.len() != if wide { 86 } else { 43 } {
                    return Err(NoHash);
                }
                (Form::Sha { wide, rounds, salt: beginning(salt, 16) }, hash)
            }
            _ => return Err(NoHash),
        };
        Ok(Self { form, hash: hash.to_owned() })
    }

    /// Whether it is the hash of `password`. Takes long on purpose: call it on a thread for blocking calls.
    pub fn is_of(&self, password: &[u8]) -> bool {
        let made = match &self.form {
            Form::Bcrypt { cost, salt } => bcrypt(password, *cost, salt),
            Form::Md5 { magic, salt } => md5_crypt(password, magic, salt.as_bytes()),
            Form::Sha { wide, rounds, salt } => {
                sha_crypt(password, *wide, *rounds, salt.as_bytes())
            }
            Form::Sha1 => {
                let algorithm = &ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
                STANDARD.encode(ring::digest::digest(algorithm, password))
            }
        };
        made.as_bytes().ct_eq(self.hash.as_bytes()).into()
    }
}

fn beginning(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// bcrypt (Provos and Mazieres, USENIX 1999): Blowfish with an expensive key schedule encrypts a constant.
fn bcrypt(password: &[u8], cost: u32, salt: &[u8; 16]) -> String {
    let mut key: Vec<u8> =
        password.iter().copied().take_while(|byte| *byte != 0).take(72).collect();
    if key.len() < 72 {
        key.push(0);
    }
    let mut state = Blowfish::bc_init_state();
    state.salted_expand_key(salt, &key);
    for _ in 0..1_u64 << cost {
        state.bc_expand_key(&key);
        state.bc_expand_key(salt);
    }
    let mut text = *b"OrpheanBeholderScryDoubt";
    for block in text.chunks_exact_mut(8) {
        let word = |at: usize| {
            u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        };
        let mut words = [word(0), word(4)];
        for _ in 0..64 {
            words = state.bc_encrypt(words);
        }
        block[..4].copy_from_slice(&words[0].to_be_bytes());
        block[4..].copy_from_slice(&words[1].to_be_bytes());
    }
    bcrypt_encode(&text[..23])
}

/// bcrypt's own alphabet; its bits are in the order of Base64.
const BCRYPT: &[u8; 64] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

fn bcrypt_encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let bits = a << 16 | b << 8 | c;
        for at in 0..=chunk.len() {
            text.push(char::from(BCRYPT[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

fn bcrypt_decode(text: &str) -> Option<[u8; 16]> {
    let (mut bytes, mut bits, mut count) = ([0; 16], 0_u32, 0);
    let mut filled = 0;
    for byte in text.bytes() {
        bits = bits << 6 | BCRYPT.iter().position(|known| *known == byte)? as u32;
        count += 6;
        if count >= 8 && filled < 16 {
            count -= 8;
            bytes[filled] = (bits >> count) as u8;
            filled += 1;
        }
    }
    (filled == 16).then_some(bytes)
}

/// The MD5 of crypt(3), with Apache's or FreeBSD's magic (Kamp, 1994).
fn md5_crypt(password: &[u8], magic: &str, salt: &[u8]) -> String {
    let digest = |parts: &[&[u8]]| -> [u8; 16] {
        let mut md5 = Md5::new();
        parts.iter().for_each(|part| md5.update(part));
        md5.finalize().into()
    };
    let inner = digest(&[password, salt, password]);
    let mut outer = Md5::new();
    outer.update(password);
    outer.update(magic);
    outer.update(salt);
    for at in (0..password.len()).step_by(16) {
        outer.update(&inner[..16.min(password.len() - at)]);
    }
    let mut length = password.len();
    while length > 0 {
        outer.update(if length & 1 == 1 { &[0] } else { password.get(..1).unwrap_or(&[0]) });
        length >>= 1;
    }
    let mut hash: [u8; 16] = outer.finalize().into();
    for round in 0..1000 {
        let odd = round & 1 == 1;
        let with_salt = if round % 3 == 0 { &[] } else { salt };
        let with_password = if round % 7 == 0 { &[] } else { password };
        let (first, last): (&[u8], &[u8]) = if odd { (password, &hash) } else { (&hash, password) };
        hash = digest(&[first, with_salt, with_password, last]);
    }
    let h = |at: usize| u32::from(hash[at]);
    let mut text = String::new();
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        crypt_encode(&mut text, h(a) << 16 | h(b) << 8 | h(c), 4);
    }
    crypt_encode(&mut text, h(11), 2);
    text
}

/// The SHA-256 or SHA-512 of crypt(3) (Drepper, 2007).
fn sha_crypt(password: &[u8], wide: bool, rounds: u32, salt: &[u8]) -> String {
    let Ok(params) = sha_crypt::Params::new(rounds) else { return String::new() };
    let mut text = String::new();
    if wide {
        let hash = sha_crypt::sha512_crypt(password, salt, params);
        let (mut a, mut b, mut c) = (0, 21, 42);
        for _ in 0..21 {
            triple(&mut text, &hash, (a, b, c));
            (a, b, c) = (b + 1, c + 1, a + 1);
        }
        crypt_encode(&mut text, u32::from(hash[63]), 2);
    } else {
        let hash = sha_crypt::sha256_crypt(password, salt, params);
        let (mut a, mut b, mut c) = (0, 10, 20);
        for _ in 0..10 {
            triple(&mut text, &hash, (a, b, c));
            (a, b, c) = (c + 1, a + 1, b + 1);
        }
        crypt_encode(&mut text, u32::from(hash[31]) << 8 | u32::from(hash[30]), 3);
    }
    text
}

fn triple(text: &mut String, hash: &[u8], (a, b, c): (usize, usize, usize)) {
    let h = |at: usize| u32::from(hash[at]);
    crypt_encode(text, h(a) << 16 | h(b) << 8 | h(c), 4);
}

/// Writes the bits of crypt(3)'s hashes, the lowest first.
fn crypt_encode(text: &mut String, mut bits: u32, characters: usize) {
    const CRYPT: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for _ in 0..characters {
        text.push(char::from(CRYPT[(bits & 63) as usize]));
        bits >>= 6;
    }
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openssl passwd -apr1`, `-1`, `-5`, `-6` and `python3 crypt`; bcrypt's are of its published
    /// test vectors.
    const KNOWN: &[(&str, &str)] = &[
        ("secret", "$apr1$s4lt5678$yNwm1lYcTNGUenhMtvKEA1"),
        ("secret", "$1$s4lt5678$p0Jvk7wUl2e/Yy86NMxtp0"),
        ("secret", "$5$s4lt5678$RvFi/Y6irLU8mY91nFEvQ5NgN89wtdUQermnfUgza/A"),
        (
            "secret",
            "$6$s4lt5678$gyPtx0/bqdQ/uTU8jfWz.pIFWHd5OMDY2.XPucyyfcmCDiAZ3ZO/o4FLTUROaOHWfXmaHcRGg3CJr26UQQLq9.",
        ),
        ("a long password with more than sixteen bytes", "$apr1$s4lt5678$52Q4EC8wxt2ekP5nxo8UQ."),
        ("a long password with more than sixteen bytes", "$1$s4lt5678$ezs.duiyd3hBuWevn4ii9/"),
        (
            "a long password with more than sixteen bytes",
            "$5$s4lt5678$mOMAFxZP.Tk9yQYrc3G1HL/wNrJzEAu0ZZUyjMgrnRB",
        ),
        (
            "a long password with more than sixteen bytes",
            "$6$s4lt5678$u9QwgWnmhcWxOumZ7sjdHNnsJoRtc8EsmdkBOLVp8OHAnzikiUj9jiXAeivVWJT4lHgXDsg99jaXOjf5aPP2n1",
        ),
        ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("secret", "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
        ("U*U", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
        (
            "secret",
            "$6$rounds=1000$saltsalt$LAV5VE5Y7w1d73x1mFNspYWUpazfmwv2SoepNXNKJ/otop/Zok96Hr8Q13LEv0DRY/x8v0/crpIjl8NJSAqXV/",
        ),
    ];

    #[test]
    fn password_matches_the_hash_that_other_programs_made() {
        for (password, text) in KNOWN {
            let hash = PasswordHash::read(text).unwrap();
            assert!(hash.is_of(password.as_bytes()), "{text}");
            assert!(!hash.is_of(format!("{password}x").as_bytes()), "{text}");
            assert!(!hash.is_of(b""), "{text}");
        }
    }

    #[test]
    fn text_of_no_known_form_is_refused() {
        for text in [
            "",
            "secret",
            "{PLAIN}secret",
            "{SHA}short",
            "rl0uE8fZcqZ2s",
            "$2y$31$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZabcde",
            "$2y$10$abc",
            "$apr1$salt$short",
            "$6$rounds=999999999$salt$hash",
            "$7$salt$hash",
        ] {
            assert_eq!(PasswordHash::read(text), Err(NoHash), "{text}");
        }
    }
}
