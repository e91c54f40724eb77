//! Doors before real clients: OpenSSL, curl and Python.

mod clients;
mod files;
mod ocsp;
mod support;
mod tickets;
mod versions;
