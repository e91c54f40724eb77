//! The codings' encoders behind one interface: bytes go in, and leave when they are coded.

use std::io::{self, Write};

use brotli::{CompressorWriter, enc::BrotliEncoderParams};
use flate2::{Compression, write::GzEncoder};
use zstd::{
    stream::{raw::CParameter, write::Encoder as ZstdEncoder},
    zstd_safe::compress_bound,
};

use crate::compress::{coding::Coding, settings::Levels};

/// The window of brotli: 512 KiB, as in nginx's module. The default of 4 MiB costs memory for each body
/// and gains little with bodies of this size.
const BR_WINDOW: i32 = 19;
/// Clients need not accept a larger window (RFC 9659 Sec. 3).
const ZSTD_WINDOW: u32 = 23;
/// The buffer between brotli and its output.
const BR_BUFFER: usize = 16 << 10;

/// The action after the bytes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// More bytes come soon: keep what cannot be coded well yet.
    Go,
    /// Everything so far is to reach the client.
    Flush,
    /// There is no more.
    Finish,
}

/// Codes one body. The encoder has no type here: a crate that drops a body with one would compile it again.
pub(crate) struct Encoder(Box<dyn Encode + Send>);

trait Encode: Write {
    /// The coded bytes that nothing has taken yet.
    fn output(&mut self) -> &mut Vec<u8>;

    /// Writes the end.
    fn finish(&mut self) -> io::Result<()>;
}

impl Encode for ZstdEncoder<'static, Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.do_finish()
    }
}

impl Encode for GzEncoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.try_finish()
    }
}

impl Encode for CompressorWriter<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(&mut self) -> io::Result<()> {
        // Its end is written when it goes.
        let ended = Self::new(Vec::new(), 0, 0, BR_WINDOW as u32);
        *self.output() = std::mem::replace(self, ended).into_inner();
        Ok(())
    }
}

impl Encoder {
    /// An encoder whose level is lowered by `load`: 0 is none, 1 leaves the fastest level.
    pub(crate) fn new(coding: Coding, levels: &Levels, load: f64) -> io::Result<Self> {
        Ok(Self(match coding {
            Coding::Zstd => {
                let level = lowered(levels.zstd, 1, load);
                let mut encoder = ZstdEncoder::new(Vec::new(), level.into())?;
                if level > 16 {
                    encoder.set_parameter(CParameter::WindowLog(ZSTD_WINDOW))?;
                }
                Box::new(encoder)
            }
            Coding::Br => {
                let quality = lowered(levels.br, 0, load).into();
                let parameters =
                    BrotliEncoderParams { quality, lgwin: BR_WINDOW, ..Default::default() };
                Box::new(CompressorWriter::with_params(Vec::new(), BR_BUFFER, &parameters))
            }
            Coding::Gzip => {
                let level = Compression::new(lowered(levels.gzip, 1, load).into());
                Box::new(GzEncoder::new(Vec::new(), level))
            }
        }))
    }

    /// Codes `bytes` and returns what is ready.
    pub(crate) fn code(&mut self, bytes: &[u8], then: Then) -> io::Result<Vec<u8>> {
        // Text halves at least; what is more grows the buffer.
        self.0.output().reserve(compress_bound(bytes.len()) / 2);
        self.0.write_all(bytes)?;
        match then {
            Then::Go => {}
            Then::Flush => self.0.flush()?,
            Then::Finish => self.0.finish()?,
        }
        Ok(std::mem::take(self.0.output()))
    }
}

/// A level between `level` and the least one.
fn lowered(level: u8, least: u8, load: f64) -> u8 {
    let share = 1.0 - load.clamp(0.0, 1.0);
    let above = f64::from(level.saturating_sub(least)) * share;
    least + above.round() as u8
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    const LEVELS: Levels = Levels { zstd: 3, br: 5, gzip: 6 };

    pub(crate) fn decoded(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        match coding {
            Coding::Zstd => return zstd::decode_all(bytes),
            Coding::Br => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out)?,
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out)?,
        };
        Ok(out)
    }

    #[test]
    fn level_falls_with_the_load_down_to_the_fastest() {
        assert_eq!([0.0, 0.5, 1.0, 7.0].map(|load| lowered(6, 1, load)), [6, 4, 1, 1]);
        assert_eq!(lowered(0, 0, 0.5), 0);
    }

    #[test]
    fn flushed_bytes_can_be_read_before_the_end() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding, &LEVELS, 0.0).unwrap();
            let coded = encoder.code(b"data: 1\n\n", Then::Flush).unwrap();
            let mut first = [0; 9];
            match coding {
                Coding::Zstd => {
                    zstd::Decoder::new(&*coded).unwrap().read_exact(&mut first).unwrap();
                }
                Coding::Br => {
                    brotli::Decompressor::new(&*coded, 4096).read_exact(&mut first).unwrap();
                }
                Coding::Gzip => {
                    flate2::read::GzDecoder::new(&*coded).read_exact(&mut first).unwrap();
                }
            }
            assert_eq!(&first, b"data: 1\n\n", "{coding:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn body_is_read_as_it_was_written(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..3000), any::<bool>()), 0..8),
            load in 0.0..1.0,
        ) {
            for coding in Coding::ALL {
                let mut encoder = Encoder::new(coding, &LEVELS, load).unwrap();
                let mut coded = Vec::new();
                for (piece, flush) in &pieces {
                    let then = if *flush { Then::Flush } else { Then::Go };
                    coded.extend(encoder.code(piece, then).unwrap());
                }
                coded.extend(encoder.code(b"", Then::Finish).unwrap());
                let written: Vec<u8> = pieces.iter().flat_map(|(piece, _)| piece.clone()).collect();
                prop_assert_eq!(decoded(coding, &coded).unwrap(), written);
            }
        }
    }
}
