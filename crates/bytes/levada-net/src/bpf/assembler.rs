//! An assembler for eBPF programs, so that the build needs no compiler for them (RFC 9669 defines
//! the encoding).

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// A register. `R0` holds the result of calls and of the program, `R1` to `R5` are arguments, which
/// a call overwrites, `R6` to `R9` are preserved across calls, and `R10` is the end of the stack.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10 = 10,
}

/// The size of a memory access.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Size {
    /// Four bytes.
    Word = 0x00,
    /// Two.
    Half = 0x08,
    /// One.
    Byte = 0x10,
}

/// The target of jumps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct JumpLabel(pub(super) usize);

/// A program under construction.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<u64>,
    places: Vec<(JumpLabel, usize)>,
    jumps: Vec<(usize, JumpLabel)>,
}

impl Assembler {
    pub(super) fn set(&mut self, to: Register, value: i32) {
        self.emit(0xb7, to as u8, 0, 0, value);
    }

    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.emit(0xbf, to as u8, from as u8, 0, 0);
    }

    pub(super) fn add(&mut self, to: Register, value: i32) {
        self.emit(0x07, to as u8, 0, 0, value);
    }

    pub(super) fn subtract(&mut self, from: Register, value: Register) {
        self.emit(0x1f, from as u8, value as u8, 0, 0);
    }

    /// Turns a word in the network's byte order into a number.
    pub(super) fn number_of_word(&mut self, register: Register) {
        self.emit(0xdc, register as u8, 0, 0, 32);
    }

    pub(super) fn and(&mut self, to: Register, value: i32) {
        self.emit(0x57, to as u8, 0, 0, value);
    }

    /// `to = value`, all 64 bits.
    pub(super) fn set_double(&mut self, to: Register, value: u64) {
        self.emit(0x18, to as u8, 0, 0, value as i32);
        self.emit(0, 0, 0, 0, (value >> 32) as i32);
    }

    pub(super) fn or(&mut self, to: Register, from: Register) {
        self.emit(0x4f, to as u8, from as u8, 0, 0);
    }

    pub(super) fn multiply(&mut self, to: Register, by: Register) {
        self.emit(0x2f, to as u8, by as u8, 0, 0);
    }

    pub(super) fn shift_right(&mut self, to: Register, bits: i32) {
        self.emit(0x77, to as u8, 0, 0, bits);
    }

    pub(super) fn shift_left(&mut self, to: Register, bits: i32) {
        self.emit(0x67, to as u8, 0, 0, bits);
    }

    /// `to = *(from + at)`
    pub(super) fn load(&mut self, size: Size, to: Register, from: Register, at: i16) {
        self.emit(0x61 | size as u8, to as u8, from as u8, at, 0);
    }

    /// `*(to + at) = from`
    pub(super) fn store(&mut self, size: Size, to: Register, at: i16, from: Register) {
        self.emit(0x63 | size as u8, to as u8, from as u8, at, 0);
    }

    /// `*(to + at) = value`
    pub(super) fn store_value(&mut self, size: Size, to: Register, at: i16, value: i32) {
        self.emit(0x62 | size as u8, to as u8, 0, at, value);
    }

    pub(super) fn load_map(&mut self, to: Register, map: BorrowedFd<'_>) {
        const FROM_DESCRIPTOR: u8 = 1;
        self.emit(0x18, to as u8, FROM_DESCRIPTOR, 0, map.as_raw_fd());
        self.emit(0, 0, 0, 0, 0);
    }

    /// Compares the whole register with the sign-extended `value`.
    pub(super) fn jump_if_equal(&mut self, register: Register, value: i32, to: JumpLabel) {
        self.jump(0x15, register, value, to);
    }

    pub(super) fn jump_unless_equal(&mut self, register: Register, value: i32, to: JumpLabel) {
        self.jump(0x55, register, value, to);
    }

    /// Compares the lower half only.
    pub(super) fn jump_unless_word(&mut self, register: Register, value: u32, to: JumpLabel) {
        self.jump(0x56, register, value as i32, to);
    }

    /// Compares two registers.
    pub(super) fn jump_if_greater(&mut self, register: Register, than: Register, to: JumpLabel) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x2d, register as u8, than as u8, 0, 0);
    }

    /// Compares two registers.
    pub(super) fn jump_if_different(&mut self, register: Register, from: Register, to: JumpLabel) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x5d, register as u8, from as u8, 0, 0);
    }

    pub(super) fn jump_always(&mut self, to: JumpLabel) {
        self.jump(0x05, Register::R0, 0, to);
    }

    fn jump(&mut self, code: u8, register: Register, value: i32, to: JumpLabel) {
        self.jumps.push((self.code.len(), to));
        self.emit(code, register as u8, 0, 0, value);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.emit(0x85, 0, 0, 0, helper);
    }

    pub(super) fn exit(&mut self) {
        self.emit(0x95, 0, 0, 0, 0);
    }

    /// Makes the next instruction the target of jumps to `label`.
    pub(super) fn place(&mut self, label: JumpLabel) {
        self.places.push((label, self.code.len()));
    }

    /// The instructions, with the offsets of jumps filled in. The kernel's verifier refuses a jump
    /// whose label was never placed.
    pub(super) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let place = self.places.iter().find(|(other, _)| *other == label);
            let distance = place.map_or(-1, |(_, place)| *place as i64 - at as i64 - 1);
            self.code[at] |= u64::from(distance as i16 as u16) << OFFSET_SHIFT;
        }
        self.code
    }

    /// Appends an instruction in the kernel's memory layout.
    fn emit(&mut self, code: u8, to: u8, from: u8, at: i16, value: i32) {
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&at.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        self.code.push(u64::from_ne_bytes(bytes));
    }
}

/// The position of a jump's offset within an instruction that is read as a number.
const OFFSET_SHIFT: u32 = if cfg!(target_endian = "little") { 16 } else { 32 };
