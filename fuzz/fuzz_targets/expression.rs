//! No text is read with a panic. What is read is evaluated for any request without one, and a checked
//! expression never meets a value of the wrong type.
#![no_main]

use std::{net::Ipv4Addr, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use levada_rules::{CountryLookup, Expression, Failure, Mappings, Purpose, RequestFacts, Scheme};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Nowhere;

impl CountryLookup for Nowhere {
    fn country(&self, _: std::net::IpAddr) -> Option<String> {
        None
    }

    fn version(&self) -> u64 {
        0
    }
}

fuzz_target!(|input: (String, String, Vec<(String, Vec<u8>)>)| {
    let (source, target, fields) = input;
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    let place = (Scheme::Https, "a.test");
    let client = Ipv4Addr::LOCALHOST.into();
    let facts = RequestFacts::new(client, place, (&Method::GET, &target), &headers);
    for purpose in [Purpose::When, Purpose::Key] {
        let place = String::new();
        let (countries, mappings) = (Some(Arc::new(Nowhere) as _), Mappings::new());
        if let Ok(read) = Expression::parse(&source, purpose, place, countries, &mappings) {
            assert_ne!(read.explain(&facts), Err(Failure::Type), "{source}");
        }
    }
});
