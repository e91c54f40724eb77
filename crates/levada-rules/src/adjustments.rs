//! The changes that a site or a route makes to its requests and responses.

use std::sync::Arc;

use crate::FieldEdits;

/// The changes of a site or of a route. One that has none of them has no such value, and pays nothing.
#[derive(Clone, Debug, Default)]
pub struct Adjustments {
    /// Edits of the fields that the origin gets.
    pub request: Arc<FieldEdits>,
    /// Edits of the fields that the client gets.
    pub response: Arc<FieldEdits>,
}

impl Adjustments {
    /// Whether there is something to change.
    pub fn change_something(&self) -> bool {
        !self.request.is_empty() || !self.response.is_empty()
    }

    /// Whether requests need identifiers.
    pub fn use_request_id(&self) -> bool {
        self.request.uses_request_id() || self.response.uses_request_id()
    }

    /// The changes, for operators.
    pub fn in_words(&self) -> Vec<String> {
        let mut words = self.request.in_words("request field");
        words.extend(self.response.in_words("response field"));
        words
    }
}
