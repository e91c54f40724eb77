//! Rules that map attributes of a request to a service class; the first rule that matches applies.

use levada_types::ServiceClass;
use regex::Regex;

/// The attributes of a request that a switch can see.
#[derive(Clone, Copy, Debug)]
pub struct RequestAttributes<'a> {
    /// The path as the client sent it, without the query.
    pub path: &'a str,
    /// The method.
    pub method: &'a str,
    /// The type of the request's body, without parameters.
    pub content_type: Option<&'a str>,
    /// Whether the client came over TLS.
    pub tls: bool,
}

/// One rule. It matches if all of its conditions hold; a condition that is absent always holds.
#[derive(Clone, Debug, Default)]
pub struct ClassRule {
    /// The class; `None` if it is to be learned.
    pub class: Option<ServiceClass>,
    /// The prefix of the path.
    pub prefix: Option<String>,
    /// The suffix of the path.
    pub suffix: Option<String>,
    /// A regular expression that is found in the path.
    pub regex: Option<Regex>,
    /// One of these methods; any if empty.
    pub methods: Vec<String>,
    /// One of these types of the request's body, in lower case; any if empty.
    pub content_types: Vec<String>,
    /// Over TLS, or not.
    pub tls: Option<bool>,
}

impl PartialEq for ClassRule {
    fn eq(&self, other: &Self) -> bool {
        let text = |rule: &Self| rule.regex.as_ref().map(|regex| regex.as_str().to_owned());
        self.class == other.class
            && (&self.prefix, &self.suffix, text(self))
                == (&other.prefix, &other.suffix, text(other))
            && (&self.methods, &self.content_types) == (&other.methods, &other.content_types)
            && self.tls == other.tls
    }
}

impl ClassRule {
    /// Whether the rule matches this request.
    pub fn matches(&self, seen: &RequestAttributes<'_>) -> bool {
        let one_of = |list: &[String], given: &str| {
            list.is_empty() || list.iter().any(|name| name.eq_ignore_ascii_case(given))
        };
        self.tls.is_none_or(|tls| tls == seen.tls)
            && self.prefix.as_ref().is_none_or(|prefix| seen.path.starts_with(prefix.as_str()))
            && self.suffix.as_ref().is_none_or(|suffix| seen.path.ends_with(suffix.as_str()))
            && one_of(&self.methods, seen.method)
            && one_of(&self.content_types, seen.content_type.unwrap_or_default())
            && self.regex.as_ref().is_none_or(|regex| regex.is_match(seen.path))
    }

    /// Whether this rule matches every request that `later` matches. Of two regular expressions
    /// only equal ones are known to cover each other.
    pub fn covers(&self, later: &Self) -> bool {
        let starts =
            |prefix: &str| later.prefix.as_deref().is_some_and(|theirs| theirs.starts_with(prefix));
        let ends =
            |suffix: &str| later.suffix.as_deref().is_some_and(|theirs| theirs.ends_with(suffix));
        let wider = |mine: &[String], theirs: &[String]| {
            let has = |name: &String| mine.iter().any(|own| own.eq_ignore_ascii_case(name));
            mine.is_empty() || (!theirs.is_empty() && theirs.iter().all(has))
        };
        let same = |regex: &Regex| {
            later.regex.as_ref().is_some_and(|theirs| theirs.as_str() == regex.as_str())
        };
        self.prefix.as_deref().is_none_or(|prefix| prefix == "/" || starts(prefix))
            && self.suffix.as_deref().is_none_or(ends)
            && self.regex.as_ref().is_none_or(same)
            && wider(&self.methods, &later.methods)
            && wider(&self.content_types, &later.content_types)
            && self.tls.is_none_or(|tls| later.tls == Some(tls))
    }

