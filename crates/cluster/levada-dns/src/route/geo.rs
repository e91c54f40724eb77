//! A database in MaxMind's format, as networks and regions: it is read once as a whole, so that a look-up is the same
//! as in all other tables.

use std::collections::BTreeMap;

use maxminddb::{MaxMindDbError, PathElement, Reader, WithinOptions};

use super::{
    Regions,
    networks::{Networks, NetworksBuilder, Prefix},
};

/// The regions of countries and continents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeoRegions {
    /// By the code of a country (ISO 3166-1).
    pub countries: BTreeMap<String, String>,
    /// By the code of a continent: AF, AN, AS, EU, NA, OC, SA.
    pub continents: BTreeMap<String, String>,
}

/// The regions of networks by a database.
pub struct Geo;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// It is not of this format, or damaged.
    #[error("is no database in MaxMind's format, or is damaged: {0}")]
    Format(#[from] MaxMindDbError),
    /// There are too many regions.
    #[error("there are too many regions")]
    TooMany,
}

impl Geo {
    /// Reads a database. The country of a network counts before its continent.
    ///
    /// # Errors
    /// When it is not of this format.
    pub fn read(
        content: Vec<u8>,
        of: &GeoRegions,
        regions: &mut Regions,
    ) -> Result<Networks, GeoError> {
        let reader = Reader::from_source(content)?;
        let mut builder = NetworksBuilder::default();
        for found in reader.networks(WithinOptions::default())? {
            let found = found?;
            let code = |table: &'static str, key: &'static str| {
                let path = [PathElement::Key(table), PathElement::Key(key)];
                found.decode_path::<&str>(&path)
            };
            let country = code("country", "iso_code")?.and_then(|code| of.countries.get(code));
            let region = match country {
                Some(region) => Some(region),
                None => code("continent", "code")?.and_then(|code| of.continents.get(code)),
            };
            let network = found.network()?;
            let prefix = Prefix::new(network.ip(), network.prefix());
            if let Some((region, prefix)) = region.zip(prefix) {
                builder.add(prefix, regions.number(region).ok_or(GeoError::TooMany)?);
            }
        }
        Ok(builder.build().0)
    }
}
