//! The countries of clients, for templates.

use std::{net::IpAddr, sync::Arc};

use levada_access::country::Countries;
use levada_rules::CountryLookup;

/// A database of countries, as templates ask it.
#[derive(Debug)]
pub struct ClientCountries(pub Arc<Countries>);

impl CountryLookup for ClientCountries {
    fn country(&self, client: IpAddr) -> Option<String> {
        self.0.of(client).map(|country| country.to_string())
    }

    fn version(&self) -> u64 {
        self.0.version()
    }
}
