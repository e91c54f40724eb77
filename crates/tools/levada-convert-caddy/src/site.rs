//! The directives of a site, in the order in which Caddy runs them, as the routes of a site.

use std::collections::BTreeMap;

use levada_conversion::{
    comparisons::{self, Comparison, Test},
    decisions::Decisions,
    gate::{self, Concern},
    ledger::{Ledger, Outcome, Stated as _, TAKEN, differs, left, needless},
    matchers::Condition,
    rows::Row,
    table::{Table, Value},
    units,
    vocabulary::{self, Edit},
};

use crate::{
    matchers::{Matchers, Verdict},
    parse::Node,
    proxy,
    tables::{self, Effect},
    texts,
};

/// The parts that all sites of a file share.
pub(crate) struct Shared<'a> {
    pub(crate) ledger: &'a mut Ledger,
    /// The files of users, by the places of their directives.
    pub(crate) users: &'a mut BTreeMap<String, String>,
    /// The Caddyfile, which Caddy does not serve.
    pub(crate) file: &'a str,
}

/// The walk through the directives of a site.
pub(crate) struct Walk<'w, 'a> {
    pub(crate) shared: &'w mut Shared<'a>,
    pub(crate) list: Decisions,
    matchers: Matchers,
    /// The keys of the requests that no route takes, once they are known.
    last: Option<(Table, String)>,
    root: Option<String>,
    fallback: Option<String>,
    is_rewritten: bool,
    depth: usize,
    steps: usize,
}

pub(crate) type ReadDirective = fn(&mut Walk<'_, '_>, &Node) -> Outcome;

/// As many directives are run, those of blocks once for each way through them.
const MOST_STEPS: usize = 20_000;

impl<'w, 'a> Walk<'w, 'a> {
    pub(crate) fn new(shared: &'w mut Shared<'a>, list: Decisions, has_trusted: bool) -> Self {
        let matchers = Matchers { named: BTreeMap::new(), has_trusted };
        Self {
            shared,
            list,
            matchers,
            last: None,
            root: None,
            fallback: None,
            is_rewritten: false,
            depth: 0,
            steps: 0,
        }
    }

    /// Runs all directives. Returns the decisions, and the keys of the requests that none of them takes.
    pub(crate) fn decide(mut self, nodes: &[Node]) -> (Decisions, Table, String) {
        self.read_matchers(nodes);
        let sorted = sorted(nodes);
        self.steps(&sorted);
        let (last, comment) = self.last.take().unwrap_or_else(|| {
            // Requests that nothing answers.
            let mut keys = Table::default();
            vocabulary::respond(&mut keys, 200, None);
            (keys, String::new())
        });
        (self.list, last, comment)
    }

    fn read_matchers(&mut self, nodes: &[Node]) {
        for node in nodes.iter().filter(|node| node.word(0).starts_with('@')) {
            self.matchers.named.insert(node.word(0).to_owned(), node.clone());
            self.shared.ledger.enter_whole(node, &TAKEN);
        }
    }

