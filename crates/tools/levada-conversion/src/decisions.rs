//! Rules that run one after the other, as routes of which the first that matches counts.
//!
//! A proxy that runs all rules whose conditions hold changes a request step by step, until a rule answers it or names a
//! server. A node takes one route. So each answer becomes one route for every combination of the changes before it:
//!
//! ```text
//! change A if a         route  a && b   A, answer B
//! answer B if b   ──►   route  b        answer B
//! answer C              route  a        A, C
//!                       site            C
//! ```

use crate::{
    gate::Concern,
    ledger::Place,
    matchers::Condition,
    plan::{Route, Site},
    table::{Table, Value},
    vocabulary::{self, Edit, SERVERS},
};

/// Rules that were read so far, for the requests that come to them.
#[derive(Clone, Debug)]
pub struct Decisions {
    requests: Condition,
    routes: Vec<Route>,
    /// The keys of all requests from here on.
    pub keys: Table,
    changes: Vec<(Condition, Table)>,
    /// Whether no request comes further.
    has_ended: bool,
}

/// As many routes come of one answer.
const MOST: usize = 64;
/// As many routes come of all rules of a site.
const MOST_ROUTES: usize = 5_000;

/// The reason of rules that multiply.
pub const TOO_MANY: &str = "the conditions before it have too many combinations";
/// The reason of a condition that cannot be joined with another one.
pub const NO_ROUTE: &str = "a route cannot hold this condition together with those around it";

impl Default for Decisions {
    fn default() -> Self {
        Self {
            requests: Condition::everything(),
            routes: Vec::new(),
            keys: Table::default(),
            changes: Vec::new(),
            has_ended: false,
        }
    }
}

impl Decisions {
    /// The rules that follow for those requests only: of another block, with the changes that were made before it.
    ///
    /// # Errors
    /// If no route can hold the condition.
    pub fn within(&self, condition: &Condition) -> Result<Self, String> {
        let requests = self.requests.and(condition).ok_or(NO_ROUTE)?;
        Ok(Self { requests, routes: Vec::new(), ..self.clone() })
    }

    /// Whether no request comes further.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether these are all requests.
    pub fn is_plain(&self) -> bool {
        self.requests.holds_always()
    }

    /// Says that no request comes further: a block has taken all of them.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Puts the routes of other requests before those of these rules.
    pub fn prepend(&mut self, mut block: Self) {
        block.routes.append(&mut self.routes);
        self.routes = block.routes;
    }

    /// The routes of a block that was read by [`Decisions::within`].
    pub fn append(&mut self, block: Self) {
        self.routes.extend(block.routes);
    }

    /// Changes the requests for which the condition holds; they go on.
    ///
    /// # Errors
    /// If the changes have too many combinations.
    pub fn change(&mut self, condition: &Condition, keys: Table) -> Result<(), String> {
        if condition.holds_always() && self.changes.is_empty() {
            compose(&mut self.keys, keys);
            return Ok(());
        }
        let former = self.changes.len();
        self.changes.push((condition.clone(), keys));
        self.expanded(&Condition::everything()).map(drop).inspect_err(|_| {
            self.changes.truncate(former);
        })
    }

    /// Answers the requests for which the condition holds; no rule after it is for them.
    ///
    /// # Errors
    /// If no route can hold the condition.
    pub fn answer(
        &mut self,
        condition: &Condition,
        keys: &Table,
        comment: &str,
    ) -> Result<(), String> {
        if self.has_ended {
            return Ok(());
        }
        let all = self.expanded(condition)?;
        let mut routes = Vec::new();
        for (condition, own) in all {
            let mut table = condition.table().ok_or(NO_ROUTE)?;
            let mut whole = own;
            compose(&mut whole, keys.clone());
            table.lay_over(whole);
            has_captures(&table)?;
            routes.push(Route { comment: comment.to_owned(), table });
        }
        if self.routes.len() + routes.len() > MOST_ROUTES {
            return Err(TOO_MANY.to_owned());
        }
        self.routes.extend(routes);
        self.has_ended = condition.holds_always();
        Ok(())
    }

