//! The changes that a site or a route makes to its requests and responses.

use std::sync::Arc;

use crate::{Destination, ErrorPages, FieldEdits, Maintenance, Rewrite};

/// The changes of a site or of a route. One that has none of them has no such value, and pays nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjustments {
    /// Edits of the fields that the origin gets.
    pub request: Arc<FieldEdits>,
    /// Edits of the fields that the client gets.
    pub response: Arc<FieldEdits>,
    /// The path and query that the origin is asked with; `None`: the client's.
    pub rewrite: Option<Rewrite>,
    /// The response during maintenance, while there is any.
    pub maintenance: Option<Maintenance>,
    /// The bodies of errors.
    pub pages: ErrorPages,
    /// Whether requests have identifiers, which origins and clients get.
    pub request_id: bool,
    /// Where a request goes on whose file is not there.
    pub without_file: Option<Destination>,
}

impl Adjustments {
    /// Whether there is something to change.
    pub fn change_something(&self) -> bool {
        !self.request.is_empty()
            || !self.response.is_empty()
            || self.rewrite.is_some()
            || self.maintenance.is_some()
            || !self.pages.is_empty()
            || self.request_id
            || self.without_file.is_some()
    }

    /// Whether requests need identifiers.
    pub fn use_request_id(&self) -> bool {
        self.request_id || self.request.uses_request_id() || self.response.uses_request_id()
    }

    /// The changes, for operators.
    pub fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(maintenance) = &self.maintenance {
            words.push(format!("under maintenance: {}", maintenance.status));
        }
        words.extend(
            self.without_file
                .iter()
                .map(|to| format!("a request without a file goes on at {}", to.in_words())),
        );
        words.extend(self.rewrite.iter().flat_map(Rewrite::in_words));
        words.extend(self.pages.in_words());
        if self.request_id {
            words.push("requests have identifiers".to_owned());
        }
        words.extend(self.request.in_words("request field"));
        words.extend(self.response.in_words("response field"));
        words
    }
}
