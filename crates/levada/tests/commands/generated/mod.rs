//! The documents that are made from declarations are up to date. `cargo xtask docs` writes them.

mod dashboards;
mod directives;
mod house;
mod pages;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The root of the source.
pub(super) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|directory| directory.join("Cargo.lock").exists());
    root.expect("the crate is in its workspace").to_owned()
}

#[test]
fn generated_documents_are_up_to_date() {
    let mut stale = Vec::new();
    for page in pages::all().unwrap() {
        let path = root().join(&page.path);
        if fs::read_to_string(&path).ok().as_ref() == Some(&page.text) {
            continue;
        }
        if env::var_os("UPDATE_EXPECT").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, page.text).unwrap();
        }
        stale.push(page.path);
    }
    let is_to_write = env::var_os("UPDATE_EXPECT").is_some();
    assert!(stale.is_empty() || is_to_write, "stale: {stale:?}: run `cargo xtask docs`");
}
