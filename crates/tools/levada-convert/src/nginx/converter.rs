//! The work so far, and the level that is read.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    conditions::{Flags, Maps},
    log_format::LogFormats,
    parse::Directive,
    upstream::Upstream,
    variables::Constants,
};
use crate::{
    ledger::{Ledger, Outcome, Stated as _},
    plan::Plan,
};

/// A block of directives within the blocks around it.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(super) directives: &'a [Directive],
    pub(super) outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    /// The directives of this name at the nearest level that has any.
    pub(super) fn nearest(&self, name: &str) -> Vec<&'a Directive> {
        let own: Vec<_> = self.own(name).collect();
        match self.outer {
            Some(outer) if own.is_empty() => outer.nearest(name),
            _ => own,
        }
    }

    /// The level of a block within this one.
    pub(super) fn within(&'a self, block: &'a Directive) -> Scope<'a> {
        Scope { directives: block.inner(), outer: Some(self) }
    }

    pub(super) fn own(&self, name: &str) -> impl Iterator<Item = &'a Directive> {
        self.directives.iter().filter(move |directive| directive.name == name)
    }

    /// The first argument of the nearest directive of this name.
    pub(super) fn nearest_arg(&self, name: &str) -> Option<&'a str> {
        self.nearest(name).first().map(|directive| directive.arg(0))
    }
}

/// The work so far.
#[derive(Default)]
pub(crate) struct Converter {
    pub(super) plan: Plan,
    pub(super) ledger: Ledger,
    pub(super) upstreams: BTreeMap<String, Upstream>,
    pub(super) maps: Maps,
    pub(super) request_zones: Zones,
    pub(super) connection_zones: Zones,
    pub(super) flags: Flags,
    /// Variables that are set for requests that no condition can name.
    pub(super) unknown: BTreeSet<String>,
    /// The addresses of `set_real_ip_from`, at whatever level.
    pub(super) proxies: BTreeSet<String>,
    /// How long each cache keeps what nobody asks for.
    pub(super) caches: BTreeMap<String, String>,
    /// Variables with one value.
    pub(super) constants: Constants,
    pub(super) log_formats: LogFormats,
}

impl Converter {
    pub(super) fn enter(&mut self, directive: &Directive, outcome: Outcome) {
        self.ledger.enter(directive, outcome);
    }

    pub(super) fn enter_whole(&mut self, directive: &Directive, outcome: &Outcome) {
        self.ledger.enter_whole(directive, outcome);
    }

    /// Enters the directives of this name that count at a level.
    pub(super) fn enter_nearest(&mut self, scope: &Scope<'_>, name: &str, outcome: &Outcome) {
        for directive in scope.nearest(name) {
            self.enter(directive, outcome.clone());
        }
    }
}

/// A rate of `limit_req_zone`, or a key of `limit_conn_zone`.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub(super) key: Result<String, String>,
    pub(super) rate: String,
}

/// Zones by their names.
pub(super) type Zones = BTreeMap<String, Zone>;
