//! A destination that is called complete equals the manifest.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
};

use levada_client::SyncError;

use crate::world::{World, facts, write_at};

const TIME: u64 = 1_000_000_000;

#[tokio::test]
async fn equal_length_and_time_do_not_hide_another_content() {
    let world = World::new();
    write_at(&world.tree().join("a"), "first", TIME);
    world.publish();
    world.pull().await;
    write_at(&world.tree().join("a"), "other", TIME);
    world.publish();
    let report = world.pull().await;
    assert_eq!(report.fetched, ["a"]);
    world.assert_equal();
}

#[tokio::test]
async fn bytes_that_somebody_changed_are_repaired_even_if_the_time_was_restored() {
    let world = World::new();
    write_at(&world.tree().join("a"), "first", TIME);
    world.publish();
    world.pull().await;
    write_at(&world.there().join("a"), "wrong", TIME);
    world.pull().await;
    world.assert_equal();
}

#[tokio::test]
async fn copy_of_another_program_is_read_once_and_not_fetched() {
    let world = World::new();
    fs::create_dir(world.there()).unwrap();
    write_at(&world.there().join("a"), "hello", 5);
    world.publish();
    assert_eq!(world.pull().await.fetched, ["sub/b"]);
    world.assert_equal();
    // A wrong digest in the state makes the file a wrong one: so the file was not read.
    let state = world.there().join(".levada-sync/state");
    let text = fs::read_to_string(&state).unwrap();
    let digest = text.lines().find(|line| line.ends_with(" a")).unwrap()[8..72].to_owned();
    let wrong = text.replace(&digest, &"0".repeat(64));
    fs::write(&state, &wrong).unwrap();
    assert_eq!(world.pull().await.fetched, ["a"]);
    // After another boot the state is not believed, nor with --checksum.
    let (head, lines) = wrong.split_once('\n').unwrap();
    fs::write(&state, format!("{head}0\n{lines}")).unwrap();
    let report = world.pull().await;
    assert_eq!((report.fetched.len(), report.unchanged), (0, 2));
    fs::write(&state, &wrong).unwrap();
    let report = world.pull_with(|request| request.thorough = true).await;
    assert_eq!((report.fetched.len(), report.unchanged), (0, 2));
}

#[tokio::test]
async fn state_that_is_torn_or_odd_is_no_harm() {
    let world = World::new();
    world.publish();
    world.pull().await;
    let state = world.there().join(".levada-sync/state");
    let text = fs::read_to_string(&state).unwrap();
    for odd in [
        &text[..text.len() - 5],
        "",
        "levada-sync-state 9 x\n",
        &text.replace("sha-256", "sha-999"),
        "\0\0\0\0",
    ] {
        fs::write(&state, odd).unwrap();
        let mut file = File::options().append(true).open(&state).unwrap();
        file.write_all(&[0xff, 0]).unwrap();
        let report = world.pull().await;
        assert_eq!((report.fetched.len(), report.unchanged), (0, 2), "{odd}");
        world.assert_equal();
    }
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    assert_eq!(world.pull().await.unchanged, 2);
}

#[tokio::test]
async fn synced_state_is_believed_after_another_boot() {
    let world = World::new();
    world.publish();
    world.pull_with(|request| request.fsync = true).await;
    let state = world.there().join(".levada-sync/state");
    let text = fs::read_to_string(&state).unwrap();
    assert!(text.ends_with("\nsynced\n"), "{text}");
    let (head, lines) = text.split_once('\n').unwrap();
    let digest = lines[8..72].to_owned();
    fs::write(&state, format!("{head}0\n{}", lines.replace(&digest, &"0".repeat(64)))).unwrap();
    // The digest was believed although it is wrong.
    assert_eq!(world.pull().await.fetched.len(), 1);
}

#[tokio::test]
async fn files_that_share_an_inode_are_not_changed_through_each_other() {
    let world = World::new();
    write_at(&world.tree().join("a"), "same", 1);
    write_at(&world.tree().join("b"), "same", 2);
    world.publish();
    fs::create_dir(world.there()).unwrap();
    let outside = world.directory.path().join("outside");
    write_at(&outside, "same", 3);
    fs::hard_link(&outside, world.there().join("a")).unwrap();
    fs::hard_link(&outside, world.there().join("b")).unwrap();
    world.pull().await;
    world.assert_equal();
    assert_eq!(fs::metadata(&outside).unwrap().mtime(), 3);
    assert_eq!(world.pull().await.dressed, Vec::<String>::new());
}

