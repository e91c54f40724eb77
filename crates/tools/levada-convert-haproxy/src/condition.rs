//! Conditions of rules: access lists by name, anonymous ones in braces, `!`, `or`, `unless`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use levada_conversion::{
    comparisons::{self, Comparison, Named, Test},
    files::Includes,
    matchers::Condition,
};

use crate::{
    files,
    hosts::{self, HostTest, Hosts},
    parse::Line,
    sample::{self, Part, Sample, SampleTest},
};

/// Conditions of which one must hold; none never holds.
pub(crate) type Verdict = Vec<Condition>;

/// A term that is no property of the request alone, and that a rule itself must understand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// A counter above a number.
    Above { counter: String, argument: String, number: u64 },
    /// A user of a list.
    User(String),
    /// Addresses of clients.
    Clients(Vec<String>),
}

/// A term with whether it is negated.
pub(crate) type SpecialTerm = (bool, Special);

/// The surroundings of a condition.
pub(crate) struct Judge<'a> {
    /// The access lists of the section.
    pub(crate) lists: &'a BTreeMap<String, Vec<Line>>,
    pub(crate) includes: &'a dyn Includes,
    pub(crate) hosts: &'a Hosts,
    /// Parts of requests that rules before have changed.
    pub(crate) changed: &'a BTreeSet<String>,
}

/// Terms that must hold together: whether each is negated, and its words.
type Alternative = Vec<(bool, Vec<String>)>;

/// The most alternatives.
const MOST: usize = 64;

/// The alternatives of a condition, each with its terms.
pub(crate) fn terms(condition: &[String]) -> Result<Vec<Alternative>, String> {
    let mut alternatives = vec![Vec::new()];
    let mut negated = false;
    let mut words = condition.iter();
    while let Some(word) = words.next() {
        let mut word = word.as_str();
        if word == "or" || word == "||" {
            alternatives.push(Vec::new());
            continue;
        }
        while let Some(rest) = word.strip_prefix('!') {
            negated = !negated;
            word = rest;
        }
        let term = match word {
            "" => continue,
            "{" => {
                let inner: Vec<_> =
                    words.by_ref().take_while(|word| *word != "}").cloned().collect();
                if inner.is_empty() {
                    return Err("the braces of a condition are empty".to_owned());
                }
                [vec!["{".to_owned()], inner].concat()
            }
            name => vec![name.to_owned()],
        };
        if let Some(last) = alternatives.last_mut() {
            last.push((negated, term));
        }
        negated = false;
    }
    match alternatives.iter().any(Vec::is_empty) {
        true => Err("a part of the condition is missing".to_owned()),
        false => Ok(alternatives),
    }
}

