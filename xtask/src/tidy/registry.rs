//! Every file of policies has its line in `POLICIES`.

use std::{fs, path::Path};

use anyhow::Context as _;

use crate::{source::rust_files, workspace::root};

/// A line for each file of policies that the list lacks.
///
/// # Errors
/// When the list or a file cannot be read.
pub(super) fn check() -> anyhow::Result<Vec<String>> {
    let source = root().join("crates/pure/levada-policy/src");
    let list = fs::read_to_string(source.join("lib.rs"))?;
    let list = list.split_once("POLICIES:").map(|(_, list)| list).context("no POLICIES")?;
    let list = list.split_once("];").map_or(list, |(list, _)| list);
    let mut left_out = Vec::new();
    for file in rust_files(&source)? {
        let declares = fs::read_to_string(&file)?.contains("const ENTRIES: &[Entry]");
        let module = module_of(&file);
        if declares && !list.contains(&format!("{module}::ENTRIES")) {
            left_out.push(format!("POLICIES does not list {module}::ENTRIES"));
        }
    }
    Ok(left_out)
}

/// The last part of a module's path: `foo` of foo.rs and of foo/mod.rs.
fn module_of(file: &Path) -> String {
    let named = if file.ends_with("mod.rs") { file.parent() } else { Some(file) };
    named.and_then(Path::file_stem).unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_by_file_or_directory() {
        assert_eq!(module_of(Path::new("src/lard.rs")), "lard");
        assert_eq!(module_of(Path::new("src/order/mod.rs")), "order");
    }
}