    /// Runs directives one after the other.
    fn steps(&mut self, nodes: &[Node]) {
        for (at, node) in nodes.iter().enumerate() {
            self.steps += 1;
            let is_done = self.last.is_some() || self.list.has_ended();
            let row = tables::row(node);
            if is_done || self.steps > MOST_STEPS {
                if self.shared.ledger.has_taken(node).is_none() {
                    let outcome = match row.and_then(Row::without_keys) {
                        Some(outcome) => outcome,
                        None if is_done => needless("a directive before it answers all requests"),
                        None => left("the blocks have too many ways through them"),
                    };
                    self.shared.ledger.enter_whole(node, &outcome);
                }
                if !is_done {
                    self.close(node, Concern::Access, "the blocks have too many ways through them");
                }
                continue;
            }
            let effect = row.and_then(Row::keys);
            let outcome = match (effect, row) {
                (Some(Effect::Elsewhere), _) => continue,
                (Some(Effect::Read(_) | Effect::Block), _) if node.has_variable() => {
                    left(tables::VARIABLE)
                }
                (Some(Effect::Read(read)), _) => read(self, node),
                (Some(Effect::Block), _) => self.block(node, &nodes[at + 1..]),
                (None, Some(row)) => row.without_keys().unwrap_or(TAKEN),
                (None, None) => left(tables::NOTHING),
            };
            let concern = row.map_or_else(|| gate::smell(&node.all_words()), Row::concern);
            if let Err(reason) = &outcome {
                self.close(node, concern, reason);
            }
            let mut marked = Table::default();
            let outcome = gate::pass(concern, node, outcome, &mut marked);
            match effect {
                Some(Effect::Block) if outcome.is_ok() => self.shared.ledger.enter(node, outcome),
                _ => self.enter_all(node, &outcome),
            }
        }
    }

    /// Enters a directive, and the lines of its block that have no fate of their own.
    fn enter_all(&mut self, node: &Node, outcome: &Outcome) {
        self.shared.ledger.enter(node, outcome.clone());
        for inner in node.inner() {
            if self.shared.ledger.has_taken(inner).is_none() {
                self.enter_all(inner, outcome);
            }
        }
    }

    /// Closes the place of a directive: the requests that it is for, or all if these are not known.
    fn close(&mut self, node: &Node, concern: Concern, reason: &str) {
        self.list.mark(concern, &node.place, &node.shown(), reason);
    }

    /// `handle`, `handle_path` and `route`: the directives of the block, and then those after it.
    fn block(&mut self, node: &Node, rest: &[Node]) -> Outcome {
        let is_handle = node.word(0).starts_with("handle");
        let (requests, _) = self.matchers.of(node)?;
        self.depth += 1;
        if self.depth > 32 {
            self.depth -= 1;
            return left("blocks are nested too deeply");
        }
        let outcome = self.block_for(node, rest, &requests, is_handle);
        self.depth -= 1;
        outcome
    }

    fn block_for(
        &mut self,
        node: &Node,
        rest: &[Node],
        requests: &Verdict,
        is_handle: bool,
    ) -> Outcome {
        for condition in requests {
            let always = condition.holds_always();
            let mut inner = if node.word(0) == "route" {
                node.inner().iter().filter(|one| !one.word(0).starts_with('@')).cloned().collect()
            } else {
                sorted(node.inner())
            };
            let rest = rest.iter().filter(|one| !(is_handle && one.word(0).starts_with("handle")));
            inner.extend(rest.cloned());
            let mut list = self.list.within(condition)?;
            let former = (self.root.clone(), self.fallback.clone(), self.is_rewritten);
            if node.word(0) == "handle_path" {
                let prefix = node.word(1).trim_end_matches('*').trim_end_matches('/');
                if !prefix.is_empty() {
                    let keys = Table::from_iter([("strip_prefix", prefix.into())]);
                    list.change(&Condition::everything(), keys)?;
                    self.is_rewritten = true;
                }
            }
            let former_named = self.matchers.named.clone();
            self.read_matchers(node.inner());
            let outer = std::mem::replace(&mut self.list, list);
            self.steps(&inner);
            let mut block = std::mem::take(&mut self.list);
            match (self.last.take(), always) {
                (Some((keys, comment)), true) if block.is_plain() => {
                    // All requests: the keys of the site itself.
                    block.prepend(outer);
                    self.list = block;
                    self.last = Some((keys, comment));
                }
                (last, _) => {
                    self.list = outer;
                    let (keys, comment) = last.unwrap_or_else(|| {
                        let mut keys = Table::default();
                        vocabulary::respond(&mut keys, 200, None);
                        (keys, node.place.to_string())
                    });
                    block.answer(&Condition::everything(), &keys, &comment)?;
                    self.list.append(block);
                    if always {
                        self.list.end();
                    }
                }
            }
            (self.root, self.fallback, self.is_rewritten) = former;
            self.matchers.named = former_named;
        }
        TAKEN
    }

