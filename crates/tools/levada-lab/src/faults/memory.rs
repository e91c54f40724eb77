//! The highest resident memory of the nodes.

use std::{cell::Cell, fs, rc::Rc, time::Duration};

use tokio::time::sleep;

use super::door::Door;

/// Watches all nodes until it is dropped.
pub(super) async fn watch(doors: Rc<[Door]>, highest: Rc<Cell<u64>>) {
    loop {
        for process in doors.iter().filter_map(Door::process) {
            highest.set(highest.get().max(peak(process).unwrap_or(0)));
        }
        sleep(SAMPLE_INTERVAL).await;
    }
}

/// The highest resident memory of a process so far, in bytes; `None` when it is gone.
fn peak(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The interval at which the memory of the nodes is read: a fault lasts for seconds.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_of_this_process_is_known() {
        assert!(peak(std::process::id()) > Some(1 << 20));
        assert_eq!(peak(u32::MAX), None);
    }
}
