//! The country of an address, by a database in MaxMind's format.

use std::{fmt, net::IpAddr, str::FromStr};

use levada_types::hash64;
use maxminddb::{MaxMindDbError, PathElement, Reader};

/// A country by its two letters (ISO 3166-1), in upper case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountryCode([u8; 2]);

/// The text is no code of a country.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a country's code of two letters, such as DE")]
pub struct NoCountry;

/// A database of the countries of addresses.
pub struct Countries {
    reader: Reader<Vec<u8>>,
    /// The hash of its content.
    version: u64,
}

impl PartialEq for Countries {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CountriesError {
    /// It is not of this format, or damaged.
    #[error("is no database in MaxMind's format: {0}")]
    Format(#[from] MaxMindDbError),
}

impl Countries {
    /// Reads a database. It needs the field `country.iso_code`, which databases of countries and cities have.
    ///
    /// # Errors
    /// When it is not of this format.
    pub fn new(content: Vec<u8>) -> Result<Self, CountriesError> {
        let version = hash64(&content);
        Ok(Self { reader: Reader::from_source(content)?, version })
    }

    /// A number that differs between databases that differ.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The country of an address, if the database has it.
    pub fn of(&self, address: IpAddr) -> Option<CountryCode> {
        let found = self.reader.lookup(address.to_canonical()).ok()?;
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        found.decode_path::<&str>(&path).ok()??.parse().ok()
    }
}

impl fmt::Debug for Countries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Countries").finish_non_exhaustive()
    }
}

impl CountryCode {
    /// Its two letters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for CountryCode {
    type Err = NoCountry;

    fn from_str(text: &str) -> Result<Self, NoCountry> {
        match *text.as_bytes() {
            [a, b] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
                Ok(Self([a.to_ascii_uppercase(), b.to_ascii_uppercase()]))
            }
            _ => Err(NoCountry),
        }
    }
}

impl fmt::Display for CountryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
