//! Times, links, owners, attributes: all that is copied and is not bytes.

use std::{
    fs::{self, File},
    os::unix::{
        fs::{MetadataExt as _, chown, lchown},
        net::UnixListener,
    },
    path::Path,
    process::Command,
};

use levada_client::SyncError;
use levada_fetch::manifest::Extras;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

use crate::world::{World, filter, write_at};

const HARD_LINKS: Extras =
    Extras { hard_links: true, owner: false, group: false, acls: false, xattrs: false };

#[tokio::test]
async fn directories_and_links_keep_their_times() {
    let world = World::new();
    let touch = |path: &str, time: &str| {
        let path = world.tree().join(path);
        let status = Command::new("touch").args(["-h", "-d", time]).arg(path).status();
        assert!(status.unwrap().success());
    };
    touch("link", "2001-02-03 04:05:06.789012345");
    touch("sub/empty", "1969-12-31 23:00:00");
    touch("sub", "2038-01-20 00:00:00");
    world.publish();
    world.pull().await;
    world.assert_equal();
    let report = world.pull().await;
    assert_eq!((report.dressed, report.linked), (vec![], vec![]));
    // Work in a directory does not change its time.
    fs::write(world.there().join("sub/more"), "").unwrap();
    assert_eq!(world.pull().await.deleted, ["sub/more"]);
    world.assert_equal();
    touch("link", "2002-02-03 04:05:06");
    touch("sub", "2003-02-03 04:05:06");
    world.publish();
    assert_eq!(world.pull().await.dressed, ["link", "sub"]);
    world.assert_equal();
}

#[tokio::test]
async fn what_is_no_file_is_skipped_by_name_and_removed_at_a_destination() {
    let world = World::new();
    let fifo = |directory: &Path| {
        let status = Command::new("mkfifo").arg(directory.join("fifo")).status();
        assert!(status.unwrap().success());
    };
    fifo(&world.tree());
    let _socket = UnixListener::bind(world.tree().join("socket")).unwrap();
    let mut skipped = world.publish().skipped;
    skipped.sort_by(|a, b| a.path.cmp(&b.path));
    let skipped: Vec<_> = skipped.iter().map(|skipped| skipped.kind).collect();
    assert_eq!(skipped, ["a FIFO", "a socket"]);
    fs::create_dir_all(world.there()).unwrap();
    fifo(&world.there());
    let status = Command::new("mkfifo").arg(world.there().join("a")).status();
    assert!(status.unwrap().success());
    let report = world.pull().await;
    assert_eq!(report.deleted, ["fifo"]);
    assert_eq!(fs::read(world.there().join("a")).unwrap(), b"hello");
}

fn inode(path: impl AsRef<Path>) -> (u64, u64) {
    let there = fs::metadata(path).unwrap();
    (there.ino(), there.nlink())
}

#[tokio::test]
async fn hard_links_are_one_file_if_they_are_asked_for() {
    let world = World::new();
    let (tree, there) = (world.tree(), world.there());
    fs::hard_link(tree.join("a"), tree.join("sub/a2")).unwrap();
    fs::hard_link(tree.join("a"), tree.join("z")).unwrap();
    world.publish();
    world.pull().await;
    world.assert_equal();
    assert_eq!(inode(there.join("a")).1, 1);
    world.publish_with(HARD_LINKS);
    world.asked();
    // The bytes are there already.
    let report = world.pull_with(|request| request.extras = HARD_LINKS).await;
    assert_eq!(report.linked, ["sub/a2", "z"]);
    assert_eq!(world.asked(), ["tree.manifest"]);
    world.assert_equal();
    assert_eq!(inode(there.join("a")), inode(there.join("z")));
    assert_eq!(inode(there.join("a")).1, 3);
    let report = world.pull_with(|request| request.extras = HARD_LINKS).await;
    assert_eq!((report.linked, report.unchanged), (vec![], 4));
    // New bytes are fetched once, for all names.
    fs::write(tree.join("z"), "changed").unwrap();
    world.publish_with(HARD_LINKS);
    world.asked();
    world.pull_with(|request| request.extras = HARD_LINKS).await;
    assert_eq!(world.asked(), ["tree.manifest", "tree/a"]);
    world.assert_equal();
    assert_eq!(inode(there.join("a")).1, 3);
    // A name becomes a file of its own.
    fs::remove_file(tree.join("sub/a2")).unwrap();
    write_at(&tree.join("sub/a2"), "changed", 77);
    world.publish_with(HARD_LINKS);
    world.pull_with(|request| request.extras = HARD_LINKS).await;
    world.assert_equal();
    assert_eq!(inode(there.join("sub/a2")).1, 1);
    assert_eq!(inode(there.join("a")).1, 2);
}

#[tokio::test]
async fn file_whose_first_name_is_excluded_has_the_others() {
    let world = World::new();
    let (tree, there) = (world.tree(), world.there());
    fs::hard_link(tree.join("a"), tree.join("sub/a2")).unwrap();
    fs::hard_link(tree.join("a"), tree.join("z")).unwrap();
    world.publish_with(HARD_LINKS);
    world
        .pull_with(|request| {
            request.extras = HARD_LINKS;
            request.filter = filter("/a");
        })
        .await;
    assert!(!there.join("a").exists());
    assert_eq!(inode(there.join("sub/a2")), inode(there.join("z")));
}

