//! Expressions: those of the page, the values and failures of the language, its bounds, and a comparison
//! with the interpreter of the crate that reads it.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use levada_rules::{
    CountryLookup, Expression, ExpressionError, Failure, Mappings, Purpose, RequestFacts, Scheme,
};
use proptest::prelude::*;

#[derive(Debug)]
struct Germany;

impl CountryLookup for Germany {
    fn country(&self, address: IpAddr) -> Option<String> {
        (address == IpAddr::from([192, 0, 2, 1])).then(|| "DE".to_owned())
    }

    fn version(&self) -> u64 {
        1
    }
}

/// A request that the tests change.
#[derive(Clone)]
struct Asked {
    client: &'static str,
    method: Method,
    target: String,
    headers: HeaderMap,
}

fn get(target: &str, fields: &[(&'static str, &str)]) -> Asked {
    let field = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter().map(field) {
        headers.append(name, value);
    }
    Asked { client: "192.0.2.1", method: Method::GET, target: target.to_owned(), headers }
}

impl Asked {
    fn facts(&self) -> RequestFacts<'_> {
        let place = (Scheme::Https, "www.example.com");
        let asked = (&self.method, &*self.target);
        RequestFacts::new(self.client.parse().unwrap(), place, asked, &self.headers)
    }

    fn by(self, method: Method) -> Self {
        Self { method, ..self }
    }

    fn from(self, client: &'static str) -> Self {
        Self { client, ..self }
    }
}

fn parse(source: &str, purpose: Purpose) -> Result<Expression, ExpressionError> {
    Expression::parse(source, purpose, "here".to_owned(), Some(Arc::new(Germany)), &Mappings::new())
}

fn condition(source: &str) -> Expression {
    parse(source, Purpose::When).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn error(source: &str) -> ExpressionError {
    parse(source, Purpose::When).expect_err(source)
}

fn value(source: &str, asked: &Asked) -> Result<String, Failure> {
    let read = parse(source, Purpose::Key).unwrap_or_else(|error| panic!("{source}: {error}"));
    read.explain(&asked.facts())
}

/// The examples of the page: key and expression.
fn examples() -> Vec<(String, String)> {
    let page = include_str!("../../../../docs/operate/expressions.md");
    let begin = page.find("<!-- examples").unwrap();
    let end = page.find("<!-- end of examples").unwrap();
    let rows = page[begin..end].lines().filter(|line| line.starts_with("| "));
    rows.skip(1)
        .map(|row| {
            let row = row.replace("\\|", "\u{1}");
            let cells: Vec<&str> =
                row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            (cells[2].to_owned(), cells[3].replace('\u{1}', "|"))
        })
        .collect()
}

#[test]
fn the_examples_of_the_page_do_what_it_says() {
    let agent = |agent| get("/a", &[("user-agent", agent)]);
    let cookie = |cookie| get("/acme/x", &[("cookie", cookie)]);
    let long = format!("/?{}", "x".repeat(201));
    let expected: [&[(Asked, &str)]; 10] = [
        &[
            (get("/shop/a", &[("x-beta", "1")]), "true"),
            (get("/shop/a", &[("x-beta", "2")]), "false"),
            (get("/shop/a", &[]), "false"),
            (get("/a", &[("x-beta", "1")]), "false"),
        ],
        &[
            (get("/admin/x", &[]), "true"),
            (get("/%61dmin", &[]), "true"),
            (get("/administration", &[]), "false"),
            (get("/login", &[]).from("10.1.2.3"), "false"),
        ],
        &[
            (get("/", &[]).by(Method::POST), "true"),
            (get("/", &[("x-csrf", "")]).by(Method::POST), "false"),
            (get("/", &[]), "false"),
        ],
        &[(agent("GoogleBot/2"), "true"), (agent("Firefox"), "false"), (get("/", &[]), "false")],
        &[
            (get("/", &[("accept-language", "de-DE")]), "true"),
            (get("/", &[("accept-language", "en-GB")]), "false"),
            (get("/", &[]).from("192.0.2.2"), "false"),
        ],
        &[(get("/", &[("x-debug-sql", "1")]), "true"), (get("/", &[("x-debug", "1")]), "false")],
        &[(get("/", &[]), "eur"), (get("/", &[]).from("192.0.2.2"), "usd")],
        &[(cookie("plan=premium"), "premium"), (cookie("plan=free"), "acme")],
        &[
            (cookie("a=b; wordpress_logged_in_17=x"), "true"),
            (cookie("wordpress_test=1"), "false"),
            (get("/", &[]), "false"),
        ],
        &[(get(&long, &[]), "true"), (get("/?preview", &[]), "true"), (get("/?a", &[]), "false")],
    ];
    let examples = examples();
    assert_eq!(examples.len(), expected.len());
    for ((key, source), cases) in examples.iter().zip(expected) {
        let purpose = match key.as_str() {
            "when" => Purpose::When,
            "cache_key.expression" => Purpose::Key,
            "bypass_when" => Purpose::Bypass,
            "no_store_when" => Purpose::NoStore,
            other => panic!("no key {other}"),
        };
        let read = parse(source, purpose).unwrap_or_else(|error| panic!("{source}: {error}"));
        for (asked, expected) in cases {
            let found = read.explain(&asked.facts());
            assert_eq!(found.as_deref(), Ok(*expected), "{source} of {}", asked.target);
        }
    }
}

#[test]
fn names_are_those_of_the_request() {
    let fields = [
        ("host", "www.example.com"),
        ("x-a", "1"),
        ("x-a", "2"),
        ("cookie", "c=1; d=2"),
        ("cookie", "c=3"),
        ("user-agent", "Agent"),
        ("via", "1.1 x"),
        ("x-forwarded-for", "1.2.3.4"),
        ("referer", "http://r/"),
    ];
    let asked = get("/%61/./b?q=1&q=2&e", &fields);
    for (source, expected) in [
        ("request.path", "/a/b"),
        ("request.url_path", "/a/b"),
        ("request.query", "q=1&q=2&e"),
        ("request.host", "www.example.com"),
        ("request.scheme", "https"),
        ("request.useragent + '|' + request.referer", "Agent|http://r/"),
        ("request.headers['x-a']", "1,2"),
        ("request.headers['X-A']", "1,2"),
        ("request.headers['x-' + 'a']", "1,2"),
        ("request.headers.cookie", "c=1; d=2; c=3"),
        ("request.headers.absent", ""),
        ("'x-a' in request.headers", "true"),
        ("'absent' in request.headers", "false"),
        ("request.headers.exists(n, n in ['via', 'host', 'x-forwarded-for'])", "false"),
        ("request.headers[request.query_params.q + 'via']", ""),
        ("size(request.headers)", "4"),
        ("request.cookies.c + request.cookies['d']", "12"),
        ("size(request.cookies)", "2"),
        ("has(request.cookies.d) && !has(request.cookies.x)", "true"),
        ("request.query_params.q", "1"),
        ("has(request.query_params.e)", "true"),
        ("source.address", "192.0.2.1"),
        ("source.country", "DE"),
    ] {
        assert_eq!(value(source, &asked).as_deref(), Ok(expected), "{source}");
    }
    // All requests that share a key read.
    assert_eq!(value("request.method", &asked.clone().by(Method::HEAD)).as_deref(), Ok("GET"));
    let posted = asked.by(Method::POST);
    assert!(condition("request.method == 'POST'").holds(&posted.facts()));
}

#[test]
fn bytes_that_are_no_text_do_not_fail() {
    let mut asked = get("/", &[]);
    let bytes = HeaderValue::from_bytes(b"a\xff=\xfe; b\xf0=1").unwrap();
    asked.headers.insert("cookie", bytes.clone());
    asked.headers.insert("x-a", bytes);
    assert_eq!(
        value("request.headers['x-a']", &asked).as_deref(),
        Ok("a\u{fffd}=\u{fffd}; b\u{fffd}=1")
    );
    assert_eq!(value("size(request.cookies)", &asked).as_deref(), Ok("2"));
}

#[test]
fn evaluations_fail_for_reasons_that_have_names() {
    let asked = get("/a/b?n=x", &[]);
    for (source, expected) in [
        ("{'a': 1}[request.path]", Failure::NoName),
        ("request.path.split('/')[3]", Failure::NoElement),
        ("['a'][-1]", Failure::NoElement),
        ("int(request.query_params.n)", Failure::NoNumber),
        ("9223372036854775807 + size(request.path)", Failure::OutOfRange),
        ("-(-9223372036854775807 - 1)", Failure::OutOfRange),
        ("(-9223372036854775807 - 1) / -1", Failure::OutOfRange),
        ("1 % (size(request.path) - 4)", Failure::DivisionByZero),
        ("[1 / 0].exists(x, x == 1)", Failure::DivisionByZero),
        ("[0, 1].exists(x, 1 / x == 2)", Failure::DivisionByZero),
    ] {
        assert_eq!(value(source, &asked), Err(expected), "{source}");
    }
    // As CEL says, one side decides even if the other fails.
    for (source, expected) in [
        ("1 / 0 == 1 || true", "true"),
        ("true || 1 / 0 == 1", "true"),
        ("1 / 0 == 1 && false", "false"),
        ("[0, 1].exists(x, 1 / x == 1)", "true"),
        ("[0, 1].all(x, 1 / x == 2)", "false"),
    ] {
        assert_eq!(value(source, &asked).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn failures_take_the_safe_side_and_are_counted() {
    let (asked, source) = (get("/", &[]), "int(request.query) == 1");
    for (purpose, expected) in
        [(Purpose::When, false), (Purpose::Bypass, true), (Purpose::NoStore, true)]
    {
        let read = parse(source, purpose).unwrap();
        assert_eq!(read.holds(&asked.facts()), expected, "{purpose:?}");
        assert_eq!((read.take_failures(), read.take_failures()), (1, 0));
    }
    let key = parse("int(request.query)", Purpose::Key).unwrap();
    assert_eq!((key.text(&asked.facts()), key.take_failures()), (String::new(), 1));
    assert!(key.explain(&asked.facts()).is_err() && key.take_failures() == 0);
}

#[test]
fn work_is_bounded_whatever_a_client_sends() {
    let each = "request.cookies.exists(c, request.cookies[c] == 'never')";
    let cookies: Vec<String> = (0..4000).map(|n| format!("c{n}=1")).collect();
    let many = get("/", &[("cookie", &cookies.join("; "))]);
    assert_eq!(value(each, &many), Err(Failure::Cost));
    let few = get("/", &[("cookie", &cookies[..40].join("; "))]);
    assert_eq!(value(each, &few).as_deref(), Ok("false"));
    let long = get(&format!("/{}", "/".repeat(60_000)), &[]);
    let parts = "request.query.split('').exists(a, request.query.contains(a + 'y'))";
    let query = get(&format!("/?{}", "x".repeat(60_000)), &[]);
    assert_eq!(value(parts, &query), Err(Failure::Cost));
    assert_eq!(value("size(request.path) > 0", &long).as_deref(), Ok("true"));
    // Cost is a failure that no other value hides.
    assert_eq!(value(&format!("{each} || true"), &many), Err(Failure::Cost));
}

#[test]
fn expressions_that_may_cost_too_much_are_refused() {
    let nested = "request.headers.exists(a, request.cookies.exists(b, request.headers[a] == b))";
    assert!(matches!(error(nested), ExpressionError::Cost(_)));
    let doubled = format!("size({}) > 1", vec!["request.query"; 200].join(" + "));
    assert!(matches!(error(&doubled), ExpressionError::TooDeep | ExpressionError::Cost(_)));
    assert!(parse("request.headers.exists(a, request.headers[a] == 'x')", Purpose::When).is_ok());
}

#[test]
fn wrong_expressions_are_refused_with_what_is_wrong() {
    for (source, expected) in [
        ("", "cannot be read at character 1"),
        ("request.path ==", "cannot be read at character 16"),
        ("request.path = '/'", "cannot be read at character 14"),
        ("request.pth == '/'", "there is no `request.pth`"),
        ("request == '/'", "there is no `request`"),
        ("path == '/'", "there is no `path`"),
        ("request.path.beginsWith('/')", "there is no function `beginsWith`"),
        ("now() > 1", "there is no function `now`"),
        ("request.path", "gives a text, and must give true or false"),
        ("request.path == 1", "`==` needs texts on both sides, not a whole number"),
        ("request.path && true", "`&&` needs true or false, not a text"),
        ("!request.path", "`!` needs true or false, not a text"),
        ("true ? 1 : 'a'", "`? :` needs two values of one type, not a text"),
        ("request.path.startsWith(1)", "`startsWith` needs a text, not a whole number"),
        ("request.path.startsWith()", "`startsWith` has too few or too many arguments"),
        ("request.path.matches(request.query)", "must be a text that stands there"),
        ("request.path.matches('(')", "the pattern of `matches` is no regular expression"),
        ("request.path.matches('(a{1000}){1000}')", "needs more than 256 KiB"),
        ("cidr('10.0.0.0/40').containsIP(source.address)", "is no prefix of addresses"),
        ("cidr(source.address).containsIP(source.address)", "must be a text that stands there"),
        ("request.headers['a b'] == ''", "is no name of a header field"),
        ("request.headers['Via'] == ''", "changes on the way between nodes"),
        ("'x-forwarded-for' in request.headers", "changes on the way between nodes"),
        ("has(request.path)", "cannot be used here"),
        ("request.headers == request.headers", "a map as a whole"),
        ("request.headers.map(h, h).size() > 1", "a macro such as `map` or `filter`"),
        ("1.5 > 1.0", "a number with a point"),
        ("size([]) == 0", "an empty list"),
        ("[1, 'a'].exists(x, true)", "a list of values of several types"),
        ("{'a': request.path}['a'] == ''", "a map of values that are computed"),
        ("{'a': 1, 'a': 2}['a'] == 1", "a map that has a name twice"),
        ("Message{a: 1}.a == 1", "a message"),
        ("null == null", "null"),
        ("b'a' == b'a'", "bytes"),
        ("request.headers.exists(h, h)", "needs a condition, not a text"),
    ] {
        let found = error(source).to_string();
        assert!(found.contains(expected), "{source}: {found}");
    }
    let without = Expression::parse(
        "source.country == 'DE'",
        Purpose::When,
        String::new(),
        None,
        &Mappings::new(),
    );
    assert_eq!(without.unwrap_err(), ExpressionError::NoCountries);
}

#[test]
fn deep_and_long_expressions_are_refused_within_a_small_stack() {
    let deep = |open: &str, close: &str, times| open.repeat(times) + "1" + &close.repeat(times);
    let sources = vec![
        deep("(", ")", 2000),
        deep("[", "]", 2000),
        deep("{'a':", "}", 600),
        deep("!", "", 4000),
        deep("-", "", 4000),
        deep("true ? 1 : ", "", 370),
        deep("true ? ", " : 1", 340),
        deep("1+", "", 2000),
        deep("1 in ", "", 800),
        deep("a.", "", 2000),
        deep("size(", ")", 680),
        deep("true && ", "", 500),
        deep("[1].exists(x, ", ")", 250),
        "x".repeat(5000),
    ];
    // Tokio's workers have 2 MiB.
    let small = std::thread::Builder::new().stack_size(1 << 20);
    let parsed = small.spawn(move || sources.iter().for_each(|source| drop(error(source))));
    parsed.unwrap().join().unwrap();
}

/// Pieces of expressions, sensible ones and others.
const TOKENS: &[&str] = &[
    "request",
    ".path",
    ".headers",
    ".cookies",
    ".query",
    "source.address",
    "source.country",
    "['a']",
    "[0]",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "'a'",
    "'",
    "\"",
    "r'\\d'",
    "b''",
    "1",
    "0",
    "-",
    "9223372036854775807",
    "1.5",
    "1u",
    " == ",
    " in ",
    " && ",
    " || ",
    "!",
    " ? ",
    " : ",
    "+",
    "*",
    "/",
    "%",
    "<",
    ".exists(x, ",
    ".all(x, ",
    ".exists_one(x, ",
    ".map(x, ",
    "x",
    ".startsWith(",
    ".matches('a+')",
    ".split('/')",
    ".size()",
    "has(",
    "size(",
    "int(",
    "string(",
    "cidr('10.0.0.0/8').containsIP(",
    ",",
    "true",
    "null",
    ".",
    "?",
    "\\",
    "\n",
    "é",
    "😀",
    "`a`",
    "//",
    "'''",
    "\u{0}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_and_no_request_lead_to_a_panic(
        tokens in prop::collection::vec(prop::sample::select(TOKENS), 1..14),
        target in "/[ -~]{0,40}",
        field: Vec<u8>,
    ) {
        let mut asked = get(&target.replace(' ', "+"), &[]);
        for name in ["a", "cookie"] {
            if let Ok(value) = HeaderValue::from_bytes(&field) {
                asked.headers.append(name, value);
            }
        }
        let source = tokens.concat();
        for purpose in [Purpose::When, Purpose::Key] {
            if let Ok(read) = parse(&source, purpose) {
                prop_assert_ne!(read.explain(&asked.facts()), Err(Failure::Type), "{}", source);
            }
        }
    }

    #[test]
    fn values_are_those_of_the_interpreter_of_the_crate(
        source in generated(),
        path in "/[a-c/]{0,6}",
        query in "[a-c0-3]{0,3}",
        field in "[a-cA-C ,]{1,6}",
    ) {
        let asked = get(&format!("{path}?{query}"), &[("a", &field)]);
        let facts = asked.facts();
        let Ok(ours) = parse(&source, Purpose::Key) else { return Ok(()) };
        let ours = ours.explain(&facts).ok();
        prop_assert_eq!(ours, reference(&source, &facts.path, &query, &field), "{}", source);
    }
}

/// Expressions of the part of the language that both have.
fn generated() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![
        "request.path",
        "request.query",
        "request.headers['a']",
        "'a'",
        "'/a'",
        "''",
        "'B,c'",
    ]);
    let int =
        prop::sample::select(vec!["0", "1", "-2", "size(request.query)", "int(request.query)"]);
    let text = text.prop_map(str::to_owned);
    let int = int.prop_map(str::to_owned);
    let leaf = (text, int).prop_map(|(text, int)| (text, int, "true".to_owned())).boxed();
    let grown = leaf.prop_recursive(5, 24, 3, |inner| {
        (inner.clone(), inner.clone(), inner, 0_u8..8).prop_map(|(a, b, c, kind)| {
            let text = match kind {
                0 => format!("({} + {})", a.0, b.0),
                1 => format!("({} ? {} : {})", a.2, b.0, c.0),
                2 => format!("string({})", a.1),
                3 => format!("['x', {}, {}][{}]", a.0, b.0, c.1),
                4 => format!("{{'a': 'x', '/b': 'y'}}[{}]", a.0),
                5 => format!("string({})", a.2),
                _ => a.0.clone(),
            };
            let int = match kind {
                0 => format!("({} + {})", a.1, b.1),
                1 => format!("({} * {})", a.1, b.1),
                2 => format!("({} / {})", a.1, b.1),
                3 => format!("({} % {})", a.1, b.1),
                4 => format!("size({})", a.0),
                5 => format!("({} - {})", a.1, b.1),
                6 => format!("-({})", a.1),
                _ => format!("({} ? {} : {})", a.2, b.1, c.1),
            };
            let bool = match kind {
                0 => format!("({} && {})", a.2, b.2),
                1 => format!("({} || !{})", a.2, b.2),
                2 => format!("({} < {} || {} >= {})", a.1, b.1, a.0, c.0),
                3 => format!("({}.startsWith({}) == {}.endsWith({}))", a.0, b.0, c.0, b.0),
                4 => format!("({} in ['a', {}, {}] && {} != {})", a.0, b.0, c.0, a.1, b.1),
                5 => format!("['a', {}].exists(x, x.contains({}) || {})", a.0, b.0, c.2),
                6 => format!("[0, {}].all(x, {} / x < {})", a.1, b.1, c.1),
                _ => format!(
                    "{{'a': 1, 'b': 2}}.exists_one(x, {}.matches('a+|^$') && x < {})",
                    a.0, b.0
                ),
            };
            (text, int, bool)
        })
    });
    (grown, 0..3).prop_map(|((text, int, bool), which)| match which {
        0 => text,
        1 => int,
        _ => bool,
    })
}

/// The value by the interpreter of the crate `cel`; `None` if the evaluation fails.
fn reference(source: &str, path: &str, query: &str, field: &str) -> Option<String> {
    use std::collections::HashMap;

    use cel::{Context, Env, Value};

    let env = Arc::new(Env::stdlib());
    let program = env.compile(source).unwrap();
    let mut context = Context::with_env(env);
    let headers: Value = HashMap::from([("a", field)]).into();
    let request: HashMap<&str, Value> =
        HashMap::from([("path", path.into()), ("query", query.into()), ("headers", headers)]);
    context.add_variable_from_value("request", request);
    match program.execute(&context).ok()? {
        Value::Bool(value) => Some(value.to_string()),
        Value::Int(value) => Some(value.to_string()),
        Value::String(value) => Some(value.to_string()),
        other => panic!("{source} gives {other:?}"),
    }
}
