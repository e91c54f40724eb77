//! `[site.compress]`: content codings of responses.

use levada_body::compress::{Coding, CompressSettings, Levels};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::Size;

/// Compression of a site's responses: docs/operate/compression.md. The table alone switches it on.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Compress {
    /// Content codings in order of preference; none compresses nothing.
    pub codings: Vec<Coding>,
    /// Media types of responses that are compressed: `type/subtype`, `type/*` or `*+suffix`. `text/*` does not include
    /// `text/event-stream`.
    pub types: Vec<String>,
    /// The least length of a response that is compressed, if its length is known.
    pub min_size: Size,
    /// The greatest length of a response that is compressed.
    pub max_size: Size,
    /// The level of zstd.
    #[schemars(range(min = 1, max = 19))]
    pub zstd_level: u8,
    /// The level of br.
    #[schemars(range(max = 11))]
    pub br_level: u8,
    /// The level of gzip.
    #[schemars(range(min = 1, max = 9))]
    pub gzip_level: u8,
    /// Whether the origin is asked for codings, those with dictionaries included. Otherwise it is asked for the
    /// original, and this node makes the copies.
    pub origin_codings: bool,
}

impl Default for Compress {
    fn default() -> Self {
        let CompressSettings { min_size, max_size, levels, origin_codings, types, .. } =
            CompressSettings::default();
        let Levels { zstd, br, gzip } = levels;
        Self {
            codings: vec![Coding::Zstd, Coding::Br, Coding::Gzip],
            types: types.iter().map(ToString::to_string).collect(),
            min_size: Size(min_size),
            max_size: Size(max_size),
            zstd_level: zstd,
            br_level: br,
            gzip_level: gzip,
            origin_codings,
        }
    }
}
