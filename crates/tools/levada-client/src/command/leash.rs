//! A child process that must not outlive its parent reads its standard input, a pipe that the parent
//! holds: the system closes the pipe when the parent ends, even when it is killed.

use std::{io, thread};

/// Starts a thread that ends this process when standard input ends. It drains no requests: the parent,
/// the only client, is gone.
///
/// # Errors
/// When the system has no thread left.
pub fn end_with_stdin() -> io::Result<()> {
    let watch = || {
        // A read error ends the process as well.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(watch)?;
    Ok(())
}
