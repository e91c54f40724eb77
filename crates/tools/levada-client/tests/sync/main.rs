//! Trees that are published and pulled over real sockets and files. The cases are those that the tests of
//! rsync have, in our words, and those in which a destination could be wrong and be called right.

mod attributes;
mod filters;
mod follow;
mod killed;
mod right;
mod world;