impl Judge<'_> {
    /// The condition of a rule, `if ...` or `unless ...`.
    pub(crate) fn rule(&self, condition: &[String]) -> Result<Verdict, String> {
        let Some((word, rest)) = condition.split_first() else {
            return Ok(vec![Condition::everything()]);
        };
        let verdict = self.alternatives(&terms(rest)?)?;
        if word == "unless" { negated(&verdict) } else { Ok(verdict) }
    }

    pub(crate) fn alternatives(
        &self,
        alternatives: &[Vec<(bool, Vec<String>)>],
    ) -> Result<Verdict, String> {
        let mut any = Verdict::new();
        for terms in alternatives {
            let mut all = vec![Condition::everything()];
            for (is_negated, term) in terms {
                let verdict = self.term(term)?;
                let verdict = if *is_negated { negated(&verdict)? } else { verdict };
                all = both(&all, &verdict)?;
            }
            any = either(any, all);
        }
        Ok(any)
    }

    fn term(&self, term: &[String]) -> Result<Verdict, String> {
        match term {
            [open, inner @ ..] if open == "{" => self.test(inner),
            [name] => match self.lists.get(name) {
                Some(lines) => {
                    let mut any = Verdict::new();
                    for line in lines {
                        any = either(any, self.test(line.from(2))?);
                    }
                    Ok(any)
                }
                None => {
                    predefined(name).ok_or_else(|| format!("there is no access list `{name}`"))?
                }
            },
            _ => Err("the condition cannot be read".to_owned()),
        }
    }

    /// The term as a special one, where it is by a list of one line.
    pub(crate) fn special(&self, term: &[String]) -> Option<Special> {
        let words = match term {
            [open, inner @ ..] if open == "{" => inner,
            [name] => match &self.lists.get(name)?[..] {
                [line] => line.from(2),
                _ => return None,
            },
            _ => return None,
        };
        let test = Words::read(words, self.includes).ok()?;
        match &test.sample.part {
            Part::User(list) => Some(Special::User(list.clone())),
            Part::Counter(counter, argument) => {
                let number = match test.values.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    ["gt", number] => number.parse().ok()?,
                    ["ge", number] => number.parse::<u64>().ok()?.checked_sub(1)?,
                    _ => return None,
                };
                Some(Special::Above {
                    counter: counter.clone(),
                    argument: argument.clone(),
                    number,
                })
            }
            Part::Client => addresses(&test.values).ok().map(Special::Clients),
            _ => None,
        }
    }

    /// One comparison.
    fn test(&self, words: &[String]) -> Result<Verdict, String> {
        let test = Words::read(words, self.includes)?;
        self.is_unchanged(&test.sample.part)?;
        if let Some((kind, arguments)) = &test.sample.map {
            return self.looked_up(&test, kind, arguments);
        }
        self.compared(&test.sample.part, &test)
    }

    /// A comparison whose words were made from an entry of a map.
    pub(crate) fn compared_unchanged(&self, words: &Words) -> Result<Verdict, String> {
        self.is_unchanged(&words.sample.part)?;
        if words.sample.part == Part::Base {
            return self.base(words);
        }
        self.compared(&words.sample.part, words)
    }

    /// Host and path together: `a.example/path`.
    fn base(&self, words: &Words) -> Result<Verdict, String> {
        let mut any = Verdict::new();
        for value in &words.values {
            let (host, path) =
                value.split_at(value.find('/').ok_or("a host has a path behind it")?);
            let of = |part: Part, test, text: &str| {
                let sample = Sample { part: part.clone(), ..words.sample.clone() };
                self.compared(
                    &part,
                    &Words { sample, test, values: vec![text.to_owned()], ..words.clone() },
                )
            };
            let hosts = of(Part::Host, None, host)?;
            any = either(any, both(&hosts, &of(Part::Path, words.test, path)?)?);
        }
        Ok(any)
    }

    fn is_unchanged(&self, part: &Part) -> Result<(), String> {
        let name = match part {
            Part::Path | Part::Url | Part::Base => "path",
            Part::Query | Part::Argument(_) => "query",
            Part::Host => "host",
            Part::Method => "method",
            Part::Field(name) | Part::WholeField(name) => name,
            Part::Cookie(_) => "cookie",
            _ => return Ok(()),
        };
        match self.changed.contains(name) {
            true => Err(format!("a rule before changes the {name}; a route looks at the client's")),
            false => Ok(()),
        }
    }

    /// `path,map(...) -m found`: the keys of the map.
    fn looked_up(&self, test: &Words, kind: &str, arguments: &[String]) -> Result<Verdict, String> {
        if test.test != Some(SampleTest::Found) {
            return Err("only whether a map has a key is looked at".to_owned());
        }
        let path = arguments.first().map_or("", String::as_str);
        let keys: Vec<_> =
            files::map(self.includes, path)?.into_iter().map(|(key, _)| key).collect();
        let by = map_test(kind)?;
        self.compared(&test.sample.part, &Words { test: Some(by), values: keys, ..test.clone() })
    }

    pub(crate) fn compared(&self, part: &Part, test: &Words) -> Result<Verdict, String> {
        let values = &test.values[..];
        let one = |condition: Condition| Ok(vec![condition]);
        let text = match test.test {
            None => Some(Test::Is),
            Some(SampleTest::Text(text)) => Some(text),
            Some(_) => None,
        };
        let compare = |texts| Comparison {
            test: text.unwrap_or(Test::Is),
            texts,
            ignores_case: test.ignores_case,
        };
        match part {
            Part::Always(holds) => {
                Ok(if *holds { vec![Condition::everything()] } else { Vec::new() })
            }
            Part::IsTls => one(comparisons::scheme("https")),
            Part::Client => one(Condition::clients(&addresses(values)?)),
            _ if values.is_empty() && test.test != Some(SampleTest::Found) => {
                Err("it is compared with nothing".to_owned())
            }
            Part::Method => one(comparisons::method(values)?),
            Part::Host => self.host(test),
            Part::Base if matches!(text, Some(Test::Is | Test::Begins)) => self.base(test),
            Part::Path | Part::Url => {
                let has_query =
                    values.iter().any(|value| value.contains('?') || value.contains("$"));
                if *part == Part::Url
                    && (has_query || !matches!(text, Some(Test::Begins | Test::Matches)))
                {
                    return Err("a route looks at the path without the query".to_owned());
                }
                match (test.test, text) {
                    (Some(SampleTest::Directory), _) => {
                        let directory = |text: &String| {
                            format!("(?:^|/){}(?:/|$)", regex::escape(text.trim_matches('/')))
                        };
                        let texts: Vec<_> = values.iter().map(directory).collect();
                        let test = Comparison { test: Test::Matches, ..compare(&texts[..]) };
                        one(comparisons::path(&test)?)
                    }
                    (_, Some(_)) => one(comparisons::path(&compare(values))?),
                    _ => Err("a path is not compared in this way".to_owned()),
                }
            }
            Part::Query if text.is_some() => {
                let regex = compare(values).regex()?;
                let text = levada_conversion::matchers::quoted(&regex);
                let condition = Condition::of(None, Some(format!("request.query.matches({text})")));
                condition
                    .map(|condition| vec![condition])
                    .ok_or_else(|| "it is too long".to_owned())
            }
            Part::Field(name) => match (test.test, text) {
                (Some(SampleTest::Found), _) => one(comparisons::exists(Named::Header, name)?),
                (_, Some(text)) => one(comparisons::joined_field(name, &in_list(text, test)?)?),
                _ => Err("a field is not compared in this way".to_owned()),
            },
            Part::WholeField(name) => self.named(Named::Header, name, test, text),
            Part::Cookie(name) => self.named(Named::Cookie, name, test, text),
            Part::Argument(name) => self.named(Named::Query, name, test, text),
            _ => Err("no rule looks at it".to_owned()),
        }
    }

    fn named(
        &self,
        kind: Named,
        name: &str,
        test: &Words,
        text: Option<Test>,
    ) -> Result<Verdict, String> {
        let comparison =
            |text| Comparison { test: text, texts: &test.values, ignores_case: test.ignores_case };
        match (test.test, text) {
            (Some(SampleTest::Found), _) => Ok(vec![comparisons::exists(kind, name)?]),
            (_, Some(text)) => Ok(vec![comparisons::named(kind, name, &comparison(text))?]),
            _ => Err("it is not compared in this way".to_owned()),
        }
    }

    fn host(&self, test: &Words) -> Result<Verdict, String> {
        let by = match test.test {
            None => HostTest::Text(Test::Is),
            Some(SampleTest::Text(text)) => HostTest::Text(text),
            Some(SampleTest::Domain) => HostTest::Domain,
            Some(SampleTest::Found) => return Ok(vec![Condition::everything()]),
            Some(_) => return Err("a host is not compared in this way".to_owned()),
        };
        let mut open = Vec::new();
        for text in &test.values {
            match hosts::holds(self.hosts, by, without_port(text)) {
                Some(true) => return Ok(vec![Condition::everything()]),
                Some(false) => {}
                None => open.push(without_port(text).to_owned()),
            }
        }
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let (by, texts) = match by {
            HostTest::Text(text) => (text, open),
            HostTest::Domain => {
                let labels = |text: &String| {
                    format!("(?:^|\\.){}(?:\\.|:|$)", regex::escape(text.trim_matches('.')))
                };
                (Test::Matches, open.iter().map(labels).collect())
            }
        };
        let comparison = Comparison { test: by, texts: &texts, ignores_case: true };
        Ok(vec![comparisons::host(&comparison)?])
    }
}