#[tokio::test]
async fn zero_blocks_become_holes_if_they_are_asked_for() {
    let world = World::new();
    let mut bytes = vec![0; 3 << 20];
    bytes[1 << 20] = 1;
    fs::write(world.tree().join("disk"), &bytes).unwrap();
    world.publish();
    world.pull_with(|request| request.sparse = true).await;
    world.assert_equal();
    let blocks = fs::metadata(world.there().join("disk")).unwrap().blocks();
    let probe = File::create(world.directory.path().join("probe")).unwrap();
    probe.set_len(1 << 20).unwrap();
    if probe.metadata().unwrap().blocks() > 0 {
        levada_skip::skipped(format_args!("the file system of temporary files has no holes"));
        return;
    }
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks");
    assert_eq!(world.pull().await.unchanged, 3);
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        levada_skip::skipped(format_args!("only root can give files to other users"));
    }
    is_root
}

#[tokio::test]
async fn owners_and_groups_are_those_of_the_publisher() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let extras = Extras { owner: true, group: true, ..Extras::default() };
    chown(world.tree().join("a"), Some(54321), Some(54322)).unwrap();
    chown(world.tree().join("sub"), Some(54323), None).unwrap();
    lchown(world.tree().join("link"), Some(54324), Some(54325)).unwrap();
    // Without the option they are not recorded, and cannot be asked for.
    world.publish();
    let mut request = world.request();
    request.extras = extras;
    let error = world.try_pull(&request).await.unwrap_err();
    assert!(matches!(error, SyncError::NotRecorded("owner")), "{error}");
    world.publish_with(extras);
    world.pull().await;
    let owner = |path: &str| {
        let there = fs::symlink_metadata(world.there().join(path)).unwrap();
        (there.uid(), there.gid())
    };
    assert_eq!(owner("a"), (0, 0));
    let report = world.pull_with(|request| request.extras = extras).await;
    assert_eq!(report.dressed, ["a", "link", "sub"]);
    assert_eq!(
        (owner("a"), owner("sub"), owner("link")),
        ((54321, 54322), (54323, 0), (54324, 54325))
    );
    world.assert_equal();
    let report = world.pull_with(|request| request.extras = extras).await;
    assert_eq!((report.dressed, report.unchanged), (vec![], 2));
}

/// Runs setfacl, unless it, or ACLs on the file system, are missing.
fn set_acl(path: &Path, arguments: &[&str]) -> bool {
    match Command::new("setfacl").args(arguments).arg(path).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            levada_skip::skipped(format_args!("no ACLs: {}", said.trim_end()));
            false
        }
        Err(why) => {
            levada_skip::skipped(format_args!("no setfacl (Debian: acl): {why}"));
            false
        }
    }
}

#[tokio::test]
async fn acls_are_copied_and_removed() {
    let world = World::new();
    let extras = Extras { acls: true, ..Extras::default() };
    let acl = |directory: &Path, path: &str| {
        let mut command = Command::new("getfacl");
        let output = command.args(["-cpn"]).arg(directory.join(path)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (tree, there) = (world.tree(), world.there());
    if !set_acl(&tree.join("a"), &["-m", "u:54321:rx,g:54322:r"])
        || !set_acl(&tree.join("sub"), &["-d", "-m", "u:54321:rwx"])
    {
        return;
    }
    world.publish_with(extras);
    world.pull_with(|request| request.extras = extras).await;
    world.assert_equal();
    for path in ["a", "sub", "sub/b", "sub/empty"] {
        assert_eq!(acl(&tree, path), acl(&there, path), "{path}");
    }
    let report = world.pull_with(|request| request.extras = extras).await;
    assert_eq!(report.dressed, Vec::<String>::new());
    assert!(set_acl(&tree.join("a"), &["-b"]) && set_acl(&tree.join("sub"), &["-k"]));
    assert!(set_acl(&there.join("sub/b"), &["-m", "u:54321:r"]));
    world.publish_with(extras);
    world.pull_with(|request| request.extras = extras).await;
    for path in ["a", "sub", "sub/b", "sub/empty"] {
        assert_eq!(acl(&tree, path), acl(&there, path), "{path}");
    }
    world.assert_equal();
}

#[tokio::test]
async fn extended_attributes_of_users_are_copied_and_removed() {
    let world = World::new();
    let extras = Extras { xattrs: true, ..Extras::default() };
    let (tree, there) = (world.tree(), world.there());
    let set = |path: &Path, name: &str, value: &[u8]| {
        fsetxattr(File::open(path).unwrap(), name, value, XattrFlags::empty())
    };
    let get = |path: &Path, name: &str| {
        let mut value = vec![0; 1000];
        let length = fgetxattr(File::open(path).unwrap(), name, &mut value[..]).ok()?;
        value.truncate(length);
        Some(value)
    };
    let value = [0, b' ', 255, b'\n', b'='];
    if let Err(why) = set(&tree.join("a"), "user.one two", &value) {
        levada_skip::skipped(format_args!("no extended attributes: {why}"));
        return;
    }
    set(&tree.join("sub"), "user.empty", b"").unwrap();
    world.publish_with(extras);
    world.pull_with(|request| request.extras = extras).await;
    assert_eq!(get(&there.join("a"), "user.one two").unwrap(), value);
    assert_eq!(get(&there.join("sub"), "user.empty").unwrap(), b"");
    set(&there.join("a"), "user.more", b"x").unwrap();
    set(&there.join("a"), "user.one two", b"y").unwrap();
    let report = world.pull_with(|request| request.extras = extras).await;
    assert_eq!((report.dressed, report.fetched), (vec!["a".to_owned()], vec![]));
    assert_eq!(get(&there.join("a"), "user.one two").unwrap(), value);
    assert_eq!(get(&there.join("a"), "user.more"), None);
    world.assert_equal();
}
