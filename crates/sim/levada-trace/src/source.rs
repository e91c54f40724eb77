//! Decompression, chosen by the first bytes of a file.
//!
//! All decompressors stream: gzip needs 32 KiB, xz its dictionary (8 MiB by default, 64 MiB for `xz
//! -9`), which is refused above [`XZ_MEMORY_KIB`], zstd its window, which the library refuses above 128 MiB.

use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

/// The most memory that an xz file may need for decompression: more than `xz -9` needs.
const XZ_MEMORY_KIB: u32 = 128 * 1024;

/// The longest magic number below.
const MAGIC: usize = 6;

/// Compressions that are not supported: magic number, name, command that decompresses.
const FOREIGN: &[(&[u8], &str, &str)] = &[
    (b"BZh", "bzip2", "bunzip2"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    (b"PK\x03\x04", "zip", "unzip"),
];

/// A compression that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) name: &'static str,
    pub(crate) remedy: &'static str,
}

/// The decompressed text of `file`, or the compression that is not supported.
pub(crate) fn decompress(
    mut file: Box<dyn Read + Send>,
) -> io::Result<Result<Box<dyn Read + Send>, Foreign>> {
    let mut head = Vec::with_capacity(MAGIC);
    file.by_ref().take(MAGIC as u64).read_to_end(&mut head)?;
    let foreign = FOREIGN.iter().find(|(magic, ..)| head.starts_with(magic));
    if let Some(&(_, name, remedy)) = foreign {
        return Ok(Err(Foreign { name, remedy }));
    }
    let (xz, gzip) = (head.starts_with(b"\xfd7zXZ\0"), head.starts_with(b"\x1f\x8b"));
    let zstd = head.starts_with(b"\x28\xb5\x2f\xfd");
    let whole = Cursor::new(head).chain(file);
    Ok(Ok(if xz {
        Box::new(XzReader::new_mem_limit(io::BufReader::new(whole), true, XZ_MEMORY_KIB))
    } else if gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else if zstd {
        Box::new(zstd::Decoder::new(whole)?)
    } else {
        Box::new(whole)
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn text(bytes: Vec<u8>) -> io::Result<String> {
        let mut text = String::new();
        let stream = decompress(Box::new(Cursor::new(bytes)))?;
        stream.map_err(|foreign| io::Error::other(foreign.name))?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn gzip_of_several_members_is_read_to_the_end() {
        let member = |part: &str| {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(part.as_bytes()).unwrap();
            out.finish().unwrap()
        };
        let rotated = [member("one\n"), member("two\n")].concat();
        assert_eq!(text(rotated).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn zstd_of_several_frames_is_read_to_the_end() {
        let frame = |part: &str| zstd::encode_all(part.as_bytes(), 3).unwrap();
        let rotated = [frame("one\n"), frame("two\n")].concat();
        assert_eq!(text(rotated.clone()).unwrap(), "one\ntwo\n");
        assert!(text(rotated[..rotated.len() - 3].to_vec()).is_err(), "a cut file is an error");
    }

    #[test]
    fn xz_is_read() {
        // The output of `printf '1 a 10
        // 2 b 20
        // ' | xz -C crc32`.
        let file = XZ_SAMPLE.to_vec();
        assert_eq!(text(file.clone()).unwrap(), "1 a 10\n2 b 20\n");
        assert!(text(file[..file.len() - 9].to_vec()).is_err(), "a cut file is an error");
    }

    #[test]
    fn plain_text_and_short_files_pass_through() {
        for plain in ["", "a", "seven and more\n"] {
            assert_eq!(text(plain.as_bytes().to_vec()).unwrap(), plain);
        }
    }

    #[test]
    fn other_compressions_are_named() {
        assert_eq!(text(b"BZh91AY".to_vec()).unwrap_err().to_string(), "bzip2");
    }

    const XZ_SAMPLE: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x00, 0x21,
        0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x0d, 0x31, 0x20, 0x61,
        0x20, 0x31, 0x30, 0x0a, 0x32, 0x20, 0x62, 0x20, 0x32, 0x30, 0x0a, 0x00, 0x00, 0x00, 0x11,
        0xd9, 0x5b, 0x3a, 0x00, 0x01, 0x22, 0x0e, 0x0c, 0xde, 0x8c, 0x60, 0x90, 0x42, 0x99, 0x0d,
        0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
    ];
}
