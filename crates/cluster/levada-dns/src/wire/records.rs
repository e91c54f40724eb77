//! Records of one name and type.

/// The types of records that the server knows by itself.
pub mod kind {
    #![allow(missing_docs)]

    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const MX: u16 = 15;
    pub const AAAA: u16 = 28;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const DNSKEY: u16 = 48;
    pub const NSEC3: u16 = 50;
    pub const NSEC3PARAM: u16 = 51;
    pub const CDS: u16 = 59;
    pub const CDNSKEY: u16 = 60;
    pub const HTTPS: u16 = 65;
    pub const NXNAME: u16 = 128;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;

    /// Whether the type has no records in zones, but a meaning in queries or messages (RFC 6895 Sec. 3.1).
    pub const fn is_meta(kind: u16) -> bool {
        matches!(kind, 0 | OPT | 128..=255)
    }
}

/// All records of a name and a type: they have one TTL (RFC 2181 Sec. 5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSet {
    /// The type.
    pub kind: u16,
    /// Seconds that a resolver may keep it.
    pub ttl: u32,
    /// The data of all records.
    pub records: Records,
}

/// The data of records without compression of names, each with its length before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records(Vec<u8>);

impl RecordSet {
    /// Records of one type.
    pub fn new(kind: u16, ttl: u32) -> Self {
        Self { kind, ttl, records: Records::default() }
    }
}

impl Records {
    /// Adds a record. More than 65,535 bytes of data, which no record has, are cut.
    pub fn push(&mut self, data: &[u8]) {
        let data = &data[..data.len().min(usize::from(u16::MAX))];
        self.0.extend_from_slice(&(data.len() as u16).to_be_bytes());
        self.0.extend_from_slice(data);
    }

    /// Removes all, and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The data of each record.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (data, after) = after.split_at(u16::from_be_bytes(*length).into());
            rest = after;
            Some(data)
        })
    }

    /// Lets go of memory that is not used.
    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}
