//! The common first part of both programs: reading the headers of a packet.

use super::assembler::{Assembler, JumpLabel, Register::*, Size::*};

/// The end of the program for a packet that is not processed further: the next filter sees it.
pub(super) const PASS: JumpLabel = JumpLabel(0);
/// The path for a packet whose headers are not at the usual offsets.
const ELSEWHERE: JumpLabel = JumpLabel(1000);
/// The point at which the headers have been read.
const READ: JumpLabel = JumpLabel(1001);
/// The path for a packet of another protocol than TCP.
const OTHER: JumpLabel = JumpLabel(1002);
/// The path for an ICMP message that reports an error.
const ERROR: JumpLabel = JumpLabel(1003);

/// The way in which a program treats ICMP errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IcmpErrors {
    /// It passes them, as any packet that is not TCP.
    Pass,
    /// It treats them as packets of the connection that they are about: they quote the headers of a packet that
    /// the connection has sent (RFC 792, RFC 4443 Sec. 3). No flag is set.
    Follow,
}

/// On the stack: the IPv4 header without options.
const IP: i16 = -48;
/// On the stack, after it: the first 14 bytes of the TCP header.
const TCP: i16 = -28;
/// On the stack: source, destination and ports, as in the packet. It is the kernel's `struct
/// bpf_sock_tuple`, and the key of the steering table.
pub(super) const FLOW: i16 = -64;
/// The length of the flow in bytes.
pub(super) const FLOW_LENGTH: usize = 12;
/// The length of the flow in words of 32 bits.
pub(super) const FLOW_WORDS: usize = FLOW_LENGTH / 4;

/// On the stack: the IPv6 header, directly followed by the TCP header at the same offset as for
/// IPv4.
const IP6: i16 = TCP - 40;
/// On the stack: the flow of a packet over IPv6, at its place in the headers: the addresses end the
/// IPv6 header, and the ports begin the TCP header.
pub(super) const FLOW6: i16 = IP6 + 8;
/// The length of this flow in bytes.
pub(super) const FLOW6_LENGTH: usize = 36;

/// On the stack: the head of an ICMP message with the IP header and the ports that it quotes.
const MESSAGE: i16 = -128;
/// On the stack: the quoted IP header.
const QUOTED: i16 = MESSAGE + 8;

// Flags of a TCP header.
pub(super) const SYN: i32 = 0x02;
pub(super) const ACK: i32 = 0x10;

/// Results of a classifier: continue with the next filter.
pub(super) const NO_OPINION: i32 = -1;
/// Drop the packet.
pub(super) const DROP: i32 = 2;

/// The offset of the protocol in `struct __sk_buff`.
const PROTOCOL: i16 = 16;
/// The offsets of the start and the end of the packet's linear data.
const DATA: i16 = 76;
const DATA_END: i16 = 80;
/// `bpf_skb_load_bytes_relative`: copies a part of the packet, which need not be linear.
const LOAD_RELATIVE: i32 = 68;
/// Offsets count from the IP header, so that devices without Ethernet frames work as well.
const FROM_IP: i32 = 1;

/// Reads the headers of an unfragmented segment of TCP over IPv4 and stores its flow; any other
/// packet passes, but for ICMP errors that are followed. Leaves the packet in `R6`.
///
/// Most packets have an Ethernet frame and no options in the IP header: their headers are read in
/// place, which takes half the time.
pub(super) fn read_headers(asm: &mut Assembler, errors: IcmpErrors) {
    asm.copy(R6, R1);
    asm.load(Word, R2, R1, PROTOCOL);
    asm.jump_unless_equal(R2, i32::from(u16::to_be(0x0800)), PASS);
    read_in_place(asm);
    asm.jump_always(READ);
    asm.place(ELSEWHERE);
    read_by_copy(asm);
    asm.jump_always(READ);
    asm.place(OTHER);
    match errors {
        IcmpErrors::Pass => asm.jump_always(PASS),
        IcmpErrors::Follow => read_quoted(asm),
    }
    asm.place(READ);
}

