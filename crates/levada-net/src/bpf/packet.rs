//! The beginning that both programs share: what of a packet's headers they look at.

use super::assembler::{Assembler, Label, Register::*, Size::*};

/// Where a packet that is not looked at further leads: to whoever comes next.
pub(super) const PASS: Label = Label(0);
/// Where a packet leads whose headers do not lie where those of most packets do.
const ELSEWHERE: Label = Label(1000);
/// Where its headers have been read.
const READ: Label = Label(1001);

/// On the stack: the IPv4 header without options.
const IP: i16 = -48;
/// On the stack, behind it: the TCP header's first 14 bytes.
const TCP: i16 = -28;
/// On the stack: source, destination, and their ports, as they are in the packet. The kernel's
/// `struct bpf_sock_tuple`, and the key of the steering table.
pub(super) const FLOW: i16 = -64;
/// So many bytes of it.
pub(super) const FLOW_LENGTH: usize = 12;
/// The same in words of 32 bits.
pub(super) const FLOW_WORDS: usize = FLOW_LENGTH / 4;

/// On the stack: the IPv6 header, and the TCP header right behind it, where that of IPv4 would be.
const IP6: i16 = TCP - 40;
/// On the stack: the same of a packet over IPv6, as it lies there: both addresses are the end of its
/// header, and the ports the beginning of the next.
pub(super) const FLOW6: i16 = IP6 + 8;
/// So many bytes of it.
pub(super) const FLOW6_LENGTH: usize = 36;

// Of a TCP header's flags.
pub(super) const SYN: i32 = 0x02;
pub(super) const ACK: i32 = 0x10;

/// What a classifier says of a packet: no opinion.
pub(super) const NO_OPINION: i32 = -1;
/// Away with it.
pub(super) const DROP: i32 = 2;

/// `struct __sk_buff`: the protocol in the packet's frame.
const PROTOCOL: i16 = 16;
/// The same: where its first piece begins, and ends.
const DATA: i16 = 76;
const DATA_END: i16 = 80;
/// `bpf_skb_load_bytes_relative`: copies a part of the packet, wherever it lies.
const LOAD_RELATIVE: i32 = 68;
/// It counts from the IP header, so that devices without frames are as good as others.
const FROM_IP: i32 = 1;

/// Reads the headers of an unfragmented segment of TCP over IPv4 and writes down its flow; any other
/// packet passes. Leaves the packet in `R6`.
///
/// Most packets are Ethernet's and have no options in their IP header: these are read where they lie, for
/// half the time.
pub(super) fn read_headers(asm: &mut Assembler) {
    asm.copy(R6, R1);
    asm.load(Word, R2, R1, PROTOCOL);
    asm.jump_unless_equal(R2, i32::from(u16::to_be(0x0800)), PASS);
    read_in_place(asm);
    asm.jump_always(READ);
    asm.place(ELSEWHERE);
    read_by_copy(asm);
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
    // Version 4, five words.
    asm.load(Byte, R1, R2, IP_AT);
    asm.jump_unless_equal(R1, 0x45, ELSEWHERE);
    asm.load(Byte, R1, R2, IP_AT + 9);
    asm.jump_unless_equal(R1, 6, PASS);
    asm.load(Half, R1, R2, IP_AT + 6);
    pass_fragments(asm);
    for (to, from) in
        [(FLOW, IP_AT + 12), (FLOW + 4, IP_AT + 16), (FLOW + 8, TCP_AT), (TCP + 8, TCP_AT + 8)]
    {
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
    asm.jump_unless_equal(R1, 6, PASS);
    asm.load(Half, R1, R10, IP + 6);
    pass_fragments(asm);
    asm.load(Byte, R2, R10, IP);
    asm.and(R2, 0x0f);
    asm.shift_left(R2, 2);
    load_bytes(asm, TCP, 14);
    for (at, from) in [(0, IP + 12), (4, IP + 16), (8, TCP)] {
        asm.load(Word, R1, R10, from);
        asm.store(Word, R10, FLOW + at, R1);
    }
}

/// All but the first fragment have an offset, which is in `R1`.
fn pass_fragments(asm: &mut Assembler) {
    asm.and(R1, i32::from(u16::to_be(0x1fff)));
    asm.jump_unless_equal(R1, 0, PASS);
}

/// The same for TCP over IPv6, whose flow is [`FLOW6`]. A packet with extension headers passes.
pub(super) fn read_headers6(asm: &mut Assembler) {
    asm.copy(R6, R1);
    asm.load(Word, R2, R1, PROTOCOL);
    asm.jump_unless_equal(R2, i32::from(u16::to_be(0x86dd)), PASS);
    asm.set(R2, 0);
    load_bytes(asm, IP6, 40 + 14);
    asm.load(Byte, R1, R10, IP6 + 6);
    asm.jump_unless_equal(R1, 6, PASS);
}

/// Puts the segment's flags among `flags` into `R1`.
pub(super) fn load_flags(asm: &mut Assembler, flags: i32) {
    asm.load(Byte, R1, R10, TCP + 13);
    asm.and(R1, flags);
}

/// Puts the segment's acknowledgement number into `R1`, as it is in the packet.
pub(super) fn load_acknowledgement(asm: &mut Assembler) {
    asm.load(Word, R1, R10, TCP + 8);
}

/// `R1` is where the flow is written.
pub(super) fn address_of_flow(asm: &mut Assembler, to: super::assembler::Register) {
    asm.copy(to, R10);
    asm.add(to, i32::from(FLOW));
}

/// `to` is where the flow over IPv6 is written.
pub(super) fn address_of_flow6(asm: &mut Assembler, to: super::assembler::Register) {
    asm.copy(to, R10);
    asm.add(to, i32::from(FLOW6));
}

/// Has no opinion of the packet: where [`PASS`] leads.
pub(super) fn pass(asm: &mut Assembler) {
    asm.place(PASS);
    asm.set(R0, NO_OPINION);
    asm.exit();
}

/// Copies to the stack from where `R2` says.
fn load_bytes(asm: &mut Assembler, to: i16, count: i32) {
    asm.copy(R1, R6);
    asm.copy(R3, R10);
    asm.add(R3, to.into());
    asm.set(R4, count);
    asm.set(R5, FROM_IP);
    asm.call(LOAD_RELATIVE);
    asm.jump_unless_equal(R0, 0, PASS);
}
