//! DNS messages (RFC 1035 Sec. 4): a query as it was asked, and a response as it is written.

pub mod name;
mod query;
mod records;
mod response;

pub use name::{LONGEST_NAME, Name, NoName};
pub(crate) use query::option;
pub use query::{Bad, ClientCookie, ClientSubnet, Edns, Query};
pub use records::{RecordSet, Records, kind};
pub use response::{Full, Owner, Response, Section};

/// Response codes (RFC 1035 Sec. 4.1.1, RFC 6891 Sec. 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Code {
    /// There is an answer, or there is none of this type.
    NoError = 0,
    /// The query is malformed.
    FormErr = 1,
    /// The server failed.
    ServFail = 2,
    /// The name does not exist.
    NxDomain = 3,
    /// The kind of query is not supported.
    NotImp = 4,
    /// The name is in no zone of this server.
    Refused = 5,
    /// The version of EDNS is not supported.
    BadVers = 16,
}

impl Code {
    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoError => "noerror",
            Self::FormErr => "formerr",
            Self::ServFail => "servfail",
            Self::NxDomain => "nxdomain",
            Self::NotImp => "notimp",
            Self::Refused => "refused",
            Self::BadVers => "badvers",
        }
    }
}
