//! Configurations of Caddy, and what Levada says in their place.
//!
//! ```text
//! Caddyfile ──► words ──► directives, imports in their places ─┐
//! JSON of `caddy adapt` ──► the same directives (json) ────────┤
//!                                                              ▼
//!                            options ──► keys of the node    sites: addresses, hosts
//!                                                              │ directives in Caddy's order
//!                                                              ▼
//!                                              Decisions: routes of which the first counts
//! ```
//!
//! Caddy runs handlers one after the other until one answers; a node takes one route.
//! `levada_conversion::decisions` makes the one of the other.

mod converter;
mod json;
mod matchers;
mod parse;
mod proxy;
mod site;
mod tables;
mod texts;

#[cfg(test)]
mod tests;

use levada_conversion::{
    conversion::{Conversion, Unreadable},
    files::{Includes, InputFile},
    ledger::Ledger,
    rows::{self, Described},
};

/// Converts a Caddyfile with its imports, or the JSON that `caddy adapt` writes.
///
/// # Errors
/// When the file is not written in the grammar of either.
pub fn convert(file: &InputFile, includes: &dyn Includes) -> Result<Conversion, Unreadable> {
    let mut ledger = Ledger::default();
    let nodes = match json::is_json(&file.text) {
        true => json::nodes(file)?,
        false => parse::file(file, includes, &mut ledger)?,
    };
    let mut converter = converter::Converter::new(ledger, &file.name);
    converter.convert(&nodes);
    Ok(Conversion::new(converter.plan, converter.ledger))
}

/// The fates of directives, for the documentation.
pub fn described() -> Vec<Described> {
    [
        rows::described("options", tables::OPTIONS),
        rows::described("", tables::DIRECTIVES),
        rows::described("reverse_proxy", proxy::LINES),
    ]
    .concat()
}