    /// The requests for which the condition holds, by the changes that were made to them.
    fn expanded(&self, condition: &Condition) -> Result<Vec<(Condition, Table)>, String> {
        let requests = self.requests.and(condition).ok_or(NO_ROUTE)?;
        let mut all = vec![(requests, self.keys.clone())];
        for (changed, keys) in &self.changes {
            let mut next = Vec::new();
            for (requests, own) in all {
                let mut with = own.clone();
                compose(&mut with, keys.clone());
                if changed.holds_always() || *changed == requests || changed == condition {
                    next.push((requests, with));
                    continue;
                }
                next.push((requests.and(changed).ok_or(NO_ROUTE)?, with));
                next.push((requests, own));
            }
            if next.len() > MOST {
                return Err(TOO_MANY.to_owned());
            }
            all = next;
        }
        Ok(all)
    }

    /// The site: its routes in order, and the keys of the requests that none of them takes.
    ///
    /// # Errors
    /// If the last requests cannot be said.
    pub fn finish(mut self, site: &mut Site, last: &Table, comment: &str) -> Result<(), String> {
        if !self.has_ended {
            let mut all = self.expanded(&Condition::everything())?;
            let (_, rest) = all.pop().ok_or(NO_ROUTE)?;
            for (condition, own) in all {
                let mut table = condition.table().ok_or(NO_ROUTE)?;
                let mut whole = own;
                compose(&mut whole, last.clone());
                table.lay_over(whole);
                has_captures(&table)?;
                self.routes.push(Route { comment: comment.to_owned(), table });
            }
            let mut whole = rest;
            compose(&mut whole, last.clone());
            // Keys that a route with servers of its own would inherit stand in the last route.
            match self.routes.iter().any(|route| would_inherit(&route.table, &whole)) {
                true => {
                    site.table.lay_over(whole.clone());
                    site.table.remove_all(OF_SERVERS);
                    self.routes.push(Route { comment: comment.to_owned(), table: whole });
                }
                false => site.table.lay_over(whole),
            }
        }
        if !site.table.has_any(SERVERS) && !site.table.has_any(&["files"]) {
            let of_route = |key| self.routes.iter().find_map(|route| route.table.get(key));
            let origin = of_route("origin").filter(|_| of_route("files").is_none());
            site.table.set("origin", origin.cloned().unwrap_or_else(|| NOT_ASKED.into()));
        }
        for mut route in self.routes {
            differ(&mut route.table, &site.table);
            site.routes.push(route);
        }
        // The last route has nothing that the site has not.
        if site.routes.last().is_some_and(|route| route.table.is_empty()) {
            site.routes.pop();
        }
        Ok(())
    }

    /// Marks all requests from here on: a rule about them was not converted.
    pub fn mark(&mut self, concern: Concern, at: &Place, statement: &str, reason: &str) {
        let mut marked = Table::default();
        let _ = crate::gate::pass_line(concern, at, statement, Err(reason.to_owned()), &mut marked);
        self.keys.1.merge(&marked.1);
        self.routes.iter_mut().for_each(|route| route.table.1.merge(&marked.1));
    }
}

/// The origin of a site whose routes answer all requests by themselves. Nothing listens there.
const NOT_ASKED: &str = "http://127.0.0.1:9";

/// Keys about the servers of a place and the requests to them, which places within it inherit.
const OF_SERVERS: &[&str] = &[
    "health_check",
    "origin_tls",
    "origin_host",
    "key",
    "protocol",
    "proxy_protocol",
    "slow_start",
    "admission",
    "rewrite",
    "strip_prefix",
    "add_prefix",
    "cache",
    "default_ttl",
    "heuristic_percent",
    "compress",
    "max_body",
];

/// Whether a route that asks servers would have a key of its site that it must not have.
fn would_inherit(route: &Table, site: &Table) -> bool {
    let asks = route.has_any(SERVERS) || route.has_any(&["files"]);
    asks && OF_SERVERS.iter().any(|key| {
        let value = route.get(key);
        // Tables are inherited key by key.
        let is_part = matches!(value, Some(Value::Inline(_))) && value != site.get(key);
        site.get(key).is_some() && (value.is_none() || is_part)
    })
}

/// A route whose texts have groups must have the expression with these groups.
fn has_captures(table: &Table) -> Result<(), String> {
    let texts = ["rewrite", "redirect"].iter().filter_map(|key| table.get(key));
    let uses = texts.map(ToString::to_string).any(|text| text.contains("{g"));
    match uses && !table.has_any(&["path_regex"]) {
        true => Err("a route looks at the path by one expression only".to_owned()),
        false => Ok(()),
    }
}

