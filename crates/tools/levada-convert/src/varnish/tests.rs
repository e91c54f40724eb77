use super::convert;
use crate::{conversion::Conversion, conversion::Unreadable, files::InputFile, files::NoIncludes};

fn read(text: &str) -> Result<Conversion, Unreadable> {
    convert(&InputFile { name: "default.vcl".to_owned(), text: text.to_owned() }, &NoIncludes)
}

#[test]
fn a_file_that_is_not_vcl_is_refused_with_its_line() {
    let error = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(error("vcl 4.1;\nsub a {"), "default.vcl:2: the block that begins here has no `}`");
    assert_eq!(error("vcl 4.1"), "default.vcl:1: the statement does not end with `;`");
    assert_eq!(error("\n\"open"), "default.vcl:2: the text that begins here does not end");
    assert_eq!(error("/* open"), "default.vcl:1: the comment that begins here does not end");
    assert_eq!(error(&"a {".repeat(1_000)), "default.vcl:1: blocks are nested too deeply");
}

#[test]
fn conditions_that_multiply_are_left() {
    let either = |i| format!("(req.http.A{i} || req.http.B{i} || req.http.C{i} || req.http.D{i})");
    let all = (0..8).map(either).collect::<Vec<_>>().join(" && ");
    let text = format!(
        "backend b {{ .host = \"h\"; }} sub vcl_recv {{ if ({all}) {{ return (pass); }} }}"
    );
    assert!(read(&text).unwrap().ledger.left[0].reason.contains("too many alternatives"));
    let nested: String =
        (0..60).map(|i| format!("if (req.http.A{i} || req.http.B{i}) {{")).collect();
    let text = format!(
        "backend b {{ .host = \"h\"; }} sub vcl_recv {{ {nested} return (pass); {} }}",
        "}".repeat(60)
    );
    assert!(!read(&text).unwrap().is_complete());
}

#[test]
fn responses_of_vcl_synth_have_no_fields_of_vcl_deliver() {
    let text = "backend b { .host = \"h\"; } sub vcl_recv { if (req.url ~ \"^/x\") { return (synth(403)); } } \
        sub vcl_deliver { set resp.http.X-A = \"b\"; }";
    let toml: toml::Table = read(text).unwrap().toml.parse().unwrap();
    let site = &toml["site"][0];
    assert_eq!(site["response_headers"]["set"]["X-A"].as_str(), Some("b"));
    assert_eq!(site["route"][0]["response_headers"]["keep"][0].as_str(), Some("X-A"));
}

#[test]
fn every_statement_is_accounted_for() {
    let text = "backend b { .host = \"h\"; .odd = 1; } sub vcl_recv { call nowhere; if (req.xid ~ \"a|b\") { std.log(\"y\"); } } \
        sub vcl_miss { set req.http.z = \"1\"; }";
    let converted = read(text).unwrap();
    for word in [". odd", "call nowhere", "req.xid", "std.log", "req.http.z"] {
        let told = converted.ledger.left.iter().any(|left| left.statement.contains(word));
        assert!(told, "{word} is not in {:#?}", converted.ledger.left);
    }
}

#[test]
fn a_variable_is_no_verb() {
    let text = "backend b { .host = \"h\"; } sub vcl_recv { unset call; set return = pass; }";
    let left = read(text).unwrap().ledger.left;
    assert!(left.iter().all(|left| left.reason.contains("this variable")), "{left:#?}");
    assert_eq!(left.len(), 2);
}

#[test]
fn a_statement_that_breaks_off_is_left() {
    for statement in ["set", "set req.url", "set req.http.host =", "set req.http.x", "return"] {
        let text = format!(
            "backend b {{ .host = \"h\"; }} sub vcl_recv {{ {statement}; }} sub vcl_deliver {{ {statement}; }}"
        );
        assert!(read(&text).is_ok(), "{statement}");
    }
}

#[test]
fn no_row_is_in_the_shadow_of_another() {
    use super::{HASH, SUBROUTINES, backends, recv, response};
    use crate::rows::shadowed;
    for statements in [recv::STATEMENTS, response::BACKEND, response::DELIVER] {
        assert_eq!(shadowed(&statements.iter().collect::<Vec<_>>()), [""; 0]);
    }
    assert_eq!(shadowed(&backends::DECLARATIONS.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&backends::BACKEND.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&backends::PROBE.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&SUBROUTINES.iter().collect::<Vec<_>>()), [""; 0]);
    assert_eq!(shadowed(&HASH.iter().collect::<Vec<_>>()), [""; 0]);
}

proptest::proptest! {
    #[test]
    fn no_text_leads_to_a_panic(text in "([a-z.~=!&|(){};\"#*/ \n]|sub vcl_recv|if|else|backend|acl|req.url|set|return){0,200}") {
        let _ = read(&text);
    }
}
