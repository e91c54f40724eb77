//! Why the last TLS handshake with a server failed, for operators.

use parking_lot::Mutex;

/// The reason, in words; none after a handshake that succeeded.
#[derive(Debug, Default)]
pub(crate) struct LastTlsFault(Mutex<Option<String>>);

impl LastTlsFault {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Notes the result of a handshake. Returns whether it is another one than before.
    pub(crate) fn set(&self, fault: Option<&str>) -> bool {
        let mut known = self.0.lock();
        let changes = known.as_deref() != fault;
        if changes {
            *known = fault.map(str::to_owned);
        }
        changes
    }
}