/// Adds changes to those of before: fields one by one, limits one after the other, rules of access so that both must
/// let a client pass, all else in place of the former.
pub fn compose(table: &mut Table, mut other: Table) {
    type EditField = fn(&mut Table, &str, Edit) -> crate::ledger::Outcome;
    let kinds: [(&str, EditField); 2] = [
        ("request_headers", vocabulary::edit_request),
        ("response_headers", vocabulary::edit_response),
    ];
    for (key, edit) in kinds {
        let Some(Value::Inline(edits)) = other.remove(key) else { continue };
        for name in edits.get("remove").map(Value::texts).unwrap_or_default() {
            let _ = edit(table, name, Edit::Remove);
        }
        for (part, of) in [("set", Edit::Set as fn(String) -> Edit), ("add", Edit::Add)] {
            for (name, value) in
                edits.get(part).and_then(Value::table).iter().flat_map(|t| t.iter())
            {
                for text in value.texts() {
                    let _ = edit(table, name, of(text.to_owned()));
                }
            }
        }
        for name in edits.get("keep").map(Value::texts).unwrap_or_default() {
            vocabulary::keep_field(table, key, name);
        }
    }
    let items = |value: Value| match value {
        Value::List(items) => items,
        one => vec![one],
    };
    if let Some(value) = other.remove("limit") {
        items(value).into_iter().for_each(|item| table.push("limit", item));
    }
    if let Some(value) = other.remove("access") {
        let former = table.remove("access").map(items).unwrap_or_default();
        let mut both = items(value);
        let is_deny = |item: &Value| item.texts().iter().all(|text| text.starts_with("deny"));
        // The first rule that matches counts: only what denies can stand before the former rules.
        match former.is_empty() || both.iter().all(is_deny) {
            true => both.extend(former),
            false => both = vec!["deny all".into()],
        }
        match both.first().is_some_and(|first| first.texts() == ["deny all"]) {
            true => table.set("access", "deny all"),
            false => table.set("access", Value::List(both)),
        }
    }
    // A path is replaced once.
    if table.has_any(&["rewrite"]) || other.has_any(&["rewrite"]) {
        for changed in [&mut *table, &mut other] {
            changed.remove_all(&["strip_prefix", "add_prefix"]);
        }
    }
    table.lay_over(other);
}

/// Takes out of a route the keys that it would inherit, and states those that it must not inherit.
fn differ(route: &mut Table, site: &Table) {
    let answers = route.has_any(vocabulary::ANSWERS);
    let is_server_key = |key: &str| SERVERS.contains(&key) || key == "policy";
    for (key, value) in site.iter() {
        match (key, route.get(key).cloned()) {
            ("hosts", _) => {}
            (key, own) if is_server_key(key) => {
                let same =
                    SERVERS.iter().chain(&["policy"]).all(|key| route.get(key) == site.get(key));
                if own.is_some() && same {
                    route.remove_all(SERVERS);
                    route.remove("policy");
                }
            }
            ("request_headers" | "response_headers", own) => {
                let own = own.as_ref().and_then(Value::table).cloned().unwrap_or_default();
                if key == "response_headers" || !answers {
                    differ_in_fields(route, key, &own, value);
                }
            }
            (_, Some(own)) if own == *value => drop(route.remove(key)),
            (_, Some(_)) => {}
            ("basic_auth" | "forward_auth", None) => route.set(key, "off"),
            ("access", None) => route.set(key, "allow all"),
            ("limit", None) => route.set(key, Value::List(Vec::new())),
            (_, None) => {}
        }
    }
}