    /// Changes the requests of a directive.
    fn change(&mut self, requests: &Verdict, keys: &Table) -> Outcome {
        for condition in requests {
            self.list.change(condition, keys.clone())?;
        }
        TAKEN
    }

    /// Answers the requests of a directive.
    fn answer(
        &mut self,
        node: &Node,
        requests: &Verdict,
        keys: Result<(Table, Outcome), String>,
    ) -> Outcome {
        let (keys, outcome) = match keys {
            Ok(made) => made,
            Err(reason) => {
                let mut closed = Table::default();
                let outcome = gate::pass(Concern::Access, node, left(reason), &mut closed);
                self.shared.ledger.enter(node, outcome);
                (closed, TAKEN)
            }
        };
        let comment = node.place.to_string();
        for condition in requests {
            if condition.holds_always() && self.last.is_none() {
                self.last = Some((keys.clone(), comment.clone()));
            } else {
                self.list.answer(condition, &keys, &comment)?;
            }
        }
        outcome
    }

    /// `respond`, `error` and `abort`.
    pub(crate) fn respond(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        let keys = respond_keys(node, words);
        self.answer(node, &requests, keys)
    }

    /// `redir TO [STATUS]`.
    pub(crate) fn redirect(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        let keys = redirect_keys(words).map(|keys| (keys, TAKEN));
        self.answer(node, &requests, keys)
    }

    /// `header` and `request_header`.
    pub(crate) fn fields(&mut self, node: &Node) -> Outcome {
        type EditField = fn(&mut Table, &str, Edit) -> Outcome;
        let of_request = node.word(0) == "request_header";
        let edit: EditField =
            if of_request { vocabulary::edit_request } else { vocabulary::edit_response };
        let (requests, words) = self.matchers.of(node)?;
        let mut keys = Table::default();
        let mut lines = Vec::new();
        if !words.is_empty() {
            lines.push(words.to_vec());
        }
        lines.extend(node.inner().iter().map(|inner| inner.words.clone()));
        for line in lines {
            let name = line.first().map_or("", String::as_str);
            if name == "defer" {
                continue;
            }
            if name.trim_start_matches(['+', '-']).eq_ignore_ascii_case("host") && of_request {
                return left("the `Host` that servers get is `header_up Host`");
            }
            field(&mut keys, &line, edit)?;
        }
        self.change(&requests, &keys)
    }

    /// `basic_auth`, whose users are written into a file by hand.
    pub(crate) fn basic_auth(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        if words.first().is_some_and(|hash| hash != "bcrypt") {
            return left("the hashes are of bcrypt");
        }
        let number = self.shared.users.len() + 1;
        let file = self.shared.users.entry(node.place.to_string()).or_insert_with(|| {
            if number == 1 {
                "users.htpasswd".to_owned()
            } else {
                format!("users-{number}.htpasswd")
            }
        });
        let mut auth = Table::default();
        auth.set("realm", words.get(1).map_or("restricted", String::as_str));
        auth.set("users_file", file.as_str());
        for user in node.inner() {
            let reason = format!("write `{}:` and the hash into {file}", user.word(0));
            self.shared.ledger.enter(user, left(reason));
        }
        let keys = Table::from_iter([("basic_auth", auth.into())]);
        self.change(&requests, &keys)?;
        differs("the server does not get the password: docs/operate/access.md")
    }

