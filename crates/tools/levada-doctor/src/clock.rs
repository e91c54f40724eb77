//! Whether the clock is synchronised.

use levada_net::clock::{self, ClockState};
use levada_types::format_duration;

use crate::Finding;

pub(crate) fn check() -> Finding {
    match clock::state() {
        Ok(state) => judge(&state),
        Err(error) => {
            Finding::skip("clock", format!("the system does not tell its state: {error}"))
        }
    }
}

fn judge(state: &ClockState) -> Finding {
    if state.is_synchronised {
        let error = format_duration(state.largest_error);
        return Finding::ok("clock", format!("synchronised, at most {error} wrong"));
    }
    Finding::warn("clock", "not synchronised")
        .meaning("certificates, signed URLs and the ages of responses depend on the clock; a drifting one makes nodes disagree")
        .remedy("timedatectl set-ntp true, or install chrony; in a container, on the host")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Level;

    #[test]
    fn a_clock_that_nothing_synchronises_is_told() {
        let state = |is_synchronised| ClockState {
            is_synchronised,
            largest_error: Duration::from_millis(12),
        };
        assert_eq!(judge(&state(true)).seen, "synchronised, at most 12ms wrong");
        assert_eq!(judge(&state(false)).level, Level::Warn);
    }
}