fn differ_in_fields(route: &mut Table, key: &str, own: &Table, site: &Value) {
    let site = site.table().cloned().unwrap_or_default();
    let mut left = own.clone();
    for part in ["set", "add"] {
        for (name, value) in site.get(part).and_then(Value::table).iter().flat_map(|t| t.iter()) {
            let stated = ["set", "add"].iter().any(|part| {
                own.get(part).and_then(Value::table).is_some_and(|inner| inner.get(name).is_some())
            });
            let removed = own.get("remove").is_some_and(|list| list.texts().contains(&name));
            let same = own.get(part).and_then(|inner| inner.inner(name)) == Some(value);
            if same {
                left.inline(part).remove(name);
            } else if !stated && !removed {
                left.push("keep", name);
            }
        }
    }
    for name in site.get("remove").map(Value::texts).unwrap_or_default() {
        let stated = ["set", "add"].iter().any(|part| {
            own.get(part).and_then(Value::table).is_some_and(|inner| inner.get(name).is_some())
        });
        if !left.take_from_list("remove", name) && !stated {
            left.push("keep", name);
        }
    }
    left.retain(|value| !matches!(value, Value::Inline(inner) if inner.is_empty()));
    match left.is_empty() {
        true => drop(route.remove(key)),
        false => route.set(key, left),
    }
}

#[cfg(test)]
mod tests {
    use super::Decisions;
    use crate::{
        comparisons::{Comparison, Test, path},
        matchers::Condition,
        plan::Site,
        table::Table,
        vocabulary::{self, Edit},
    };

    fn at(text: &str) -> Condition {
        path(&Comparison { test: Test::Begins, texts: &[text.to_owned()], ignores_case: false })
            .unwrap()
    }

    fn field(name: &str, value: &str) -> Table {
        let mut keys = Table::default();
        vocabulary::edit_request(&mut keys, name, Edit::Set(value.to_owned())).unwrap();
        keys
    }

    fn origin(url: &str) -> Table {
        Table::from_iter([("origin", url.into())])
    }

    fn text(decisions: Decisions, last: &Table) -> String {
        let mut site = Site::default();
        decisions.finish(&mut site, last, "").unwrap();
        let routes = site.routes.iter().map(|route| format!("--\n{}", route.table));
        format!("{}{}", site.table, routes.collect::<String>())
    }

    #[test]
    fn an_answer_is_a_route_for_each_combination_of_changes_before_it() {
        let mut rules = Decisions::default();
        rules.change(&Condition::everything(), field("X-All", "1")).unwrap();
        rules.change(&at("/a"), field("X-A", "1")).unwrap();
        rules.answer(&at("/b"), &origin("http://b"), "").unwrap();
        assert_eq!(
            text(rules, &origin("http://c")),
            "request_headers = { set = { X-All = \"1\" } }\norigin = \"http://c\"\n\
             --\nwhen = \"request.path.startsWith('/b') && request.path.startsWith('/a')\"\n\
             request_headers = { set = { X-A = \"1\" } }\norigin = \"http://b\"\n\
             --\npath = \"/b**\"\norigin = \"http://b\"\n\
             --\npath = \"/a**\"\nrequest_headers = { set = { X-A = \"1\" } }\n"
        );
    }

    #[test]
    fn a_route_does_not_inherit_what_comes_after_it() {
        let mut rules = Decisions::default();
        rules.answer(&at("/open"), &origin("http://a"), "").unwrap();
        let users = Table::from_iter([("users_file", "users".into())]);
        let auth = Table::from_iter([("basic_auth", users.into())]);
        rules.change(&Condition::everything(), auth).unwrap();
        assert_eq!(
            text(rules, &origin("http://a")),
            "basic_auth = { users_file = \"users\" }\norigin = \"http://a\"\n\
             --\npath = \"/open**\"\nbasic_auth = \"off\"\n"
        );
    }

    #[test]
    fn the_last_route_has_the_rules_of_its_site() {
        let mut rules = Decisions::default();
        let deny = Table::from_iter([("access", "deny 192.0.2.0/24".into())]);
        rules.change(&Condition::everything(), deny).unwrap();
        rules.answer(&at("/a"), &origin("http://a"), "").unwrap();
        let mut last = origin("http://b");
        last.inline("health_check").set("path", "/healthz");
        assert_eq!(
            text(rules, &last),
            "access = [\"deny 192.0.2.0/24\"]\norigin = \"http://b\"\n\
             --\npath = \"/a**\"\norigin = \"http://a\"\n\
             --\nhealth_check = { path = \"/healthz\" }\n"
        );
    }

    #[test]
    fn conditions_that_multiply_are_refused() {
        let mut rules = Decisions::default();
        let all = (0..20).map(|i| rules.change(&at(&format!("/{i}")), field("X-A", "1")));
        assert!(all.collect::<Result<Vec<_>, _>>().is_err());
    }
}