fn read_in_place(asm: &mut Assembler) {
    const IP_AT: i16 = 14;
    const TCP_AT: i16 = IP_AT + 20;
    asm.load(Word, R2, R6, DATA);
    asm.load(Word, R3, R6, DATA_END);
    asm.copy(R4, R2);
    asm.add(R4, i32::from(TCP_AT + 14));
    asm.jump_if_greater(R4, R3, ELSEWHERE);
    // Version 4, header of five words.
    asm.load(Byte, R1, R2, IP_AT);
    asm.jump_unless_equal(R1, 0x45, ELSEWHERE);
    asm.load(Byte, R1, R2, IP_AT + 9);
    asm.jump_unless_equal(R1, 6, OTHER);
    asm.load(Half, R1, R2, IP_AT + 6);
    pass_fragments(asm);
    let of_flow = [(FLOW, IP_AT + 12), (FLOW + 4, IP_AT + 16), (FLOW + 8, TCP_AT)];
    let numbers = [4, 8].map(|at| (TCP + at, TCP_AT + at));
    for (to, from) in of_flow.into_iter().chain(numbers) {
        asm.load(Word, R1, R2, from);
        asm.store(Word, R10, to, R1);
    }
    asm.load(Byte, R1, R2, TCP_AT + 13);
    asm.store(Byte, R10, TCP + 13, R1);
}

fn read_by_copy(asm: &mut Assembler) {
    asm.set(R2, 0);
    load_bytes(asm, IP, 20);
    asm.load(Byte, R1, R10, IP + 9);
    asm.jump_unless_equal(R1, 6, OTHER);
    load_after_header(asm, TCP, 14);
    for (at, from) in [(0, IP + 12), (4, IP + 16), (8, TCP)] {
        asm.load(Word, R1, R10, from);
        asm.store(Word, R10, FLOW + at, R1);
    }
}

/// Loads what follows the IPv4 header, which is on the stack.
fn load_after_header(asm: &mut Assembler, to: i16, count: i32) {
    asm.load(Half, R1, R10, IP + 6);
    pass_fragments(asm);
    asm.load(Byte, R2, R10, IP);
    asm.and(R2, 0x0f);
    asm.shift_left(R2, 2);
    load_bytes(asm, to, count);
}

/// Reads the headers that an ICMP error quotes; other packets pass. `R1` has the protocol.
fn read_quoted(asm: &mut Assembler) {
    asm.jump_unless_equal(R1, 1, PASS);
    asm.set(R2, 0);
    load_bytes(asm, IP, 20);
    load_after_header(asm, MESSAGE, 8 + 20 + 4);
    // Unreachable or too big, expired on the way, impossible header.
    asm.load(Byte, R1, R10, MESSAGE);
    for kind in [3, 11, 12] {
        asm.jump_if_equal(R1, kind, ERROR);
    }
    asm.jump_always(PASS);
    asm.place(ERROR);
    // Levada's packets have no options.
    asm.load(Byte, R1, R10, QUOTED);
    asm.jump_unless_equal(R1, 0x45, PASS);
    asm.load(Byte, R1, R10, QUOTED + 9);
    asm.jump_unless_equal(R1, 6, PASS);
    for (at, from) in [(0, QUOTED + 16), (4, QUOTED + 12)] {
        asm.load(Word, R1, R10, from);
        asm.store(Word, R10, FLOW + at, R1);
    }
    swap_ports(asm, QUOTED + 20, FLOW + 8);
}

/// The ports of a packet towards the client, as in a packet from it; and no flags.
fn swap_ports(asm: &mut Assembler, from: i16, to: i16) {
    for (at, from) in [(0, from + 2), (2, from)] {
        asm.load(Half, R1, R10, from);
        asm.store(Half, R10, to + at, R1);
    }
    asm.store_value(Word, R10, TCP + 8, 0);
    asm.store_value(Byte, R10, TCP + 13, 0);
}

/// Passes later fragments: they have an offset, which is in `R1`.
fn pass_fragments(asm: &mut Assembler) {
    asm.and(R1, i32::from(u16::to_be(0x1fff)));
    asm.jump_unless_equal(R1, 0, PASS);
}

