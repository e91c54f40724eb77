//! A question to the state of a fleet must be refused, or be equal when it is written again, and be answered.
#![no_main]

use std::sync::LazyLock;

use futures_util::FutureExt as _;
use levada_fleet::{
    FileStore,
    store::{Question, Store as _},
};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static STATE: LazyLock<(FileStore, TempDir)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    (FileStore::open(&directory.path().join("state.json")).unwrap(), directory)
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(question) = serde_json::from_slice::<Question>(bytes) else { return };
    let written = serde_json::to_vec(&question).unwrap();
    assert_eq!(serde_json::from_slice::<Question>(&written).unwrap(), question);
    if !matches!(question, Question::Wait { .. }) {
        STATE.0.ask(question).now_or_never().unwrap().unwrap();
    }
});
