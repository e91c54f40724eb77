//! Configurations of other proxies and caches, and what Levada says in their place.
//!
//! Each converter reads a configuration into statements with their lines, looks each statement up in its tables,
//! fills a `Plan`, and enters the fate into a [`Ledger`]: taken over, needless, or left. The plan is written as
//! `levada.toml`. The crate `levada-conversion` has the parts that all of them share. This crate opens no files: the
//! caller hands over texts, and reads [`Includes`] when asked.
//!
//! A row has names of directives and their effect: the keys that it writes and how it reads their values, or the
//! reason why it is needless or left. `cargo xtask docs` writes the rows to the pages `docs/coming-from`.
//!
//! A CDN of Traffic Control becomes the directory of a fleet, a plan for each of its files ([`FleetDirectory`]).
//!
//! nginx's parser is our own: the published crate that knows its grammar is not kept any more and refuses
//! directives that it does not know, and the others bring more code than the grammar of words, quotes and
//! braces needs.

mod nginx;
mod trafficcontrol;
mod trafficserver;
mod varnish;

use levada_conversion::{
    conversion, files, gate, ledger, matchers, plan, pool, rows, table, tree, units, variables,
    vocabulary,
};

pub use conversion::{Conversion, Unreadable, report};
pub use files::{Includes, InputFile, NoIncludes};
pub use ledger::{Ledger, Place, Remark};
pub use nginx::{Aside, aside as nginx_aside, convert as nginx, described as nginx_directives};
pub use rows::{Becomes, Described};
pub use trafficcontrol::{
    FleetDirectory, convert as trafficcontrol, described as trafficcontrol_fields,
};
pub use trafficserver::{
    FILES as TRAFFIC_SERVER_FILES, convert as trafficserver, described as trafficserver_lines,
};
pub use varnish::{convert as varnish, described as varnish_statements};