    /// Whether some request certainly matches both rules. Which texts a regular expression matches
    /// is not known.
    pub fn overlaps(&self, other: &Self) -> bool {
        let agree = |mine: Option<&str>, theirs: Option<&str>, within: fn(&str, &str) -> bool| {
            let both = mine.zip(theirs);
            both.is_none_or(|(mine, theirs)| within(mine, theirs) || within(theirs, mine))
        };
        let shared = |mine: &[String], theirs: &[String]| {
            let has = |name: &String| mine.iter().any(|own| own.eq_ignore_ascii_case(name));
            mine.is_empty() || theirs.is_empty() || theirs.iter().any(has)
        };
        self.regex.is_none()
            && other.regex.is_none()
            && agree(self.prefix.as_deref(), other.prefix.as_deref(), |a, b| a.starts_with(b))
            && agree(self.suffix.as_deref(), other.suffix.as_deref(), |a, b| a.ends_with(b))
            && shared(&self.methods, &other.methods)
            && shared(&self.content_types, &other.content_types)
            && self.tls.zip(other.tls).is_none_or(|(mine, theirs)| mine == theirs)
    }

    /// The reason why no request can match, if the rule alone shows it.
    pub fn never_matches(&self) -> Option<&'static str> {
        if self.prefix.as_deref().is_some_and(|prefix| !prefix.starts_with('/')) {
            return Some("every path begins with `/`");
        }
        if self.prefix.iter().chain(&self.suffix).any(|text| text.contains(['?', '#'])) {
            return Some("the query is not part of the path");
        }
        let first =
            self.regex.as_ref().and_then(|regex| regex.as_str().strip_prefix('^')?.chars().next());
        if first.is_some_and(|first| first.is_ascii_alphanumeric()) {
            return Some("every path begins with `/`");
        }
        let passes = |method: &String| !matches!(method.as_str(), "CONNECT" | "TRACE");
        if !self.methods.is_empty() && !self.methods.iter().any(passes) {
            return Some("a node does not forward this method");
        }
        None
    }
}

/// The rules of a site, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassRules(pub Vec<ClassRule>);

impl ClassRules {
    /// The index of the first rule that matches the request.
    pub fn first_match(&self, seen: &RequestAttributes<'_>) -> Option<usize> {
        self.0.iter().position(|rule| rule.matches(seen))
    }

    /// Pairs (rule, earlier rule): the earlier rule covers the rule, so the rule can never be the
    /// first to match.
    pub fn covered(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().enumerate().filter_map(|(at, rule)| {
            let before = self.0[..at].iter().position(|earlier| earlier.covers(rule))?;
            Some((at, before))
        })
    }

