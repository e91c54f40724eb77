//! The rules of a section, in the order in which HAProxy runs them, for the hosts of one site.

use std::collections::{BTreeMap, BTreeSet};

use levada_conversion::{
    decisions::Decisions,
    gate::{self, Concern},
    ledger::{Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::Condition,
    table::{Table, Value},
    units,
    vocabulary::{self, Edit},
};

use crate::{
    condition::{self, Judge, Special, Verdict, Words},
    converter::Converter,
    files,
    hosts::Hosts,
    parse::Line,
    sample,
    tables::{self, Phase},
};

/// The walk through the rules of a section.
pub(crate) struct Walk<'w, 'a> {
    pub(crate) converter: &'w mut Converter<'a>,
    pub(crate) list: Decisions,
    pub(crate) hosts: &'w Hosts,
    lists: BTreeMap<String, Vec<Line>>,
    changed: BTreeSet<String>,
    /// Requests that no further `http-request` of the section is for.
    allowed: Verdict,
    /// The counters that were switched on: the part of requests, and the table.
    tracked: BTreeMap<String, (String, String)>,
    section: String,
    phase: Phase,
}

/// Reads one rule.
pub(crate) type ReadRule = fn(&mut Walk<'_, '_>, &Line) -> Outcome;

impl<'w, 'a> Walk<'w, 'a> {
    pub(crate) fn new(converter: &'w mut Converter<'a>, hosts: &'w Hosts, section: &str) -> Self {
        let lists = converter.access_lists(section);
        Self {
            converter,
            list: Decisions::default(),
            hosts,
            lists,
            changed: BTreeSet::new(),
            allowed: Vec::new(),
            tracked: BTreeMap::new(),
            section: section.to_owned(),
            phase: Phase::Connection,
        }
    }

    /// Runs all rules of the section.
    pub(crate) fn run(&mut self) {
        let lines = self.converter.lines(&self.section);
        for phase in Phase::ALL {
            self.phase = phase;
            if phase == Phase::Redirect {
                self.allowed.clear();
            }
            for line in lines.iter() {
                match tables::rule_of(line) {
                    Some((rule, concern)) if rule.phase == phase => {
                        let outcome = match line.has_variable {
                            true => left(tables::VARIABLE),
                            false => (rule.read)(self, line),
                        };
                        self.pass(line, self.concern(line, concern), outcome);
                    }
                    None if phase == Phase::Rest => {
                        if let Some((concern, outcome)) = tables::without_rule(line) {
                            self.pass(line, concern, outcome);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// The subject of a rule: one that chooses a backend that keeps clients out is about access.
    fn concern(&self, line: &Line, own: Concern) -> Concern {
        let chooses = line.word(0) == "use_backend";
        match chooses && self.converter.any_keeps_out() {
            true => Concern::Access,
            false => own,
        }
    }

    fn pass(&mut self, line: &Line, concern: Concern, outcome: Outcome) {
        if let Err(reason) = &outcome {
            self.list.mark(concern, line.place(), &line.shown(), reason);
        }
        let mut marked = Table::default();
        let outcome = gate::pass(concern, line, outcome, &mut marked);
        self.converter.ledger.enter(line, outcome);
    }

    fn judge(&self) -> Judge<'_> {
        Judge {
            lists: &self.lists,
            includes: self.converter.includes,
            hosts: self.hosts,
            changed: &self.changed,
        }
    }

    /// The requests that a rule is for.
    fn requests(&self, line: &Line) -> Result<Verdict, String> {
        let verdict = self.judge().rule(line.split_condition().1)?;
        self.not_allowed(verdict)
    }

    /// Without the requests that `http-request allow` lets go on.
    fn not_allowed(&self, verdict: Verdict) -> Result<Verdict, String> {
        if self.allowed.is_empty() || !matches!(self.phase, Phase::Request) {
            return Ok(verdict);
        }
        let others = condition::negated(&self.allowed)?;
        let mut left = Verdict::new();
        for one in &verdict {
            for other in &others {
                left.push(one.and(other).ok_or("no route takes all other requests")?);
            }
        }
        Ok(left)
    }

    /// Answers the requests of a rule.
    fn answer(&mut self, line: &Line, keys: &Table) -> Outcome {
        for condition in self.requests(line)? {
            self.list.answer(&condition, keys, &line.place.to_string())?;
        }
        TAKEN
    }

    /// Changes the requests of a rule.
    pub(crate) fn change(&mut self, line: &Line, keys: &Table) -> Outcome {
        let requests = self.requests(line)?;
        let former = self.list.clone();
        for condition in requests {
            if let Err(reason) = self.list.change(&condition, keys.clone()) {
                self.list = former;
                return Err(reason);
            }
        }
        TAKEN
    }

    /// A rule that answers, and whose answer could not be made, closes the requests that it is for.
    fn answer_or_close(&mut self, line: &Line, keys: Result<(Table, Outcome), String>) -> Outcome {
        match keys {
            Ok((keys, outcome)) => {
                self.answer(line, &keys)?;
                outcome
            }
            Err(reason) => {
                let mut closed = Table::default();
                let outcome = gate::pass(Concern::Access, line, left(reason), &mut closed);
                self.answer(line, &closed)?;
                self.converter.ledger.enter(line, outcome);
                TAKEN
            }
        }
    }

    /// `http-request deny`, `reject`, `tarpit` and the like.
    pub(crate) fn deny(&mut self, line: &Line) -> Outcome {
        let status = line.after("deny_status", 2).or(line.after("status", 2));
        let action = if line.word(0).starts_with("tcp") { line.word(2) } else { line.word(1) };
        let status = match (action, status) {
            (_, Some(status)) => status.parse::<u64>().map_err(|_| "is no status")?,
            ("tarpit", None) => 500,
            _ => 403,
        };
        if let Some(outcome) = self.limit(line, status)? {
            return outcome;
        }
        if status == 403
            && let Some(outcome) = self.by_address(line)
        {
            return outcome;
        }
        let mut keys = Table::default();
        match status {
            403 => keys.set("access", "deny all"),
            200..=599 => vocabulary::respond(&mut keys, status, None),
            _ => return left("is no status of a response"),
        }
        self.answer(line, &keys)?;
        match action {
            "deny" => TAKEN,
            "tarpit" => differs("a client that is refused does not wait"),
            _ => differs("the client gets 403; the connection is not closed without a word"),
        }
    }

    /// A rule that is only about addresses, as rules of access.
    fn by_address(&mut self, line: &Line) -> Option<Outcome> {
        let condition = line.split_condition().1;
        let (word, rest) = condition.split_first()?;
        let terms = condition::terms(rest).ok()?;
        let [alternative] = &terms[..] else { return None };
        let [(negated, term)] = &alternative[..] else { return None };
        let Special::Clients(addresses) = self.judge().special(term)? else { return None };
        if self.list.keys.has_any(&["access"]) || !self.allowed.is_empty() {
            return None;
        }
        let denies = (word == "if") != *negated;
        let verb = if denies { "deny" } else { "allow" };
        let mut rules: Vec<_> = addresses.iter().map(|one| format!("{verb} {one}")).collect();
        if !denies {
            rules.push("deny all".to_owned());
        }
        let rules = rules.into_iter().map(Value::Text).collect();
        let keys = Table::from_iter([("access", Value::List(rules))]);
        Some(
            self.list
                .change(&Condition::everything(), keys)
                .map(|()| levada_conversion::ledger::Fate::Taken),
        )
    }

    /// The terms of a condition that are special ones, and the requests of all others. None if there are none.
    fn special(
        &self,
        line: &Line,
        wanted: fn(&Special) -> bool,
    ) -> Result<Option<(Vec<condition::SpecialTerm>, Verdict)>, String> {
        let condition = line.split_condition().1;
        let Some((word, rest)) = condition.split_first() else { return Ok(None) };
        let terms = condition::terms(rest)?;
        let judge = self.judge();
        let of = |term: &[String]| judge.special(term).filter(wanted);
        if !terms.iter().flatten().any(|(_, term)| of(term).is_some()) {
            return Ok(None);
        }
        let [alternative] = &terms[..] else {
            return Err("it stands with other conditions in one rule".to_owned());
        };
        if word == "unless" && alternative.len() > 1 {
            return Err("it stands with other conditions in one rule".to_owned());
        }
        let mut found = Vec::new();
        let mut others = Vec::new();
        for (negated, term) in alternative {
            match of(term) {
                Some(special) => found.push((*negated != (word == "unless"), special)),
                None => others.push((*negated, term.clone())),
            }
        }
        let requests = match others.is_empty() {
            true => vec![Condition::everything()],
            false => judge.alternatives(&[others])?,
        };
        Ok(Some((found, self.not_allowed(requests)?)))
    }

    /// A refusal of clients whose counter is above a number.
    fn limit(&mut self, line: &Line, status: u64) -> Result<Option<Outcome>, String> {
        let Some((special, requests)) =
            self.special(line, |special| matches!(special, Special::Above { .. }))?
        else {
            return Ok(None);
        };
        let [(false, Special::Above { counter, argument, number })] = &special[..] else {
            return Err("several counters are in one rule".to_owned());
        };
        let (key, counts) = self.counted(counter, argument)?;
        let mut limit = Table::from_iter([("key", key.into())]);
        let says = match counts {
            Counts::AtOnce => {
                limit.set("concurrent", (*number).max(1));
                "requests at once count, not connections"
            }
            Counts::Rate(period) => {
                let per_minute = (number.max(&1) * 60_000 / period.max(1)).max(1);
                limit.set(
                    "rate",
                    match per_minute % 60 {
                        0 => format!("{}r/s", per_minute / 60),
                        _ => format!("{per_minute}r/m"),
                    },
                );
                limit.set("burst", (*number).saturating_sub(1).min(1_000_000));
                limit.set("nodelay", true);
                "a leaky bucket counts, and refused requests do not"
            }
        };
        let keys = Table::from_iter([("limit", Value::List(vec![limit.into()]))]);
        for condition in requests {
            self.list.change(&condition, keys.clone())?;
        }
        let status = if status == 429 { "" } else { "; the status is 429" };
        Ok(Some(differs(format!(
            "{says}, for each site and route by itself{status}: docs/operate/limits.md"
        ))))
    }

    /// The part of requests that a counter counts by, and how.
    fn counted(&self, counter: &str, argument: &str) -> Result<(String, Counts), String> {
        let arguments: Vec<_> = argument.split(',').map(str::trim).collect();
        let (number, name, table) = match counter.strip_prefix("src_") {
            Some(name) => (None, name, Some(arguments[0])),
            None => {
                let rest = counter.strip_prefix("sc").unwrap_or_default();
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let name = rest[digits..].trim_start_matches('_');
                match digits {
                    0 => (Some(arguments[0]), name, arguments.get(1).copied()),
                    _ => (Some(&rest[..digits]), name, Some(arguments[0])),
                }
            }
        };
        let tracked = number.map(|number| {
            let found = self.tracked.get(number);
            found.ok_or_else(|| format!("no rule before it counts by sc{number}"))
        });
        let tracked = tracked.transpose()?;
        let table = table.filter(|table| !table.is_empty());
        let table = table.or(tracked.map(|(_, table)| table.as_str())).unwrap_or(&self.section);
        let key = tracked.map_or("client", |(key, _)| key.as_str());
        let store = self.converter.stick_table(table).ok_or("there is no such stick-table")?;
        let counts = match name {
            "http_req_rate" => {
                let period =
                    store.split(',').find_map(|one| one.trim().strip_prefix("http_req_rate("));
                let period =
                    period.and_then(|rest| units::haproxy_time(rest.trim_end_matches(')')));
                Counts::Rate(
                    period.filter(|period| *period > 0).ok_or("the table has no such rate")?,
                )
            }
            "conn_cur" => Counts::AtOnce,
            _ => return Err(format!("requests and connections at once are limited, not `{name}`")),
        };
        Ok((key.to_owned(), counts))
    }

    /// `http-request track-sc0 src table t`.
    pub(crate) fn track(&mut self, line: &Line) -> Outcome {
        let at = if line.word(0).starts_with("tcp") { 2 } else { 1 };
        let number = line.word(at).trim_start_matches("track-sc").to_owned();
        let key = match sample::read(line.word(at + 1)).map(|sample| sample.part) {
            Ok(sample::Part::Client) => "client".to_owned(),
            Ok(sample::Part::Field(name) | sample::Part::WholeField(name)) => {
                format!("header:{name}")
            }
            Ok(sample::Part::Cookie(name)) => format!("cookie:{name}"),
            Ok(sample::Part::Path) => "path".to_owned(),
            _ => return left("a limit is by client, field, cookie or path"),
        };
        let table = line.after("table", at).unwrap_or(&self.section).to_owned();
        self.tracked.insert(number, (key, table));
        match line.split_condition().1 {
            [] => TAKEN,
            _ => differs("a limit counts the requests of its place"),
        }
    }

    /// `http-request auth ... unless { http_auth(users) }`.
    pub(crate) fn auth(&mut self, line: &Line) -> Outcome {
        let special = self.special(line, |special| matches!(special, Special::User(_)))?;
        let (special, requests) = special.ok_or("no list of users is named: `http_auth`")?;
        let [(true, Special::User(list))] = &special[..] else {
            return left("users are let in, not kept out");
        };
        if list.contains(',') || !self.converter.has_users(list) {
            return left("there is no such list of users, or it is about groups");
        }
        let file = format!("{list}.htpasswd");
        let mut auth = Table::default();
        if let Some(realm) =
            line.after("realm", 1).filter(|realm| *realm != "if" && *realm != "unless")
        {
            auth.set("realm", realm);
        }
        auth.set("users_file", file);
        let keys = Table::from_iter([("basic_auth", auth.into())]);
        for condition in requests {
            self.list.change(&condition, keys.clone())?;
        }
        differs("the server does not get the password: docs/operate/access.md")
    }

    /// `http-request allow`: no rule of the section after it is for these requests.
    pub(crate) fn allow(&mut self, line: &Line) -> Outcome {
        let requests = self.requests(line)?;
        condition::negated(&requests)?;
        self.allowed.extend(requests);
        TAKEN
    }

    /// `http-request redirect` and `redirect`.
    pub(crate) fn redirect(&mut self, line: &Line) -> Outcome {
        let start = usize::from(line.word(0) == "http-request");
        if let Some(outcome) = self.redirects_of_map(line) {
            return outcome;
        }
        let keys = redirect_keys(line, start).map(|keys| (keys, TAKEN));
        self.answer_or_close(line, keys)
    }

    /// `redirect location %[path,map(file)]`: a route for each key.
    fn redirects_of_map(&mut self, line: &Line) -> Option<Outcome> {
        let location = line.after("location", 1)?;
        let inner = location.strip_prefix("%[")?.strip_suffix(']')?;
        let sample = sample::read(inner).ok()?;
        let (kind, arguments) = sample.map.clone()?;
        Some(self.by_map(line, &sample, &kind, &arguments, |own, line, condition, value| {
            let status = line.after("code", 1).unwrap_or("302").parse::<u64>();
            let mut keys = Table::default();
            vocabulary::redirect(
                &mut keys,
                status.map_err(|_| "is no status")?,
                sample::template(value)?,
            );
            own.list.answer(condition, &keys, &line.place.to_string())?;
            TAKEN
        }))
    }

    /// A route for each entry of a map, of which the first that fits counts.
    fn by_map(
        &mut self,
        line: &Line,
        sample: &sample::Sample,
        kind: &str,
        arguments: &[String],
        write: impl Fn(&mut Self, &Line, &Condition, &str) -> Outcome,
    ) -> Outcome {
        let path = arguments.first().map_or("", String::as_str);
        let mut pairs = files::map(self.converter.includes, path)?;
        let test = condition::map_test(kind)?;
        if kind == "map_beg" {
            // The longest beginning counts.
            pairs.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
        }
        let around = self.requests_of_map(line)?;
        for (key, value) in &pairs {
            let words = Words {
                sample: sample::Sample { map: None, ..sample.clone() },
                test: Some(test),
                ignores_case: sample.is_lower,
                values: vec![key.clone()],
            };
            for one in self.judge().compared_unchanged(&words)? {
                for condition in &around {
                    let both = one.and(condition).ok_or(levada_conversion::decisions::NO_ROUTE)?;
                    write(self, line, &both, value)?;
                }
            }
        }
        if let Some(default) = arguments.get(1) {
            for condition in &around {
                write(self, line, condition, default)?;
            }
        }
        TAKEN
    }

    /// The condition of a rule with a map, without the term that the map has the key.
    fn requests_of_map(&self, line: &Line) -> Result<Verdict, String> {
        let condition = line.split_condition().1;
        let Some((word, rest)) = condition.split_first() else {
            return Ok(vec![Condition::everything()]);
        };
        let terms = condition::terms(rest)?;
        match &terms[..] {
            [alternative] if word == "if" => {
                let is_lookup = |term: &Vec<String>| term.iter().any(|word| word.contains(",map"));
                let others: Vec<_> =
                    alternative.iter().filter(|(_, term)| !is_lookup(term)).cloned().collect();
                match others.is_empty() {
                    true => Ok(vec![Condition::everything()]),
                    false => self.judge().alternatives(&[others]),
                }
            }
            _ => self.requests(line),
        }
    }

    /// `use_backend`.
    pub(crate) fn use_backend(&mut self, line: &Line) -> Outcome {
        let name = line.word(1);
        if let Some(inner) = name.strip_prefix("%[").and_then(|rest| rest.strip_suffix(']')) {
            let sample = sample::read(inner)?;
            let (kind, arguments) = sample.map.clone().ok_or("a backend has a name")?;
            return self.by_map(line, &sample, &kind, &arguments, |own, line, condition, name| {
                own.backend(line, condition, name)
            });
        }
        for condition in self.requests(line)? {
            self.backend(line, &condition, name)?;
        }
        TAKEN
    }

    /// The rules and the servers of a backend, for some requests.
    fn backend(&mut self, line: &Line, condition: &Condition, name: &str) -> Outcome {
        if self.list.has_ended() {
            return TAKEN;
        }
        let list = self.list.within(condition)?;
        let keys = self.converter.pool(name)?;
        let mut inner = Walk::new(self.converter, self.hosts, name);
        inner.list = list;
        inner.changed.clone_from(&self.changed);
        inner.tracked.clone_from(&self.tracked);
        inner.run();
        let mut block = inner.list;
        block.answer(&Condition::everything(), &keys, &line.place.to_string())?;
        self.list.append(block);
        if condition.holds_always() {
            self.list.end();
        }
        TAKEN
    }

    /// The requests that no rule has taken: those of `default_backend`, or of the servers of a `listen`.
    pub(crate) fn last(&mut self, name: &str, own: bool) -> Result<Table, String> {
        let keys = self.converter.pool(name)?;
        if own {
            return Ok(keys);
        }
        let mut inner = Walk::new(self.converter, self.hosts, name);
        inner.list = self.list.clone();
        inner.changed.clone_from(&self.changed);
        inner.tracked.clone_from(&self.tracked);
        inner.run();
        self.list = inner.list;
        Ok(keys)
    }

    /// `set-header`, `add-header` and `del-header` of requests.
    pub(crate) fn request_field(&mut self, line: &Line) -> Outcome {
        let (name, lower) = (line.word(2), line.word(2).to_ascii_lowercase());
        let of_node = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        if of_node.contains(&lower.as_str()) && line.word(1) != "del-header" {
            return needless("a node sends this field itself");
        }
        let text = line.split_condition().0.get(3).map_or("", String::as_str);
        let mut keys = Table::default();
        if lower == "host" {
            match line.word(1) {
                "set-header" if !text.contains(['%', ':', '/', ' ']) => {
                    keys.set("origin_host", text)
                }
                _ => return left("the `Host` that servers get is a name"),
            }
            self.changed.insert("host".to_owned());
            return self.change(line, &keys);
        }
        vocabulary::edit_request(&mut keys, name, edit(line, text)?)?;
        self.change(line, &keys)?;
        self.changed.insert(lower);
        TAKEN
    }

    /// `set-header`, `add-header` and `del-header` of responses.
    pub(crate) fn response_field(&mut self, line: &Line) -> Outcome {
        if line.has("-m") {
            return left("fields are removed by their name");
        }
        let text = line.split_condition().0.get(3).map_or("", String::as_str);
        let mut keys = Table::default();
        vocabulary::edit_response(&mut keys, line.word(2), edit(line, text)?)?;
        self.change(line, &keys)
    }

    /// `set-path`, `replace-path`: another path for the servers.
    pub(crate) fn path(&mut self, line: &Line) -> Outcome {
        let (head, _) = line.split_condition();
        let rewritten = match (line.word(1), head.get(2).map_or("", String::as_str), head.get(3)) {
            ("set-path", text, None) => match text
                .strip_prefix("%[")
                .and_then(|t| t.strip_suffix(']'))
            {
                Some(inner) => {
                    let sample = sample::read(inner)?;
                    let (regex, with) = sample.replacement.ok_or("a path has no such value")?;
                    if !regex.starts_with('^') {
                        return left("a replacement begins at the start of the path");
                    }
                    replaced(&format!("{regex}(.*)$"), &format!("{with}\\{}", groups(&regex) + 1))?
                }
                None if text.starts_with('/') => {
                    (None, Table::from_iter([("rewrite", sample::template(text)?.into())]))
                }
                None => return left("a path begins with `/`"),
            },
            ("replace-path", regex, Some(with)) => replaced(regex, with)?,
            _ => return left("there is nothing for this rewrite"),
        };
        let (path, keys) = rewritten;
        let matched = path.map_or_else(
            || Ok(Condition::everything()),
            |regex| {
                levada_conversion::comparisons::path(&levada_conversion::comparisons::Comparison {
                    test: levada_conversion::comparisons::Test::Matches,
                    texts: &[regex],
                    ignores_case: false,
                })
            },
        )?;
        if self.changed.contains("path") {
            return left("a path is rewritten once");
        }
        for condition in self.requests(line)? {
            let both = condition.and(&matched).ok_or("a route looks at the path once")?;
            self.list.change(&both, keys.clone())?;
        }
        self.changed.insert("path".to_owned());
        TAKEN
    }

    /// `http-request return`.
    pub(crate) fn fixed(&mut self, line: &Line) -> Outcome {
        let keys = respond_keys(line).map(|keys| (keys, TAKEN));
        self.answer_or_close(line, keys)
    }

    /// `monitor-uri`.
    pub(crate) fn monitor(&mut self, line: &Line) -> Outcome {
        let mut keys = Table::default();
        vocabulary::respond(&mut keys, 200, None);
        let texts = [line.word(1).to_owned()];
        let test = levada_conversion::comparisons::Test::Is;
        let comparison =
            levada_conversion::comparisons::Comparison { test, texts: &texts, ignores_case: false };
        let path = levada_conversion::comparisons::path(&comparison)?;
        self.list.answer(&path, &keys, &line.place.to_string())?;
        TAKEN
    }

    /// Keys of a line that is about the whole section.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) -> Outcome {
        let mut keys = Table::default();
        keys.set_path(key, value);
        self.list.change(&Condition::everything(), keys)?;
        TAKEN
    }

    /// `http-request cache-use`.
    pub(crate) fn cache(&mut self, line: &Line) -> Outcome {
        let age = self.converter.cache_age(line.word(2)).ok_or("there is no such cache")?;
        let mut keys = Table::from_iter([("cache", true.into())]);
        keys.set("default_ttl", units::duration(age));
        keys.set("heuristic_percent", 0_u64);
        self.change(line, &keys)?;
        differs(
            "a lifetime that the server states counts whole, and stored responses have variants",
        )
    }
}

/// How a counter counts.
enum Counts {
    Rate(u64),
    AtOnce,
}

/// The change of a field that a rule states.
fn edit(line: &Line, text: &str) -> Result<Edit, String> {
    Ok(match line.word(1) {
        "del-header" => Edit::Remove,
        "add-header" => Edit::Add(sample::template(text)?),
        _ => Edit::Set(sample::template(text)?),
    })
}

/// The number of groups of an expression.
fn groups(regex: &str) -> usize {
    regex::Regex::new(regex).map_or(0, |regex| regex.captures_len() - 1)
}

/// The expression with names for its groups, and the text with these names.
fn replaced(regex: &str, with: &str) -> Result<(Option<String>, Table), String> {
    let regex = levada_conversion::matchers::checked_regex(regex)?;
    let (named, number) = levada_conversion::comparisons::named_groups(&regex);
    let mut text = sample::template(with)?;
    for group in (1..=9).rev() {
        let (from, to) = (format!("\\{group}"), format!("{{g{group}}}"));
        if text.contains(&from) && group > number {
            return Err(format!("the expression has no group {group}"));
        }
        text = text.replace(&from, &to);
    }
    if text.contains('\\') || text.contains('?') {
        return Err("the text in its place cannot be said".to_owned());
    }
    if !text.starts_with(['/', '{']) {
        return Err("a path begins with `/`".to_owned());
    }
    Ok((Some(named), Table::from_iter([("rewrite", text.into())])))
}

/// The keys of a redirect.
fn redirect_keys(line: &Line, start: usize) -> Result<Table, String> {
    let head = line.split_condition().0;
    let after = |name: &str| {
        let at = head.iter().skip(start).position(|word| word == name)?;
        head.get(start + at + 1).map(String::as_str)
    };
    let has = |name: &str| head.iter().any(|word| word == name);
    if has("set-cookie") || has("clear-cookie") || has("append-slash") || has("ignore-empty") {
        return Err("a redirect has a URL and a status".to_owned());
    }
    // Without `http-request` the text is not a format.
    let text = |text: &str| match start {
        0 => Ok(text.replace('{', "{{").replace('}', "}}")),
        _ => sample::template(text),
    };
    let uri = if has("drop-query") { "{path}" } else { "{uri}" };
    let to = if let Some(scheme) = after("scheme") {
        if !["http", "https"].contains(&scheme) {
            return Err("a scheme is http or https".to_owned());
        }
        format!("{scheme}://{{host}}{uri}")
    } else if let Some(prefix) = after("prefix") {
        let prefix = text(prefix)?;
        format!("{}{uri}", if prefix == "/" { "" } else { &prefix })
    } else if let Some(location) = after("location") {
        text(location)?
    } else {
        return Err("a redirect has a place".to_owned());
    };
    let status = after("code").unwrap_or("302").parse::<u64>().unwrap_or_default();
    if ![301, 302, 303, 307, 308].contains(&status) {
        return Err("is no status of a redirect".to_owned());
    }
    let mut keys = Table::default();
    vocabulary::redirect(&mut keys, status, to);
    Ok(keys)
}

/// The keys of a fixed response.
fn respond_keys(line: &Line) -> Result<Table, String> {
    let head = line.split_condition().0;
    let (mut status, mut body, mut kind) = (200, None, None);
    let mut words = head.iter().skip(2).map(String::as_str);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word {
            "status" => status = value.parse::<u64>().unwrap_or_default(),
            "content-type" => kind = Some(value.to_owned()),
            "string" => body = Some(value.to_owned()),
            "lf-string" if !value.contains('%') => body = Some(value.to_owned()),
            "default-errorfiles" => {}
            _ => return Err(format!("a fixed response has no `{word}`")),
        }
    }
    if !(200..=599).contains(&status) {
        return Err("is no status of a response".to_owned());
    }
    let mut keys = Table::default();
    vocabulary::respond(&mut keys, status, body);
    if let Some(kind) = kind {
        keys.inline("respond").set("content_type", kind);
    }
    Ok(keys)
}
