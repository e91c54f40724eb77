//! The content codings that a node makes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Br,
    /// Deflate in gzip's frame (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings.
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Br, Self::Gzip];

    /// Its token in `Accept-Encoding` and `Content-Encoding`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Br => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The coding with this token; `x-gzip` is `gzip` (RFC 9110 Sec. 8.4.1.3).
    pub(crate) fn of(token: &[u8]) -> Option<Self> {
        let is = |name: &str| token.eq_ignore_ascii_case(name.as_bytes());
        Self::ALL
            .into_iter()
            .find(|coding| is(coding.as_str()))
            .or(is("x-gzip").then_some(Self::Gzip))
    }

    /// Its place in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
