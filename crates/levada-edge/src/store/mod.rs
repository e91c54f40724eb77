//! What a node keeps: complete responses, found by the hash of their URI.

mod memory;

pub(crate) use memory::{Memory, Object, StoredHead};
