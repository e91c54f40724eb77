//! The types that at least three of Levada's crates share: keys, sizes, time, random numbers,
//! requests.
//!
//! This crate has no logic beyond what makes an invalid value impossible.
#![doc = include_str!("../README.md")]

mod address_prefix;
mod admin_address;
mod backoff;
mod bytesize;
#[cfg(feature = "config")]
pub mod document;
mod key;
mod rate;
mod request;
mod rng;
#[cfg(feature = "config")]
pub mod text;
mod time;
#[cfg(feature = "config")]
pub mod values;

pub use address_prefix::{AddressPrefix, NoPrefix};
pub use admin_address::{AdminAddress, NoAdminAddress};
pub use backoff::Backoff;
pub use bytesize::{ByteSize, ParseByteSizeError};
pub use key::{Key, hash64, weigh};
pub use rate::{ParseRateError, parse_rate};
pub use request::{Request, ServiceClass};
pub use rng::Rng;
pub use time::{ParseDurationError, Timestamp, format_duration, parse_duration};
