//! No target leads out of a directory of files or to a hidden name, and routes see the path that is served.
#![no_main]

use levada_body::files::FilePath;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|target: &str| {
    let Ok(path) = FilePath::of(target) else { return };
    let names = path.relative().split('/').filter(|_| !path.relative().is_empty());
    for (depth, name) in names.enumerate() {
        let is_hidden = name.starts_with('.') && !(depth == 0 && name == ".well-known");
        assert!(!name.is_empty() && !is_hidden && !name.contains(['\\', '\0']), "{target:?}");
    }
    let written = target.split('?').next().unwrap_or_default();
    let normal = levada_rules::normal_path(written);
    assert_eq!(normal.trim_matches('/'), path.relative(), "{target:?}");
});
