//! The parts of a row of nginx's tables.

use super::{
    converter::{Converter, Scope},
    parse::Directive,
};
use crate::{
    gate::Concern,
    ledger::{Outcome, TAKEN, left},
    rows::Row,
    table::{Table, Value},
    units,
};

/// A directive at its level, and the table of that level.
pub(super) struct Setting<'a> {
    pub(super) converter: &'a mut Converter,
    pub(super) scope: &'a Scope<'a>,
    pub(super) directive: &'a Directive,
    pub(super) table: &'a mut Table,
}

impl<'a> Setting<'a> {
    pub(super) fn arg(&self, index: usize) -> &'a str {
        self.directive.arg(index)
    }

    /// Sets `key` of the level, such as `max_body` and `compress.types`.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) -> Outcome {
        self.table.set_path(key, value);
        TAKEN
    }
}

pub(super) type Read = fn(&mut Setting<'_>) -> Outcome;

/// How a directive is read.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    /// In this turn.
    At(Turn, Read),
    /// Its first argument is the value of the keys that its row names.
    Value(units::Read),
    /// With its block or with the directive that uses it; if nothing does, for this reason.
    Elsewhere(&'static str),
}

/// The order in which the directives of a level are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Once, in `http`: it names something for others.
    Http,
    /// Before others of its level, which use it.
    First,
    Main,
    /// After others of its level.
    Last,
}

/// A directive that writes `keys`.
pub(super) const fn key(names: &'static str, keys: &'static str, read: Read) -> Row<Reader> {
    Row::writes(names, keys, Reader::At(Turn::Main, read))
}

/// A rule of access, which closes its place if it cannot be converted.
pub(super) const fn rule(names: &'static str, keys: &'static str, read: Read) -> Row<Reader> {
    key(names, keys, read).about(Concern::Access)
}

/// A rule of the cache, without which nothing is stored.
pub(super) const fn stores(names: &'static str, keys: &'static str, read: Read) -> Row<Reader> {
    key(names, keys, read).about(Concern::Storing)
}

/// A directive whose first argument is the value of `keys`.
pub(super) const fn value(
    names: &'static str,
    keys: &'static str,
    read: units::Read,
) -> Row<Reader> {
    Row::writes(names, keys, Reader::Value(read))
}

pub(super) const fn at(
    turn: Turn,
    names: &'static str,
    keys: &'static str,
    read: Read,
) -> Row<Reader> {
    Row::writes(names, keys, Reader::At(turn, read))
}

/// A directive that is read with its block, or with one that uses it.
pub(super) const fn elsewhere(names: &'static str, keys: &'static str) -> Row<Reader> {
    Row::writes(names, keys, Reader::Elsewhere(""))
}

pub(super) const NOTHING: &str = "Levada has nothing for this directive";

pub(super) fn nothing(_: &mut Setting<'_>) -> Outcome {
    left(NOTHING)
}
