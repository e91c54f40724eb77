//! Configurations of HAProxy, and what Levada says in their place.
//!
//! ```text
//! lines ──► sections ──► global, cache, userlist ──► keys of the node
//!              │
//!              ├─ frontend, listen ──► hosts that conditions name: a site each
//!              │                          │ the rules, in HAProxy's order
//!              └─ backend ────────────────┤ conditions as matchers and expressions
//!                                         ▼
//!                                    Decisions: routes of which the first counts
//! ```
//!
//! HAProxy runs all rules whose conditions hold until one answers or names a backend; a node takes one route.
//! `levada_conversion::decisions` makes the one of the other. A condition on the host is decided for each site.

mod condition;
mod converter;
mod files;
mod hosts;
mod listen;
mod parse;
mod rules;
mod sample;
mod servers;
mod tables;

#[cfg(test)]
mod tests;

use levada_conversion::{
    conversion::{Conversion, Unreadable},
    files::{Includes, InputFile},
    rows::{self, Described},
};

/// Converts a file, with the lists and maps that it names.
///
/// # Errors
/// When the file is not written in HAProxy's grammar.
pub fn convert(file: &InputFile, includes: &dyn Includes) -> Result<Conversion, Unreadable> {
    let sections = parse::sections(file)?;
    let mut converter = converter::Converter::new(includes);
    converter.convert(&sections);
    Ok(Conversion::new(converter.plan, converter.ledger))
}

/// The fates of statements, for the documentation.
pub fn described() -> Vec<Described> {
    [
        rows::described("", tables::SECTIONS),
        rows::described("global", tables::GLOBAL),
        rows::described("bind", listen::BIND),
        rows::described("proxies", tables::PROXY),
        rows::described("server", servers::SERVER),
    ]
    .concat()
}
