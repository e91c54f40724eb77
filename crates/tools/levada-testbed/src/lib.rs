//! Clusters of real nodes and of emulated servers, and the load on them: the parts that labs share, and `levada demo`
//! with them.

pub mod cluster;
#[cfg(target_os = "linux")]
pub mod emulation;
pub mod options;