/// `example.com` of `example.com:443`.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    }
}

/// How a map compares its keys.
pub(crate) fn map_test(kind: &str) -> Result<SampleTest, String> {
    let kind = kind.split('_').nth(1).unwrap_or("str");
    let kind = if kind == "regm" { "reg" } else { kind };
    match sample::test_named(kind) {
        Some(
            test @ (SampleTest::Text(_)
            | SampleTest::Domain
            | SampleTest::Directory
            | SampleTest::Address),
        ) => Ok(test),
        _ => Err("there is nothing for maps of this kind".to_owned()),
    }
}

/// The words of a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) sample: Sample,
    pub(crate) test: Option<SampleTest>,
    pub(crate) ignores_case: bool,
    pub(crate) values: Vec<String>,
}

impl Words {
    pub(crate) fn read(words: &[String], includes: &dyn Includes) -> Result<Self, String> {
        let (name, mut rest) = words.split_first().ok_or("it is compared with nothing")?;
        let sample = sample::read(name)?;
        let mut read = Self { test: sample.test, ignores_case: false, values: Vec::new(), sample };
        while let [flag, after @ ..] = rest {
            rest = after;
            match (flag.as_str(), after) {
                ("-i", _) => read.ignores_case = true,
                ("-n" | "-u", _) => {}
                ("-f", [file, after @ ..]) => {
                    read.values.extend(files::list(includes, file)?);
                    rest = after;
                }
                ("-m", [name, after @ ..]) => {
                    let test = sample::test_named(name);
                    read.test =
                        Some(test.ok_or_else(|| format!("there is nothing for `-m {name}`"))?);
                    rest = after;
                }
                ("--", _) => {
                    read.values.extend(after.iter().cloned());
                    break;
                }
                (flag, _) if flag.starts_with('-') && flag.len() == 2 => {
                    return Err(format!("there is nothing for the flag `{flag}`"));
                }
                (value, _) => {
                    read.values.push(value.to_owned());
                    read.values.extend(after.iter().cloned());
                    break;
                }
            }
        }
        if read.sample.is_lower {
            // A value with capitals is never equal; a comparison without case would be.
            let has_capital = read.values.iter().any(|value| value.chars().any(char::is_uppercase));
            if has_capital && !read.ignores_case && read.sample.part != Part::Host {
                return Err("a text in lower case has no capitals".to_owned());
            }
            read.ignores_case = true;
        }
        Ok(read)
    }
}

