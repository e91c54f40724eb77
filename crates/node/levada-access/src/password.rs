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

use base64::{
    Engine as _, alphabet,
    engine::general_purpose::{self, GeneralPurpose, STANDARD},
};
use base64ct::{Base64ShaCrypt, Encoding as _};
use md5::{Digest as _, Md5};
use sha_crypt::{Params, sha256_crypt, sha512_crypt};
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
        params: Params,
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
                let salt = BCRYPT.decode(&rest[..22]).ok().and_then(|salt| salt.try_into().ok());
                let (cost, salt) = (cost.ok_or(NoHash)?, salt.ok_or(NoHash)?);
                (Form::Bcrypt { cost, salt }, &rest[22..])
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
                        (rounds.filter(|n| *n <= MOST_ROUNDS).ok_or(NoHash)?, salt)
                    }
                    _ => return Err(NoHash),
                };
                let wide = kind == "6";
                if hash.len() != if wide { 86 } else { 43 } {
                    return Err(NoHash);
                }
                let params = Params::new(rounds).map_err(|_| NoHash)?;
                (Form::Sha { wide, params, salt: salt.to_owned() }, hash)
            }
            _ => return Err(NoHash),
        };
        Ok(Self { form, hash: hash.to_owned() })
    }

    /// Whether it is the hash of `password`. Takes long on purpose: call it on a thread for blocking calls.
    pub fn is_of(&self, password: &[u8]) -> bool {
        let made = match &self.form {
            Form::Bcrypt { cost, salt } => bcrypt(password, *cost, *salt),
            Form::Md5 { magic, salt } => md5_crypt(password, magic, salt.as_bytes()),
            Form::Sha { wide: true, params, salt } => {
                in_order(&sha512_crypt(password, salt.as_bytes(), *params), &SHA512_ORDER)
            }
            Form::Sha { wide: false, params, salt } => {
                in_order(&sha256_crypt(password, salt.as_bytes(), *params), &SHA256_ORDER)
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

/// bcrypt (Provos and Mazieres, USENIX 1999). As in C, a password ends with its first zero.
fn bcrypt(password: &[u8], cost: u32, salt: [u8; 16]) -> String {
    let mut key: Vec<u8> = password.iter().copied().take_while(|byte| *byte != 0).collect();
    key.push(0);
    key.truncate(72);
    BCRYPT.encode(&bcrypt::bcrypt(cost, salt, &key)[..23])
}

/// The last character of a salt has bits that count for nothing, and that some programs set.
const BCRYPT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::BCRYPT,
    general_purpose::NO_PAD.with_decode_allow_trailing_bits(true),
);

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
    in_order(&hash, &MD5_ORDER)
}

/// The text of a digest, whose bytes stand in an order of their own.
fn in_order(digest: &[u8], order: &[usize]) -> String {
    let bytes: Vec<u8> = order.iter().map(|at| digest[*at]).collect();
    Base64ShaCrypt::encode_string(&bytes)
}

const MD5_ORDER: [usize; 16] = [12, 6, 0, 13, 7, 1, 14, 8, 2, 15, 9, 3, 5, 10, 4, 11];
const SHA256_ORDER: [usize; 32] = [
    20, 10, 0, 11, 1, 21, 2, 22, 12, 23, 13, 3, 14, 4, 24, 5, 25, 15, 26, 16, 6, 17, 7, 27, 8, 28,
    18, 29, 19, 9, 30, 31,
];
const SHA512_ORDER: [usize; 64] = [
    42, 21, 0, 1, 43, 22, 23, 2, 44, 45, 24, 3, 4, 46, 25, 26, 5, 47, 48, 27, 6, 7, 49, 28, 29, 8,
    50, 51, 30, 9, 10, 52, 31, 32, 11, 53, 54, 33, 12, 13, 55, 34, 35, 14, 56, 57, 36, 15, 16, 58,
    37, 38, 17, 59, 60, 39, 18, 19, 61, 40, 41, 20, 62, 63,
];

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
        // Bits that count for nothing are set.
        ("secret", "$2b$05$abcdefghijklmnopqrstuvOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"),
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