    /// `forward_auth ADDRESS { uri PATH; copy_headers ... }`.
    pub(crate) fn forward_auth(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        let [address] = words else { return left("one server is asked") };
        let url = proxy::url(address)?;
        if url.starts_with("unix:") {
            return left("the server that is asked has a URL");
        }
        let mut auth = Table::default();
        let mut copied = Vec::new();
        let mut uri = String::new();
        for inner in node.inner() {
            match inner.word(0) {
                "uri" if !texts::has_placeholder(inner.word(1)) => {
                    inner.word(1).clone_into(&mut uri)
                }
                "copy_headers" => {
                    copied.extend(inner.from(1).iter().cloned());
                    copied.extend(inner.inner().iter().map(|one| one.words.join(" ")));
                }
                other => return left(format!("the question has no `{other}`")),
            }
        }
        if copied.iter().any(|name| name.contains(['>', ' '])) {
            return left("a field keeps its name");
        }
        auth.set("url", format!("{url}{uri}"));
        if !copied.is_empty() {
            auth.set("copy_headers", Value::List(copied.into_iter().map(Value::Text).collect()));
        }
        let keys = Table::from_iter([("forward_auth", auth.into())]);
        self.change(&requests, &keys)
    }

    /// `encode gzip zstd`.
    pub(crate) fn encode(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        let mut codings = words.to_vec();
        let mut keys = Table::default();
        for inner in node.inner() {
            match inner.word(0) {
                coding @ ("gzip" | "zstd") => codings.push(coding.to_owned()),
                "minimum_length" => {
                    let size = inner.word(1).parse::<u64>().map_err(|_| "a length is a number")?;
                    keys.inline("compress").set("min_size", units::size(size));
                }
                other => return left(format!("there is no `{other}` of compression")),
            }
        }
        if codings.iter().any(|coding| !["gzip", "zstd", "br"].contains(&coding.as_str())) {
            return left("responses are compressed by zstd, br and gzip");
        }
        if codings.is_empty() {
            return left("a coding is named");
        }
        keys.inline("compress")
            .set("codings", Value::List(codings.into_iter().map(Value::Text).collect()));
        self.change(&requests, &keys)
    }

    /// `root`.
    pub(crate) fn root(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        // One word is the path itself.
        let path = match (words, node.words.len()) {
            ([path], _) => path.clone(),
            ([], 2) => node.word(1).to_owned(),
            _ => return left("a directory is named"),
        };
        let is_all = requests.iter().any(Condition::holds_always) || node.words.len() == 2;
        if !is_all || texts::has_placeholder(&path) {
            return left("a directory is that of all requests");
        }
        self.root = Some(path);
        TAKEN
    }

    /// `try_files {path} {path}/ /index.html`.
    pub(crate) fn try_files(&mut self, node: &Node) -> Outcome {
        let words: Vec<_> = node.from(1).iter().map(String::as_str).collect();
        match words[..] {
            ["{path}"] | ["{path}", "{path}/"] => {
                needless("a file and the index of a directory are served")
            }
            ["{path}", ref between @ .., last]
                if between.iter().all(|one| *one == "{path}/")
                    && last.starts_with('/')
                    && !last.contains(['{', '?']) =>
            {
                self.fallback = Some(last.to_owned());
                TAKEN
            }
            _ => left("a file, the index of a directory, and one file for all others are tried"),
        }
    }