/// The expression for a field whose values between commas are compared one by one.
fn in_list(test: Test, words: &Words) -> Result<String, String> {
    const BEGIN: &str = "(?:^|,)[ \\t]*";
    const END: &str = "[ \\t]*(?:,|$)";
    let one = |text: &String| {
        let escaped = regex::escape(text);
        match test {
            Test::Is => Ok(format!("{BEGIN}{escaped}{END}")),
            Test::Begins => Ok(format!("{BEGIN}{escaped}")),
            Test::Ends => Ok(format!("{escaped}{END}")),
            Test::Contains => Ok(escaped),
            Test::Matches => {
                let (start, rest) = match text.strip_prefix('^') {
                    Some(rest) => (BEGIN, rest),
                    None => ("", text.as_str()),
                };
                let (rest, end) = match rest.strip_suffix('$').filter(|rest| !rest.ends_with('\\'))
                {
                    Some(rest) => (rest, END),
                    None => (rest, ""),
                };
                let has_more = rest.replace("[^", "").contains('^') || rest.contains('$');
                match has_more {
                    true => {
                        Err("the ends of values between commas are in the expression".to_owned())
                    }
                    false => Ok(format!("{start}(?:{rest}){end}")),
                }
            }
        }
    };
    let all: Vec<_> = words.values.iter().map(one).collect::<Result<_, _>>()?;
    Ok(format!("{}{}", if words.ignores_case { "(?i)" } else { "" }, all.join("|")))
}

