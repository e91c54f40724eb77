//! The parts that several commands of `levada` share, so that the labs and the commands for operators do not
//! depend on each other. The crate of the labs has the parts that only they and the demo share.
//!
//! ```text
//! color         whether text may have colours
//! output        reports as text or as JSON
//! status        how a command ended, and its exit code
//! stop          the signals that ask it to end
//! option        parsers of command-line options: durations, sizes, rates
//! sync_options  options of `levada sync` that are those of rsync
//! admin_client  requests to the admin address of a running node
//! node          `levada run` as a child process
//! leash         a child process that ends with its parent
//! content       bodies that a client can verify at any offset
//! ```

pub mod admin_client;
pub mod color;
pub mod content;
mod leash;
pub mod node;
pub mod option;
pub mod output;
mod status;
mod stop;
pub mod sync_options;

pub use leash::end_with_stdin;
pub use status::CommandStatus;
pub use stop::StopSignals;

/// Runs work on this thread to its end.
///
/// # Errors
/// If the system has no room for it.
pub fn block_on<F: Future>(work: F) -> std::io::Result<F::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}
