//! The highest resident memory of the nodes.

use std::{cell::Cell, rc::Rc, time::Duration};

use levada_testbed::cluster::resident;
use tokio::time::sleep;

use super::door::Door;

/// Watches all nodes until it is dropped.
pub(super) async fn watch(doors: Rc<[Door]>, highest: Rc<Cell<u64>>) {
    loop {
        for process in doors.iter().filter_map(Door::process) {
            highest.set(highest.get().max(resident(process, "VmHWM:").unwrap_or(0)));
        }
        sleep(SAMPLE_INTERVAL).await;
    }
}

/// The interval at which the memory of the nodes is read: a fault lasts for seconds.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_of_this_process_is_known() {
        assert!(resident(std::process::id(), "VmHWM:") > Some(1 << 20));
        assert_eq!(resident(u32::MAX, "VmHWM:"), None);
    }
}
