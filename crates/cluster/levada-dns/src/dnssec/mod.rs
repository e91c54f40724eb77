//! DNSSEC (RFC 4033 to 4035): answers are signed as they are given, by ECDSA on P-256 (RFC 6605).
//!
//! ```text
//!   keys    the keys of a zone, and its records about them
//!   sign    signatures, and those that are kept
//!   budget  how many are made for senders that nobody knows
//!   denial  the record that says what does not exist, made for the name that was asked for (RFC 9824)
//! ```

mod budget;
mod denial;
mod keys;
mod sign;

pub use budget::{Allowance, SignatureBudget};
pub use denial::nsec;
pub use keys::{KeyError, ZoneKeys};
pub use sign::Signatures;

/// The algorithm: ECDSA on P-256 with SHA-256 (RFC 6605 Sec. 4).
pub(crate) const ALGORITHM: u8 = 13;
