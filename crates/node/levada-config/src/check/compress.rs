//! Compression: media types, codings and sizes.

use levada_body::compress::CompressSettings;
use levada_types::ByteSize;

use super::{Check, levels::KeyLevels};
use crate::file;

impl Check<'_, '_> {
    /// The compression of a site; `None` if it compresses nothing.
    pub(super) fn compress(
        &mut self,
        of: &file::Handling,
        levels: &KeyLevels,
    ) -> Option<CompressSettings> {
        let CompressSettings { codings, types, min_size, max_size, .. } = of.compress.as_ref()?;
        let path = levels.key(self.findings, "compress");
        for (at, coding) in codings.iter().enumerate() {
            if codings[..at].contains(coding) {
                self.error(&path.key("codings").index(at), "names a coding for the second time");
            }
        }
        if min_size > max_size {
            let most = ByteSize(*max_size);
            let message = format!("is more than `max_size`, {most}: nothing would be compressed");
            self.error(&path.key("min_size"), message);
        }
        for (at, wrong) in types.iter().enumerate().filter(|(_, pattern)| !pattern.is_valid()) {
            let message = format!("{:?} is no media type", wrong.to_string());
            self.error(&path.key("types").index(at), message)
                .help("for example \"text/html\", \"text/*\" or \"*+json\"");
        }
        of.compress.clone().filter(|_| !codings.is_empty())
    }
}