/// Addresses and prefixes.
pub(crate) fn addresses(values: &[String]) -> Result<Vec<String>, String> {
    let is_one = |value: &String| {
        let (address, length) = value.split_once('/').unwrap_or((value, ""));
        match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => length.is_empty() || length.parse::<u8>().is_ok_and(|l| l <= 32),
            Ok(IpAddr::V6(_)) => length.is_empty() || length.parse::<u8>().is_ok_and(|l| l <= 128),
            Err(_) => false,
        }
    };
    match values.iter().find(|value| !is_one(value)) {
        _ if values.is_empty() => Err("it is compared with nothing".to_owned()),
        Some(other) => Err(format!("`{other}` is neither an address nor a prefix of addresses")),
        None => Ok(values.to_vec()),
    }
}

/// The access lists that HAProxy has by itself.
fn predefined(name: &str) -> Option<Result<Verdict, String>> {
    let methods = |all: &[&str]| {
        let all: Vec<_> = all.iter().map(|one| (*one).to_owned()).collect();
        comparisons::method(&all).map(|one| vec![one])
    };
    let clients = |all: &[&str]| {
        let all: Vec<_> = all.iter().map(|one| (*one).to_owned()).collect();
        Ok(vec![Condition::clients(&all)])
    };
    Some(match name {
        "TRUE" | "HTTP" => Ok(vec![Condition::everything()]),
        "FALSE" => Ok(Vec::new()),
        "LOCALHOST" => clients(&["127.0.0.0/8", "::1"]),
        "METH_GET" => methods(&["GET", "HEAD"]),
        "METH_HEAD" | "METH_POST" | "METH_PUT" | "METH_DELETE" | "METH_OPTIONS" | "METH_TRACE"
        | "METH_CONNECT" | "METH_PATCH" => methods(&[&name["METH_".len()..]]),
        "HTTP_URL_SLASH" | "HTTP_URL_ABS" | "HTTP_URL_STAR" | "HTTP_CONTENT" | "HTTP_1.0"
        | "HTTP_1.1" | "HTTP_2.0" | "RDP_COOKIE" | "REQ_CONTENT" | "WAIT_END" => {
            Err(format!("no rule looks at what `{name}` looks at"))
        }
        _ => return None,
    })
}

fn both(one: &Verdict, other: &Verdict) -> Result<Verdict, String> {
    let mut joined = Verdict::new();
    for left in one {
        for right in other {
            let both = left.and(right).ok_or("a route cannot look at all of this together")?;
            joined = either(joined, vec![both]);
        }
    }
    match joined.len() > MOST {
        true => Err("the condition has too many alternatives".to_owned()),
        false => Ok(joined),
    }
}

/// Alternatives, those that one route can say joined.
fn either(mut any: Verdict, more: Verdict) -> Verdict {
    for one in more {
        if one.holds_always() || any.iter().any(Condition::holds_always) {
            return vec![Condition::everything()];
        }
        let listed = |own: &Condition| own.or(&one).filter(|both| is_listed(both, own));
        let joined = any.last().and_then(listed);
        match (joined, any.last_mut()) {
            (Some(joined), Some(last)) => *last = joined,
            _ => any.push(one),
        }
    }
    any
}

/// Whether the two are a list of values, and no longer expression.
fn is_listed(both: &Condition, one: &Condition) -> bool {
    let has_matchers = |of: &Condition| of.table().is_some_and(|table| !table.has_any(&["when"]));
    has_matchers(both) && has_matchers(one)
}

pub(crate) fn negated(verdict: &Verdict) -> Result<Verdict, String> {
    if verdict.is_empty() {
        return Ok(vec![Condition::everything()]);
    }
    if verdict.iter().any(Condition::holds_always) {
        return Ok(Vec::new());
    }
    let any = Condition::any(verdict).and_then(|any| any.negated());
    any.map(|one| vec![one]).ok_or_else(|| "no route takes all other requests".to_owned())
}
