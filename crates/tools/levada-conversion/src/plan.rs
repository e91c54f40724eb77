//! The new file while it is made.

use std::fmt;

use crate::{
    gate,
    table::{Table, Value},
};

/// The tables of a `levada.toml`.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Keys before the first table.
    pub top: Table,
    /// The `[[listen]]` tables.
    pub listen: Vec<Table>,
    /// The `[[trusted]]` tables.
    pub trusted: Vec<Table>,
    /// `[cache]`.
    pub cache: Table,
    /// `[limits]`.
    pub limits: Table,
    /// `[log]`.
    pub log: Table,
    /// `[session_tickets]`.
    pub tickets: Table,
    /// `[defaults]`; its marks hold for all sites.
    pub defaults: Table,
    /// The sites, in the order of the file.
    pub sites: Vec<Site>,
}

impl Plan {
    /// The `[[listen]]` of an address, made if there is none.
    pub fn listener(&mut self, address: &str) -> &mut Table {
        let is_own = |own: &Table| own.get("address") == Some(&address.into());
        let at = self.listen.iter().position(is_own).unwrap_or(self.listen.len());
        if at == self.listen.len() {
            self.listen.push(Table::from_iter([("address", address.into())]));
        }
        &mut self.listen[at]
    }

    /// Sets bounds of the whole node. Returns whether no other value was stated before.
    pub fn limit(&mut self, keys: &[&str], value: &Value) -> bool {
        let is_other = |key: &&str| self.limits.get(key).is_some_and(|own| own != value);
        let is_free = !keys.iter().any(is_other);
        if is_free {
            keys.iter().for_each(|key| self.limits.set(key, value.clone()));
        }
        is_free
    }
}

/// A `[[site]]`.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Where it comes from.
    pub comment: String,
    /// Its keys.
    pub table: Table,
    /// Its routes, in order.
    pub routes: Vec<Route>,
}

impl Site {
    /// Closes what is marked so. A site has no answers of its own: those for all its requests are its last route.
    pub fn settle(&mut self) {
        gate::settle(self);
        let mut rest = Route::default();
        for key in ["redirect", "respond"] {
            if let Some(value) = self.table.remove(key) {
                rest.table.set(key, value);
            }
        }
        if !rest.table.is_empty() && !self.routes.iter().any(Route::takes_all) {
            self.routes.push(rest);
        }
    }
}

/// A `[[site.route]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// Where it comes from.
    pub comment: String,
    /// Its keys.
    pub table: Table,
}

impl Route {
    /// Whether it takes every request.
    pub fn takes_all(&self) -> bool {
        !MATCHERS.iter().any(|matcher| self.table.get(matcher).is_some())
    }
}

/// The keys of a route that say which requests it takes.
const MATCHERS: [&str; 10] = [
    "path",
    "path_regex",
    "host",
    "scheme",
    "method",
    "header",
    "query",
    "cookie",
    "client",
    "when",
];

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.top)?;
        for listen in &self.listen {
            section(f, "[[listen]]", "", listen)?;
        }
        for trusted in &self.trusted {
            section(f, "[[trusted]]", "", trusted)?;
        }
        let tables = [
            ("[cache]", &self.cache),
            ("[limits]", &self.limits),
            ("[log]", &self.log),
            ("[session_tickets]", &self.tickets),
            ("[defaults]", &self.defaults),
        ];
        for (header, table) in tables {
            if !table.is_empty() {
                section(f, header, "", table)?;
            }
        }
        for site in &self.sites {
            section(f, "[[site]]", &site.comment, &site.table)?;
            for route in &site.routes {
                section(f, "[[site.route]]", &route.comment, &route.table)?;
            }
        }
        writeln!(f)
    }
}

fn section(f: &mut fmt::Formatter<'_>, header: &str, comment: &str, table: &Table) -> fmt::Result {
    writeln!(f)?;
    for line in comment.lines() {
        writeln!(f, "# {}", line.replace(|c: char| c.is_control(), " "))?;
    }
    writeln!(f, "{header}")?;
    for (key, value) in table.iter().filter(|(_, value)| apart(value).is_empty()) {
        let mut one = Table::default();
        one.set(key, value.clone());
        write!(f, "{one}")?;
    }
    let name = header.trim_matches(['[', ']']);
    for (key, value) in table.iter() {
        let header = match value {
            Value::List(_) => format!("[[{name}.{key}]]"),
            _ => format!("[{name}.{key}]"),
        };
        apart(value).into_iter().try_for_each(|inner| section(f, &header, "", inner))?;
    }
    Ok(())
}

/// The tables that stand under a header of their own: long ones, and those of a list.
fn apart(value: &Value) -> Vec<&Table> {
    match value {
        Value::Inline(table) if value.to_string().len() > 100 => vec![table],
        Value::List(list) => list.iter().filter_map(Value::table).collect(),
        _ => Vec::new(),
    }
}
