//! The back-end's filter: it drops packets that arrive before their connection.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{
    BpfError,
    assembler::{Assembler, JumpLabel, Register::*, Size::*},
    kernel::{Program, ProgramType},
    packet::{self, DROP, IcmpErrors, PASS, SYN},
};
use crate::netlink::{DeviceSlot, Filter, GUARD};
use std::os::fd::AsFd as _;

/// Drops packets for `services` that belong to no connection here.
///
/// While a connection moves, its packets arrive at a host that does not have it yet, or no longer
/// has it. The kernel would answer with a reset. The filter drops such a packet, so that its sender
/// sends it again.
pub struct Guard {
    _filters: Vec<Filter>,
}

impl Guard {
    /// Attaches the filter to a device.
    ///
    /// # Errors
    /// Without the capabilities NET_ADMIN and BPF, if there is no such device, or if two other processes have
    /// their filters there.
    pub fn start(device: &str, services: &[SocketAddr]) -> Result<Self, BpfError> {
        let (mut four, mut six) = (Vec::new(), Vec::new());
        for service in services {
            match service {
                SocketAddr::V4(service) => four.push(*service),
                SocketAddr::V6(service) => six.push(*service),
            }
        }
        let slot = DeviceSlot::claim(device, GUARD)?;
        let mut filters = Vec::new();
        let [guard4, guard6] = GUARD;
        for (place, is_wanted, program) in
            [(guard4, !four.is_empty(), program(&four)), (guard6, !six.is_empty(), program6(&six))]
        {
            if is_wanted {
                let guard = Program::load(ProgramType::Classifier, "levada_guard", &program);
                let guard = guard.map_err(BpfError::Program)?;
                filters.push(Filter::attach(&slot, place, guard.as_fd())?);
            }
        }
        Ok(Self { _filters: filters })
    }
}

/// `bpf_skc_lookup_tcp`: the socket of a packet, in any state.
const LOOKUP_SOCKET: i32 = 99;
/// `bpf_sk_release`, which the verifier requires for every socket that was found.
const RELEASE: i32 = 86;
/// The offset of the state in `struct bpf_sock`.
const STATE: i16 = 72;
const LISTENS: i32 = 10;
/// The network namespace of the device.
const HERE: i32 = -1;

/// ```c
/// if (!tcp_over_ipv4(packet)) return NO_OPINION;
/// if (none of services is the destination) return NO_OPINION;
/// if (flags & SYN) return NO_OPINION;
/// struct bpf_sock *socket = bpf_skc_lookup_tcp(packet, &flow, sizeof(flow), HERE, 0);
/// if (!socket) return DROP;
/// u32 state = socket->state;
/// bpf_sk_release(socket);
/// return state == LISTENS ? DROP : NO_OPINION;
/// ```
fn program(services: &[SocketAddrV4]) -> Vec<u64> {
    let mut asm = Assembler::default();
    packet::read_headers(&mut asm, IcmpErrors::Pass);
    for (index, service) in services.iter().enumerate() {
        let other = JumpLabel(3 + index);
        asm.load(Word, R1, R10, packet::FLOW + 4);
        asm.jump_unless_word(R1, u32::from_ne_bytes(service.ip().octets()), other);
        asm.load(Half, R1, R10, packet::FLOW + 10);
        asm.jump_if_equal(R1, service.port().to_be().into(), OURS);
        asm.place(other);
    }
    unless_it_begins(&mut asm);
    packet::address_of_flow(&mut asm, R2);
    asm.set(R3, packet::FLOW_LENGTH as i32);
    judge(&mut asm);
    asm.finish()
}

/// The filter for IPv6.
fn program6(services: &[SocketAddrV6]) -> Vec<u64> {
    let mut asm = Assembler::default();
    packet::read_headers6(&mut asm, IcmpErrors::Pass);
    for (index, service) in services.iter().enumerate() {
        let other = JumpLabel(3 + index);
        for (at, word) in (16..).step_by(4).zip(service.ip().octets().as_chunks().0) {
            asm.load(Word, R1, R10, packet::FLOW6 + at);
            asm.jump_unless_word(R1, u32::from_ne_bytes(*word), other);
        }
        asm.load(Half, R1, R10, packet::FLOW6 + 34);
        asm.jump_if_equal(R1, service.port().to_be().into(), OURS);
        asm.place(other);
    }
    unless_it_begins(&mut asm);
    packet::address_of_flow6(&mut asm, R2);
    asm.set(R3, packet::FLOW6_LENGTH as i32);
    judge(&mut asm);
    asm.finish()
}

/// Ends here for packets that are not for [`OURS`], and for packets that begin a connection.
fn unless_it_begins(asm: &mut Assembler) {
    asm.set(R0, packet::NO_OPINION);
    asm.exit();
    asm.place(OURS);
    packet::load_flags(asm, SYN);
    asm.jump_unless_equal(R1, 0, PASS);
}

/// Decides about a packet for one of the services; `R2` and `R3` hold its flow.
fn judge(asm: &mut Assembler) {
    asm.copy(R1, R6);
    asm.set(R4, HERE);
    asm.set(R5, 0);
    asm.call(LOOKUP_SOCKET);
    asm.jump_if_equal(R0, 0, AWAY);
    asm.load(Word, R7, R0, STATE);
    asm.copy(R1, R0);
    asm.call(RELEASE);
    asm.jump_unless_equal(R7, LISTENS, PASS);
    asm.place(AWAY);
    asm.set(R0, DROP);
    asm.exit();
    packet::pass(asm);
}

const OURS: JumpLabel = JumpLabel(1);
const AWAY: JumpLabel = JumpLabel(2);
