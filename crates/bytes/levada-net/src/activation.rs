//! Socket activation: starts a program with listening sockets, as systemd does (sd_listen_fds(3)).

use std::{
    io,
    mem::ManuallyDrop,
    os::{
        fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    process::Command,
};

use rustix::io::{dup2, fcntl_dupfd_cloexec};

/// The first number of a passed socket.
const FIRST: RawFd = 3;

/// Lets a command start with these sockets. The program still has to set `LISTEN_PID` to its own number, which nobody
/// knows before: [`WRAPPER`] does.
///
/// # Errors
/// When the system has no more descriptors.
pub fn pass_sockets(command: &mut Command, sockets: &[impl AsFd]) -> io::Result<()> {
    let end = FIRST + RawFd::try_from(sockets.len()).map_err(io::Error::other)?;
    // Beyond the numbers that they get.
    let copies = sockets.iter().map(|socket| Ok(fcntl_dupfd_cloexec(socket, end)?));
    let copies = copies.collect::<io::Result<Vec<OwnedFd>>>()?;
    // The numbers are taken in this process, so that none of them is a pipe by which the start reports its errors.
    let mut taken = Vec::new();
    while let Some(socket) = copies.first() {
        let placeholder = fcntl_dupfd_cloexec(socket, FIRST)?;
        if placeholder.as_raw_fd() >= end {
            break;
        }
        taken.push(placeholder);
    }
    command.env("LISTEN_FDS", sockets.len().to_string());
    let pass = move || {
        let _taken = &taken;
        for (number, copy) in (FIRST..).zip(&copies) {
            // SAFETY: in the new process, this number belongs to a placeholder, which is never closed there, or to
            // nothing. It is not closed here either.
            #[expect(unsafe_code)]
            let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
            dup2(copy, &mut place)?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls on values of its own and allocates nothing, so it does not depend on
    // state that a fork of a multi-threaded process can leave inconsistent.
    #[expect(unsafe_code)]
    unsafe {
        command.pre_exec(pass)
    };
    Ok(())
}

/// A command before which the program and its arguments are put, so that the program finds its own number in
/// `LISTEN_PID`.
pub const WRAPPER: [&str; 4] = ["sh", "-c", "export LISTEN_PID=$$; exec \"$@\"", "sh"];

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process::Stdio};

    use super::*;

    #[test]
    fn program_gets_the_sockets_in_their_order() {
        let sockets = [(); 6].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let mut command = Command::new(WRAPPER[0]);
        // `/proc/net/tcp` has the inodes of the sockets.
        let told = "test $LISTEN_PID = $$ && echo $LISTEN_FDS && readlink /proc/$$/fd/[3-8]";
        command.args(&WRAPPER[1..]).args(["sh", "-c", told]).stdout(Stdio::piped());
        pass_sockets(&mut command, &sockets).unwrap();
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let own = |socket: &TcpListener| {
            let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
            std::fs::read_link(link).unwrap().display().to_string()
        };
        let mut expected = vec!["6".to_owned()];
        expected.extend(sockets.iter().map(own));
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    }
}
