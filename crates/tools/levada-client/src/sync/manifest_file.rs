//! The manifest as a file: a text, compressed if it is long.

use std::io::{self, Read as _, Write as _};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

/// The text of a manifest file.
///
/// # Errors
/// When it is compressed and cannot be unpacked, or is longer than 1 GiB.
pub(super) fn unpacked(bytes: Vec<u8>) -> io::Result<String> {
    let mut text = Vec::new();
    if bytes.starts_with(&GZIP) {
        MultiGzDecoder::new(&*bytes).take(LONGEST_MANIFEST + 1).read_to_end(&mut text)?;
        if text.len() as u64 > LONGEST_MANIFEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    } else {
        text = bytes;
    }
    // A manifest must be valid UTF-8.
    Ok(String::from_utf8(text).unwrap_or_default())
}

/// The bytes to publish: the text itself as long as people may want to read it.
pub(super) fn packed(text: String) -> Vec<u8> {
    if text.len() <= LONGEST_TEXT {
        return text.into_bytes();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory cannot fail.
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    written.unwrap_or_else(|_| text.into_bytes())
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const LONGEST_TEXT: usize = 64 << 10;
pub(super) const LONGEST_MANIFEST: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_manifests_are_compressed_and_cut_ones_refused() {
        let short = "a line\n".to_owned();
        assert_eq!(packed(short.clone()), short.as_bytes());
        let long = short.repeat(LONGEST_TEXT);
        let bytes = packed(long.clone());
        assert!(bytes.len() < LONGEST_TEXT);
        for end in [2, 20, bytes.len() - 1] {
            assert!(unpacked(bytes[..end].to_vec()).is_err());
        }
        assert_eq!(unpacked(bytes).unwrap(), long);
        assert_eq!(unpacked(vec![0xff]).unwrap(), "");
    }
}
