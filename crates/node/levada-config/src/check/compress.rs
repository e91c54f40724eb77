//! Compression: media types, codings and sizes.

use crate::settings::{CompressSettings, Levels, TypePattern};
use levada_types::ByteSize;

use super::{Check, levels::KeyLevels};
use crate::file;

impl Check<'_, '_> {
    /// The compression of a site; `Some(None)` if it compresses nothing.
    pub(super) fn compress(
        &mut self,
        of: &file::Handling,
        levels: &KeyLevels,
    ) -> Option<Option<CompressSettings>> {
        let Some(compress) = &of.compress else { return Some(None) };
        let path = levels.key(self.findings, "compress");
        for (at, coding) in compress.codings.iter().enumerate() {
            if compress.codings[..at].contains(coding) {
                self.error(&path.key("codings").index(at), "names a coding for the second time");
            }
        }
        if compress.min_size.0 > compress.max_size.0 {
            let most = ByteSize(compress.max_size.0);
            let message = format!("is more than `max_size`, {most}: nothing would be compressed");
            self.error(&path.key("min_size"), message);
        }
        let types = self.read_each(&compress.types, &path.key("types"), |text| {
            let help = "for example \"text/html\", \"text/*\" or \"*+json\"";
            let wrong = || (format!("{text:?} is no media type"), Some(help.to_owned()));
            TypePattern::parse(text).ok_or_else(wrong)
        });
        let settings = CompressSettings {
            codings: compress.codings.clone(),
            types: types?,
            min_size: compress.min_size.0,
            max_size: compress.max_size.0,
            levels: Levels {
                zstd: compress.zstd_level,
                br: compress.br_level,
                gzip: compress.gzip_level,
            },
            origin_codings: compress.origin_codings,
        };
        Some((!settings.codings.is_empty()).then_some(settings))
    }
}
