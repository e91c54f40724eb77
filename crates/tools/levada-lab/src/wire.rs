//! `levada lab wire`: a command behind an emulated wire.

use std::{
    net::{Ipv4Addr, UdpSocket},
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitStatus},
    sync::atomic::Ordering::Relaxed,
};

use anyhow::{Context as _, bail};
use levada_net::{
    lab::{Access, Child, Host, Network},
    wire::{Meter, Shape, ShapeError, Wire},
};
use tokio::signal::unix::{SignalKind, signal};

use super::args::{PathArgs, WireArgs};
use levada_client::command::CommandStatus;

/// Runs the command to its end.
///
/// # Errors
/// If the network cannot be created, or the command cannot be started.
pub(crate) fn run(args: &WireArgs) -> anyhow::Result<CommandStatus> {
    let [a, b, c, _] = args.network.octets();
    let (far_address, near_address) = (Ipv4Addr::new(a, b, c, 1), Ipv4Addr::new(a, b, c, 2));
    let down = shape(&args.path)?;
    let up = Shape { loss: args.ack_loss.unwrap_or(down.loss), ..down };

    let mut network = Network::new(args.seed);
    let near = network.host("near")?;
    let far = if args.server.is_some() { network.host("far")? } else { network.outside()? };
    if args.server.is_none() && UdpSocket::bind((far_address, 0)).is_ok() {
        bail!("this machine has the address {far_address} already: choose another --network");
    }
    let wire = network.join(&[
        (&far, Access::at(far_address).sending(down)),
        (&near, Access::at(near_address).sending(up)),
    ])?;
    near.set(CONGESTION, &args.congestion)?;
    let mut server = None;
    if let Some(script) = &args.server {
        far.set(CONGESTION, &args.congestion)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        server = Some(far.start(shell)?);
    }

    let Some((program, arguments)) = args.command.split_first() else {
        bail!("no command: `levada lab wire ... -- COMMAND`");
    };
    let mut command = Command::new(program);
    command.args(arguments);
    command.env("LEVADA_WIRE_FAR", far_address.to_string());
    command.env("LEVADA_WIRE_NEAR", near_address.to_string());
    let status = to_its_end(&near, command)?;
    drop(server);
    report(&wire);
    // The exit code of a shell for a signal: its number and 128.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(CommandStatus::Exit(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The properties of both directions.
pub(super) fn shape(path: &PathArgs) -> Result<Shape, ShapeError> {
    let PathArgs { rate, delay, loss, queue } = *path;
    Shape { rate: rate.map(|bytes| bytes * 8), delay, loss, queue, ..Shape::default() }.checked()
}

/// The command handles the terminal's interrupts; a signal to this process ends both.
fn to_its_end(host: &Host, command: Command) -> anyhow::Result<ExitStatus> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut ended = signal(SignalKind::child())?;
        let mut child: Child = host.start_in_front(command)?;
        loop {
            if let Some(status) = child.process.try_wait().context("the command is lost")? {
                return Ok(status);
            }
            tokio::select! {
                _ = ended.recv() => {}
                _ = interrupt.recv() => {}
                _ = terminate.recv() => return Ok(ended_by(SignalKind::terminate())),
                _ = hangup.recv() => return Ok(ended_by(SignalKind::hangup())),
            }
        }
    })
}

fn ended_by(signal: SignalKind) -> ExitStatus {
    ExitStatus::from_raw(signal.as_raw_value())
}

fn report(wire: &Wire) {
    let line = |name: &str, meter: &Meter| {
        let [packets, lost, overflowed] =
            [&meter.packets, &meter.lost, &meter.overflowed].map(|count| count.load(Relaxed));
        eprintln!("{name}: {packets} packets, {lost} lost, {overflowed} found the queue full");
    };
    line("to the command", wire.up(0));
    line("from the command", wire.up(1));
}

const CONGESTION: &str = "net.ipv4.tcp_congestion_control";