    /// `file_server`.
    pub(crate) fn file_server(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        if self.is_rewritten {
            let reason =
                "files are below the path of the client: give the directory the whole path";
            return self.answer(node, &requests, Err(reason.to_owned()));
        }
        let mut files = Table::default();
        let mut root = self.root.clone();
        let mut lists = words.iter().any(|word| word == "browse");
        let mut hidden = None;
        for inner in node.inner() {
            match inner.word(0) {
                "root" => root = Some(inner.word(1).to_owned()),
                "index" => files.set("index", inner.from(1).to_vec()),
                "precompressed" => {
                    let codings = match inner.from(1) {
                        [] => vec!["br".to_owned(), "zstd".to_owned(), "gzip".to_owned()],
                        own => own.to_vec(),
                    };
                    files.set(
                        "precompressed",
                        Value::List(codings.into_iter().map(Value::Text).collect()),
                    );
                }
                "browse" => lists = true,
                "hide" => {
                    // Names that begin with a dot are never served.
                    let own: Vec<_> =
                        inner.from(1).iter().filter(|name| !name.starts_with('.')).collect();
                    if let Some(name) = own.first() {
                        hidden =
                            Some(format!("`{name}` is hidden: a route with status 404 hides it"));
                    }
                }
                "disable_canonical_uris" => {}
                other => {
                    return self.answer(node, &requests, Err(format!("files have no `{other}`")));
                }
            }
        }
        if let Some(reason) = hidden {
            return self.answer(node, &requests, Err(reason));
        }
        let Some(root) = root else {
            return self.answer(
                node,
                &requests,
                Err("the directory is where Caddy runs: `root`".to_owned()),
            );
        };
        self.hide_the_file(node, &root)?;
        files.set("root", root.as_str());
        if let Some(fallback) = &self.fallback {
            files.set("fallback", fallback.as_str());
        }
        let mut ordered = Table::default();
        for key in ["root", "index", "fallback", "precompressed"] {
            if let Some(value) = files.remove(key) {
                ordered.set(key, value);
            }
        }
        let keys = Table::from_iter([("files", ordered.into())]);
        let outcome = match lists {
            true => differs(
                "directories are never listed, and names that begin with a dot are not served",
            ),
            false => differs("names that begin with a dot are not served"),
        };
        self.answer(node, &requests, Ok((keys, outcome)))
    }

    /// The Caddyfile itself is not served, where it stands below the directory.
    fn hide_the_file(&mut self, node: &Node, root: &str) -> Result<(), String> {
        let below = self.shared.file.strip_prefix(root.trim_end_matches('/'));
        let Some(path) = below.filter(|path| path.starts_with('/')) else { return Ok(()) };
        let mut keys = Table::default();
        vocabulary::respond(&mut keys, 404, None);
        let texts = [path.to_owned()];
        let condition =
            comparisons::path(&Comparison { test: Test::Ends, texts: &texts, ignores_case: true })?;
        self.list.answer(&condition, &keys, &node.place.to_string())
    }

    /// `rewrite` and `uri`.
    pub(crate) fn rewrite(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        if self.is_rewritten {
            return left("a path is rewritten once");
        }
        let mut keys = Table::default();
        let outcome = match (node.word(0), words) {
            ("rewrite", [to]) if to.starts_with('/') || to.starts_with('{') => {
                keys.set("rewrite", texts::template(to)?);
                differs("matchers of the directives behind it look at the client's path")
            }
            ("uri", [action, prefix])
                if action == "strip_prefix" && !texts::has_placeholder(prefix) =>
            {
                keys.set("strip_prefix", prefix.as_str());
                differs("whole segments are removed: `/api` is no beginning of `/apix`")
            }
            _ => return left("there is nothing for this rewrite"),
        };
        self.change(&requests, &keys)?;
        self.is_rewritten = true;
        outcome
    }

    /// `request_body { max_size 10MB }`.
    pub(crate) fn request_body(&mut self, node: &Node) -> Outcome {
        let (requests, _) = self.matchers.of(node)?;
        let mut keys = Table::default();
        for inner in node.inner() {
            match (inner.word(0), proxy::size(inner.word(1))) {
                ("max_size", Some(size)) => keys.set("max_body", units::size(size)),
                (other, _) => return left(format!("a body has no `{other}`")),
            }
        }
        self.change(&requests, &keys)
    }

    /// `reverse_proxy`.
    pub(crate) fn reverse_proxy(&mut self, node: &Node) -> Outcome {
        let (requests, words) = self.matchers.of(node)?;
        let keys = proxy::keys(node, words, self.shared.ledger);
        self.answer(node, &requests, keys)
    }
}