/// The same for TCP over IPv6; its flow is [`FLOW6`]. A packet with extension headers passes.
pub(super) fn read_headers6(asm: &mut Assembler, errors: IcmpErrors) {
    asm.copy(R6, R1);
    asm.load(Word, R2, R1, PROTOCOL);
    asm.jump_unless_equal(R2, i32::from(u16::to_be(0x86dd)), PASS);
    asm.set(R2, 0);
    load_bytes(asm, IP6, 40 + 14);
    asm.load(Byte, R1, R10, IP6 + 6);
    asm.jump_unless_equal(R1, 6, OTHER);
    asm.jump_always(READ);
    asm.place(OTHER);
    match errors {
        IcmpErrors::Pass => asm.jump_always(PASS),
        IcmpErrors::Follow => read_quoted6(asm),
    }
    asm.place(READ);
}

/// Reads the headers that an ICMPv6 error quotes; other packets pass. `R1` has the protocol.
fn read_quoted6(asm: &mut Assembler) {
    asm.jump_unless_equal(R1, 58, PASS);
    asm.set(R2, 40);
    load_bytes(asm, MESSAGE, 8 + 40 + 4);
    // Errors have the types up to 127.
    asm.load(Byte, R1, R10, MESSAGE);
    asm.and(R1, 0x80);
    asm.jump_unless_equal(R1, 0, PASS);
    asm.load(Byte, R1, R10, QUOTED + 6);
    asm.jump_unless_equal(R1, 6, PASS);
    for (to, from) in [(0, QUOTED + 24), (16, QUOTED + 8)] {
        for at in (0..16).step_by(4) {
            asm.load(Word, R1, R10, from + at);
            asm.store(Word, R10, FLOW6 + to + at, R1);
        }
    }
    swap_ports(asm, QUOTED + 40, FLOW6 + 32);
}

/// Loads those of the segment's flags that are in `flags` into `R1`.
pub(super) fn load_flags(asm: &mut Assembler, flags: i32) {
    asm.load(Byte, R1, R10, TCP + 13);
    asm.and(R1, flags);
}

/// Loads the segment's acknowledgement number into `R1`, in the packet's byte order.
pub(super) fn load_acknowledgement(asm: &mut Assembler) {
    asm.load(Word, R1, R10, TCP + 8);
}

/// Drops a SYN that is a late copy of the one which began the connection. Others go on at `others`. `R0` points to
/// the connection's data, which has the number of the next byte from the client at `expected`.
///
/// The number of such a copy is as far below as the client has sent bytes before its connection was steered: the heads
/// of some requests. A client's new connection has any number; where it is in this range by chance (one in 4096), its
/// SYN gets through when the old connection is steered no more.
pub(super) fn drop_late_syn(asm: &mut Assembler, expected: i16, others: JumpLabel) {
    const BYTES_BEFORE: i32 = 20;
    asm.load(Word, R1, R10, TCP + 4);
    asm.number_of_word(R1);
    asm.load(Word, R2, R0, expected);
    asm.subtract(R2, R1);
    asm.add(R2, -1);
    asm.shift_left(R2, 32);
    asm.shift_right(R2, 32 + BYTES_BEFORE);
    asm.jump_unless_equal(R2, 0, others);
    asm.set(R0, DROP);
    asm.exit();
}

/// Loads the address of the flow into `to`.
pub(super) fn address_of_flow(asm: &mut Assembler, to: super::assembler::Register) {
    asm.copy(to, R10);
    asm.add(to, i32::from(FLOW));
}

/// Loads the address of the IPv6 flow into `to`.
pub(super) fn address_of_flow6(asm: &mut Assembler, to: super::assembler::Register) {
    asm.copy(to, R10);
    asm.add(to, i32::from(FLOW6));
}

/// The target of [`PASS`]: continues with the next filter.
pub(super) fn pass(asm: &mut Assembler) {
    asm.place(PASS);
    asm.set(R0, NO_OPINION);
    asm.exit();
}

/// Copies bytes of the packet, from the offset in `R2`, to the stack.
fn load_bytes(asm: &mut Assembler, to: i16, count: i32) {
    asm.copy(R1, R6);
    asm.copy(R3, R10);
    asm.add(R3, to.into());
    asm.set(R4, count);
    asm.set(R5, FROM_IP);
    asm.call(LOAD_RELATIVE);
    asm.jump_unless_equal(R0, 0, PASS);
}
