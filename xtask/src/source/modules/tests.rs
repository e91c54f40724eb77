use super::*;

/// The uses of a tree of files, as `user > used` in order.
fn uses(files: &[(&str, &str)]) -> Vec<String> {
    read(files, Reading::Definitions)
}

fn read(files: &[(&str, &str)], reading: Reading) -> Vec<String> {
    let sources: Vec<_> = files
        .iter()
        .map(|(path, text)| Source { path: format!("src/{path}").into(), text: (*text).into() })
        .collect();
    let by_path = sources.iter().map(|source| (source.path.clone(), source)).collect();
    let tree = Tree::of(&sources[0], &by_path);
    let name = |module: usize| tree.modules[module].name();
    let pairs = tree.uses(reading).into_iter().enumerate().flat_map(|(user, used)| {
        used.into_iter().map(move |used| (user, used)).collect::<Vec<_>>()
    });
    pairs.map(|(user, used)| format!("{} > {}", name(user), name(used))).collect()
}

#[test]
fn imports_and_paths_are_uses() {
    let found = uses(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::{B, Other}; fn a() { crate::c::run() }"),
        ("b.rs", "pub struct B; pub struct Other;"),
        ("c.rs", "fn run() {}"),
    ]);
    assert_eq!(found, ["a > b", "a > c"]);
}

#[test]
fn a_parent_and_its_child_that_use_each_other_both_count() {
    let found = uses(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b; fn one() { b::two() }"),
        ("a/b.rs", "pub fn two() { super::one() }"),
    ]);
    assert_eq!(found, ["a > a::b", "a::b > a"]);
}

#[test]
fn a_name_leads_through_re_exports_to_its_definition() {
    let files = [
        ("lib.rs", "mod a; mod user; pub use a::Deep;"),
        ("a/mod.rs", "mod b; mod c; pub use b::Deep; pub(crate) use self::c::*;"),
        ("a/b.rs", "pub struct Deep;"),
        ("a/c.rs", "pub enum Wide { One }"),
        ("user.rs", "use crate::a::{self, Deep}; fn f(_: Deep) { a::Wide::One; }"),
    ];
    assert_eq!(uses(&files), ["user > a::b", "user > a::c"]);
    let written = ["crate > a", "a > a::b", "a > a::c", "user > a"];
    assert_eq!(read(&files, Reading::Paths), written);
}

#[test]
fn a_re_export_that_the_module_uses_itself_is_a_use() {
    let found = uses(&[
        ("lib.rs", "mod b; pub use b::Deep; fn f(_: Deep) {}"),
        ("b.rs", "pub struct Deep;"),
    ]);
    assert_eq!(found, ["crate > b"]);
}

#[test]
fn modules_that_are_imported_whole_are_used_where_their_items_are() {
    let found = uses(&[
        ("lib.rs", "mod a; mod user; mod other;"),
        ("a.rs", "pub use crate::other::Item;"),
        ("other.rs", "pub struct Item;"),
        ("user.rs", "use super::a; fn f(_: a::Item) {}"),
    ]);
    assert_eq!(found, ["user > other"]);
}

#[test]
fn other_crates_are_no_modules() {
    let found = uses(&[
        ("lib.rs", "mod time; mod a; use std::sync::Arc;"),
        ("time.rs", "pub struct Now;"),
        ("a.rs", "use tokio::time; use super::Arc; fn f(_: time::Instant, _: Arc<u8>) {}"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn tests_use_nothing() {
    let found = uses(&[
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod testing;"),
        ("a.rs", "#[cfg(test)] mod tests { use crate::b::B; }"),
        ("b.rs", "pub struct B;"),
        ("testing.rs", "use crate::b::B;"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn inline_modules_belong_to_their_file() {
    let found = uses(&[
        ("lib.rs", "mod a; mod inner { use super::a::A; fn f() { super::g() } } fn g() {}"),
        ("a.rs", "pub struct A; fn f() { crate::inner::f() }"),
    ]);
    assert_eq!(found, ["crate > a", "a > crate"]);
}

#[test]
fn visibility_and_captures_are_no_uses() {
    let found = uses(&[
        ("lib.rs", "mod a; fn g<'a>() -> impl Sized + use<'a> {}"),
        ("a/mod.rs", "mod b;"),
        ("a/b.rs", "pub(in crate::a) struct B;"),
    ]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn files_may_be_named_by_their_declaration() {
    let found = uses(&[
        ("lib.rs", "#[path = \"a/args.rs\"] pub(crate) mod a_args; fn f() { a_args::g() }"),
        ("a/args.rs", "#[path = \"../b.rs\"] mod b; fn g() { b::h() }"),
        ("b.rs", "pub fn h() {}"),
    ]);
    assert_eq!(found, ["crate > a_args", "a_args > a_args::b"]);
}

#[test]
fn names_that_lead_in_a_circle_lead_nowhere() {
    let found = uses(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub use crate::b::X; fn f(_: X) {}"),
        ("b.rs", "pub use crate::a::X;"),
    ]);
    assert_eq!(found, [""; 0]);
}