    /// Pairs (rule, earlier rule): the earlier rule gives another class to some requests of the
    /// rule. An earlier rule that covers all requests of the rule, or that is a narrower exception
    /// to it, is not reported.
    pub fn contested(&self) -> impl Iterator<Item = (usize, usize)> {
        let before = |at: usize| (0..at).map(move |before| (at, before));
        self.0.iter().enumerate().flat_map(move |(at, _)| before(at)).filter(|(at, before)| {
            let (earlier, later) = (&self.0[*before], &self.0[*at]);
            earlier.class != later.class
                && earlier.overlaps(later)
                && !earlier.covers(later)
                && !later.covers(earlier)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &'static str) -> RequestAttributes<'static> {
        RequestAttributes { path, method: "GET", content_type: None, tls: false }
    }

    fn prefix(text: &str) -> ClassRule {
        ClassRule { prefix: Some(text.to_owned()), ..ClassRule::default() }
    }

    fn suffix(text: &str) -> ClassRule {
        ClassRule { suffix: Some(text.to_owned()), ..ClassRule::default() }
    }

    fn regex(text: &str) -> ClassRule {
        ClassRule { regex: Some(Regex::new(text).unwrap()), ..ClassRule::default() }
    }

    #[test]
    fn everything_that_a_rule_names_must_hold() {
        let rule = ClassRule { suffix: Some(".php".into()), tls: Some(true), ..prefix("/shop") };
        let over_tls = RequestAttributes { tls: true, ..seen("/shop/pay.php") };
        assert!(rule.matches(&over_tls));
        assert!(!rule.matches(&RequestAttributes { tls: false, ..over_tls }));
        assert!(!rule.matches(&RequestAttributes { path: "/shop/pay", ..over_tls }));
        let rule = ClassRule {
            methods: vec!["post".into(), "PUT".into()],
            content_types: vec!["application/json".into()],
            ..regex("^/v[12]/")
        };
        let post = RequestAttributes {
            method: "POST",
            content_type: Some("application/JSON"),
            ..seen("/v1/x")
        };
        assert!(rule.matches(&post));
        assert!(!rule.matches(&RequestAttributes { content_type: None, ..post }));
        assert!(!rule.matches(&RequestAttributes { method: "GET", ..post }));
        assert!(!rule.matches(&RequestAttributes { path: "/v3/x", ..post }));
    }

    #[test]
    fn first_match_counts() {
        let rules = ClassRules(vec![suffix(".gif"), prefix("/img"), ClassRule::default()]);
        let of = |path| rules.first_match(&seen(path));
        assert_eq!([of("/img/a.gif"), of("/img/a.png"), of("/x")], [Some(0), Some(1), Some(2)]);
        assert_eq!(ClassRules::default().first_match(&seen("/x")), None);
    }

    #[test]
    fn rule_behind_a_wider_one_is_found() {
        let tls = ClassRule { tls: Some(true), ..ClassRule::default() };
        let get = ClassRule { methods: vec!["GET".into()], ..ClassRule::default() };
        let both = ClassRule { methods: vec!["GET".into(), "HEAD".into()], ..ClassRule::default() };
        for (earlier, later, covered) in [
            (prefix("/a"), prefix("/a/b"), true),
            (prefix("/a/b"), prefix("/a"), false),
            (prefix("/"), regex("x"), true),
            (suffix(".php"), suffix("index.php"), true),
            (suffix(".php"), prefix("/index.php"), false),
            (regex("a+"), regex("a+"), true),
            (regex("a+"), regex("aa"), false),
            (both.clone(), get.clone(), true),
            (get.clone(), both, false),
            (get, ClassRule::default(), false),
            (tls.clone(), ClassRule { tls: Some(true), ..prefix("/a") }, true),
            (tls, prefix("/a"), false),
            (ClassRule::default(), prefix("/a"), true),
        ] {
            let found = ClassRules(vec![earlier.clone(), later.clone()]).covered().next();
            assert_eq!(found, covered.then_some((1, 0)), "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn rules_that_contest_a_request_are_found() {
        let of = |rule: ClassRule, class| ClassRule { class: Some(class), ..rule };
        let cpu = |rule| of(rule, ServiceClass::CpuBound);
        let disk = |rule| of(rule, ServiceClass::DiskBound);
        let tls = |tls, rule| ClassRule { tls: Some(tls), ..rule };
        for (earlier, later, contested) in [
            (cpu(prefix("/a")), disk(suffix(".php")), true),
            (cpu(prefix("/a")), cpu(suffix(".php")), false),
            (cpu(prefix("/a/b")), disk(prefix("/a")), false),
            (cpu(prefix("/a")), disk(prefix("/b")), false),
            (cpu(suffix(".php")), disk(suffix(".gif")), false),
            (tls(true, cpu(prefix("/a/b"))), disk(prefix("/a")), false),
            (tls(true, cpu(prefix("/a"))), disk(prefix("/a/b")), true),
            (tls(true, cpu(prefix("/a"))), tls(false, disk(suffix("b"))), false),
            (cpu(prefix("/a")), disk(regex("b")), false),
            (cpu(prefix("/a")), suffix(".php"), true),
        ] {
            let found = ClassRules(vec![earlier.clone(), later.clone()]).contested().next();
            assert_eq!(found, contested.then_some((1, 0)), "{earlier:?} {later:?}");
        }
    }

    #[test]
    fn rule_that_no_request_can_match_is_found() {
        let connect = ClassRule { methods: vec!["CONNECT".into()], ..ClassRule::default() };
        for rule in [prefix("img/"), prefix("/a?b"), suffix("?x=1"), regex("^api/"), connect] {
            assert!(rule.never_matches().is_some(), "{rule:?}");
        }
        for rule in
            [prefix("/img"), suffix(".gif"), regex("^/api"), regex("^.a"), ClassRule::default()]
        {
            assert_eq!(rule.never_matches(), None, "{rule:?}");
        }
    }
}
