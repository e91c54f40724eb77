//! A Levada node: sockets around the policies and the cache.

pub mod settings;
