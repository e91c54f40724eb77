//! The error codes of HTTP/3 (RFC 9114 Sec. 8.1) that this crate sends, and the faults that lead to them.

use quinn::VarInt;

/// An error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u32);

impl Code {
    pub(crate) const NO_ERROR: Self = Self(0x100);
    pub(crate) const INTERNAL_ERROR: Self = Self(0x102);
    pub(crate) const STREAM_CREATION_ERROR: Self = Self(0x103);
    pub(crate) const FRAME_UNEXPECTED: Self = Self(0x105);
    pub(crate) const FRAME_ERROR: Self = Self(0x106);
    pub(crate) const EXCESSIVE_LOAD: Self = Self(0x107);
    pub(crate) const ID_ERROR: Self = Self(0x108);
    pub(crate) const REQUEST_REJECTED: Self = Self(0x10b);
    pub(crate) const REQUEST_CANCELLED: Self = Self(0x10c);
    pub(crate) const REQUEST_INCOMPLETE: Self = Self(0x10d);
    pub(crate) const MESSAGE_ERROR: Self = Self(0x10e);
    pub(crate) const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    pub(crate) const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
    pub(crate) const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
}

impl From<Code> for VarInt {
    fn from(code: Code) -> Self {
        Self::from_u32(code.0)
    }
}

impl From<Code> for u64 {
    fn from(code: Code) -> Self {
        u64::from(code.0)
    }
}

/// A fault of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It ends the stream.
    Stream(Code),
    /// It ends the connection, with a reason for the client.
    Connection(Code, &'static str),
}
