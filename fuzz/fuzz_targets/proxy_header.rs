//! The header of a PROXY protocol: any bytes are a header, the beginning of one, or an error.

#![no_main]

use levada_net::proxy_protocol::{MAX_HEADER, ProxyHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(MAX_HEADER)];
    match ProxyHeader::parse(bytes) {
        Ok(Some(header)) => {
            assert!(header.length <= bytes.len());
            // Later bytes do not change the header, and no shorter beginning is one.
            let length = header.length;
            let more = [bytes, b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(ProxyHeader::parse(&more).unwrap(), Some(header));
            for end in 1..length {
                assert_eq!(ProxyHeader::parse(&bytes[..end]).unwrap(), None);
            }
        }
        Ok(None) => assert!(bytes.len() < MAX_HEADER),
        Err(_) => {}
    }
});