/// The directives of a block in Caddy's order.
fn sorted(nodes: &[Node]) -> Vec<Node> {
    let mut all: Vec<_> =
        nodes.iter().filter(|node| !node.word(0).starts_with('@')).cloned().collect();
    all.sort_by_key(|node| {
        let matcher = node.word(1);
        // A longer path stands before a shorter one, and a matcher before none. `header` has the reverse order.
        let length = if matcher.starts_with('/') { matcher.len() } else { 0 };
        let kind = match matcher {
            path if path.starts_with('/') => 0,
            name if name.starts_with('@') => 1,
            _ => 2,
        };
        let (kind, length) = match node.word(0) {
            "header" | "request_header" | "root" | "rewrite" => (0, 0),
            _ => (kind, length),
        };
        (tables::order(node.word(0)), kind, usize::MAX - length)
    });
    all
}

/// The keys of `respond`, `error` and `abort`.
fn respond_keys(node: &Node, words: &[String]) -> Result<(Table, Outcome), String> {
    let mut keys = Table::default();
    if node.word(0) == "abort" {
        keys.set("access", "deny all");
        return Ok((
            keys,
            differs("the client gets 403; the connection is not closed without a word"),
        ));
    }
    let status = |text: &String| text.parse::<u64>().ok().filter(|_| text.len() == 3);
    let (body, code) = match words {
        [] => (None, None),
        [one] => match status(one) {
            Some(code) => (None, Some(code)),
            None => (Some(one.clone()), None),
        },
        [body, code] => (Some(body.clone()), Some(status(code).ok_or("is no status")?)),
        _ => return Err("a response has a body and a status".to_owned()),
    };
    let mut body = body;
    for inner in node.inner() {
        match inner.word(0) {
            "body" => body = Some(inner.word(1).to_owned()),
            "close" | "message" => {}
            other => return Err(format!("a fixed response has no `{other}`")),
        }
    }
    let is_error = node.word(0) == "error";
    let code = code.unwrap_or(if is_error { 500 } else { 200 });
    if !(200..=599).contains(&code) {
        return Err("is no status of a response".to_owned());
    }
    if is_error {
        body = None;
    }
    if body.as_ref().is_some_and(|body| texts::has_placeholder(body)) {
        return Err("a fixed response has no variables".to_owned());
    }
    vocabulary::respond(&mut keys, code, body);
    Ok((keys, TAKEN))
}

/// The keys of `redir`.
fn redirect_keys(words: &[String]) -> Result<Table, String> {
    let to = words.first().ok_or("a redirect has a place")?;
    let status = match words.get(1).map_or("302", String::as_str) {
        "temporary" => 302,
        "permanent" => 301,
        status => status.parse::<u64>().unwrap_or_default(),
    };
    if ![301, 302, 303, 307, 308].contains(&status) || words.len() > 2 {
        return Err("is no status of a redirect".to_owned());
    }
    let mut keys = Table::default();
    vocabulary::redirect(&mut keys, status, texts::template(to)?);
    Ok(keys)
}

/// A line of `header`, `header_up` or `header_down`.
pub(crate) fn field(
    keys: &mut Table,
    line: &[String],
    edit: fn(&mut Table, &str, Edit) -> Outcome,
) -> Outcome {
    let name = line.first().ok_or("a field has a name")?;
    let value = || texts::template(line.get(1).map_or("", String::as_str));
    if line.len() > 2 {
        return left("a part of a value is not replaced");
    }
    let node = if let Some(name) = name.strip_prefix('-') {
        if name.contains('*') {
            return left("a field is removed by its name");
        }
        return edit(keys, name, Edit::Remove);
    } else if let Some(name) = name.strip_prefix('+') {
        (name, Edit::Add(value()?))
    } else if name.starts_with(['?', '>']) {
        return left("a field is set whether it is there or not");
    } else {
        (name.as_str(), Edit::Set(value()?))
    };
    edit(keys, node.0.trim_end_matches(':'), node.1)
}
