//! The parts that labs of clusters share: the objects of a load, and the origin that has them.

pub(crate) mod objects;
pub(crate) mod origin;
