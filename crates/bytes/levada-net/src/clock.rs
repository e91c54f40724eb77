//! Whether the clock of this machine is synchronised.

use std::{io, time::Duration};

/// The state of the clock, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Whether a program keeps it in step with other clocks.
    pub is_synchronised: bool,
    /// The most by which that program thinks it is wrong.
    pub largest_error: Duration,
}

/// Asks the kernel (adjtimex(2)), which needs no permission.
///
/// # Errors
/// When the system does not allow it, as in some containers.
pub fn state() -> io::Result<ClockState> {
    // SAFETY: all zeros is a value of this structure of integers: no change is requested.
    #[expect(unsafe_code)]
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes the structure, which is ours and initialised.
    #[expect(unsafe_code)]
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ClockState {
        is_synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
        largest_error: Duration::from_micros(timex.maxerror.max(0) as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_tells_the_state_of_its_clock() {
        // Some containers forbid the question.
        match state() {
            Ok(state) => assert!(!state.is_synchronised || state.largest_error > Duration::ZERO),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