#[tokio::test]
async fn permissions_beyond_the_nine_bits_are_removed() {
    let world = World::new();
    world.publish();
    world.pull().await;
    let file = world.there().join("sub/b");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(world.pull().await.dressed, ["sub/b"]);
    world.assert_equal();
}

#[tokio::test]
async fn odd_names_arrive() {
    let world = World::new();
    let long = "n".repeat(255);
    let names: [&[u8]; 9] =
        [b" ", b"-n", b"a\nb", b"100%", b"%41", b"\xff\xfe", b"a=b;c", b"..c", long.as_bytes()];
    for name in names {
        fs::write(world.tree().join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let deep = world.tree().join("d/".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f"), "deep").unwrap();
    world.publish();
    world.pull().await;
    world.assert_equal();
}

#[tokio::test]
async fn dry_run_writes_nothing_and_lists_a_first_copy() {
    let world = World::new();
    world.publish();
    let report = world.pull_with(|request| request.dry_run = true).await;
    assert_eq!(report.fetched, ["a", "sub/b"]);
    assert_eq!(report.linked, ["link"]);
    assert!(!world.there().exists());
    world.pull().await;
    fs::write(world.there().join("more"), "").unwrap();
    fs::remove_file(world.there().join("a")).unwrap();
    let before = facts(&world.there());
    let state = fs::read(world.there().join(".levada-sync/state")).unwrap();
    let report = world.pull_with(|request| request.dry_run = true).await;
    assert_eq!((report.fetched, report.deleted), (vec!["a".to_owned()], vec!["more".to_owned()]));
    assert_eq!(report.unchanged, 1);
    assert_eq!(facts(&world.there()), before);
    assert_eq!(fs::read(world.there().join(".levada-sync/state")).unwrap(), state);
}

#[tokio::test]
async fn delayed_updates_are_all_or_none_and_are_fetched_once() {
    let world = World::new();
    world.publish();
    world.pull().await;
    let before = facts(&world.there());
    fs::write(world.tree().join("a"), "new a").unwrap();
    fs::write(world.tree().join("sub/b"), "new b").unwrap();
    fs::create_dir(world.tree().join("new")).unwrap();
    world.publish();
    // The publication is not whole: one file is not the one of the manifest.
    fs::write(world.tree().join("sub/b"), "later").unwrap();
    let mut request = world.request();
    request.delay = true;
    let report = world.try_pull(&request).await.unwrap();
    assert!(!report.complete);
    assert_eq!(report.failed.len(), 1, "{:?}", report.failed);
    assert_eq!(facts(&world.there()), before);
    fs::write(world.tree().join("sub/b"), "new b").unwrap();
    world.publish();
    world.asked();
    assert!(world.try_pull(&request).await.unwrap().complete);
    assert!(!world.asked().contains(&"tree/a".to_owned()), "it was complete already");
    world.assert_equal();
}

#[tokio::test]
async fn what_cannot_be_a_destination_is_refused_with_a_sentence() {
    let world = World::new();
    world.publish();
    fs::write(world.there(), "a file").unwrap();
    for dry_run in [false, true] {
        let mut request = world.request();
        request.dry_run = dry_run;
        let error = world.try_pull(&request).await.unwrap_err();
        assert!(matches!(error, SyncError::NoDirectory(_)), "{error}");
    }
    fs::remove_file(world.there()).unwrap();
    let manifest = world.directory.path().join("www/tree.manifest");
    fs::write(&manifest, "levada-manifest 3\nfoo\n").unwrap();
    let error = world.try_pull(&world.request()).await.unwrap_err().to_string();
    assert_eq!(error, "the manifest has version 3: a newer levada is needed to read it");
    assert_eq!(facts(&world.there()).len(), 0);
}

#[tokio::test]
async fn tree_that_was_pulled_can_be_published() {
    let world = World::new();
    world.publish();
    world.pull().await;
    let mut publication = world.publication();
    publication.directory = world.there();
    publication.publish().unwrap();
    let text = fs::read_to_string(Path::new(&publication.manifest)).unwrap();
    assert!(!text.contains(".levada-sync"), "{text}");
}
