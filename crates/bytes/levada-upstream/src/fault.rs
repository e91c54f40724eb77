//! The fault between a node and a server that stays until an operator mends it, in words.

use parking_lot::Mutex;

/// Why the last TLS handshake failed, or why the server takes this node for no peer; none after one that succeeded.
#[derive(Debug, Default)]
pub(crate) struct LastFault(Mutex<Option<String>>);

impl LastFault {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Notes the result of an attempt. Returns whether it is another one than before.
    pub(crate) fn set(&self, fault: Option<&str>) -> bool {
        let mut known = self.0.lock();
        let changes = known.as_deref() != fault;
        if changes {
            *known = fault.map(str::to_owned);
        }
        changes
    }
}
