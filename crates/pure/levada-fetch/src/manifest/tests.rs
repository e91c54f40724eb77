use super::*;
use proptest::prelude::*;

/// Not SHA-256, but as good for these tests.
fn hash(bytes: &[u8]) -> Digest {
    let hash = levada_types::hash64(bytes);
    Digest::from_hex(Algorithm::Sha256, &format!("{hash:064x}")).unwrap()
}

fn file() -> Entry {
    let metadata = Metadata::default();
    Entry::File { size: 5, mode: 0o644, modified: (-1, 5), digest: hash(b"hello"), metadata }
}

/// A manifest with these lines, its last line right.
fn parse(lines: &str) -> Result<Manifest, ManifestError> {
    let text = format!("levada-manifest 2\nroot t/\n{lines}");
    let count = lines.lines().count();
    let text = format!("{text}end {count} {}\n", hash(text.as_bytes()));
    Manifest::parse(&text, hash)
}

fn tree() -> Manifest {
    let mut tree = Manifest { root: "t/".to_owned(), ..Manifest::default() };
    tree.pack = Some(Pack { size: 9, limit: 5, reference: "t.pack?v=1".to_owned() });
    let (digest, reference) = (hash(b""), "t.chunks".to_owned());
    tree.chunks = Some(ChunkFile { size: 9, digest, limit: 5, reference });
    tree.extras = Extras { owner: true, hard_links: true, ..Extras::default() };
    let account = Account { number: 7, name: Some("\u{e9}/=".as_bytes().to_vec()) };
    let acl = AclEntry { party: AclParty::User, account: Some(account.clone()), permissions: 5 };
    let metadata = Metadata {
        modified: Some((-5, 1)),
        user: Some(account),
        acl: vec![acl, AclEntry { party: AclParty::Mask, account: None, permissions: 7 }],
        xattrs: BTreeMap::from([(b"user.a b".to_vec(), vec![0, b':', 255])]),
        ..Metadata::default()
    };
    tree.insert(b"a b".to_vec(), Entry::Directory { mode: 0o755, metadata }).unwrap();
    tree.insert("a b/\u{e9}\n".as_bytes().to_vec(), file()).unwrap();
    tree.insert_name(b"y".to_vec(), "a b/\u{e9}\n".as_bytes()).unwrap();
    let metadata = Metadata { modified: Some((3, 0)), ..Metadata::default() };
    tree.insert(b"z".to_vec(), Entry::Link { target: b"a b/x".to_vec(), metadata }).unwrap();
    tree
}

#[test]
fn what_is_written_is_read() {
    let text = tree().write(hash);
    assert_eq!(Manifest::parse(&text, hash).unwrap(), tree());
    assert!(text.contains("file 5 644 -1.000000005 "), "{text}");
    assert!(text.contains(" a%20b/%C3%A9%0A\n"), "{text}");
    assert!(text.contains("\nhard y a%20b/%C3%A9%0A\n"), "{text}");
    assert!(text.contains("acl=u:7/%C3%A9/%3D:5,m::7 xattr=user.a%20b:%00%3A%FF\n"), "{text}");
}

#[test]
fn version_1_is_read_and_what_is_not_known_is_named() {
    let tar = format!("tar 9 {} t.tar", hash(b""));
    let text = format!("levada-manifest 1\nroot t/\n{tar}\ndir 755 a\n");
    let text = format!("{text}end 1 {}\n", hash(text.as_bytes()));
    assert_eq!(Manifest::parse(&text, hash).unwrap().entries.len(), 1);
    let later = Manifest::parse("levada-manifest 3\n", hash).unwrap_err().to_string();
    assert_eq!(later, "the manifest has version 3: a newer levada is needed to read it");
    for (line, word) in
        [("weave 7", "weave"), ("dir 755 a color=red", "color"), ("with magic", "magic")]
    {
        let error = parse(&format!("{line}\n")).unwrap_err().to_string();
        assert!(
            error.contains(&format!("line 3 of the manifest: `{word}` is not known")),
            "{error}"
        );
    }
}

#[test]
fn a_manifest_that_was_cut_or_edited_is_refused() {
    let text = tree().write(hash);
    for end in 0..text.len() {
        assert!(Manifest::parse(&text[..end], hash).is_err(), "cut at {end}");
    }
    for (at, _) in text.char_indices() {
        let mut other = text.clone().into_bytes();
        other[at] ^= 1;
        let Ok(other) = String::from_utf8(other) else { continue };
        assert!(Manifest::parse(&other, hash).is_err(), "edited at {at}");
    }
}

#[test]
fn nothing_leads_out_of_the_tree() {
    for path in ["../a", "a/../b", "/a", "a//b", ".", "", "a/", "%00", "..", ".levada-sync/a"] {
        assert!(parse(&format!("dir 755 a\ndir 755 {path}\n")).is_err(), "{path}");
    }
    for (path, target) in [
        ("l", "../x"),
        ("l", "/etc"),
        ("d/l", "../../x"),
        // Through a link that leads up, this would leave.
        ("d/l", "x/../../.."),
        ("l", "d/.."),
        ("l", ""),
    ] {
        let lines = format!("dir 755 d\nlink {path} {target}\n");
        assert!(parse(&lines).is_err(), "{path} -> {target}");
    }
    assert!(parse("dir 755 d\nlink d/l ../x\n").is_ok());
    // Nothing is written through a link.
    assert!(parse("link d x\ndir 755 d/a\n").is_err());
    assert!(parse("dir 755 d/a\n").is_err());
}

#[test]
fn what_is_odd_is_refused() {
    for line in [
        "dir 4755 a",
        "dir 9 a",
        "dir 755 a b",
        "dir 755 a%2fb",
        "dir 755 a%2",
        "fifo 755 a",
        "file 1 644 0.000000000 a",
        "hard b a",
        "dir 755 a user=x",
        "dir 755 a user=0/",
        "dir 755 a acl=u:1:8",
        "dir 755 a acl=m:1:7",
        "dir 755 a xattr=security.capability:x",
        "dir 755 a xattr=user.x",
        "dir 755 a time=1",
        "file 1 644 0.0 md5=00 a",
        "",
    ] {
        assert!(parse(&format!("{line}\n")).is_err(), "{line}");
    }
    assert!(parse("dir 755 b\ndir 755 a\n").is_err());
    assert!(parse("dir 755 a\ndir 755 a\n").is_err());
    assert_eq!(Manifest::parse("<html>", hash), Err(ManifestError::Foreign));
}

#[test]
fn paths_that_differ_in_case_are_found() {
    let manifest = parse("dir 755 A\ndir 755 a\n").unwrap();
    assert_eq!(manifest.same_but_for_case(), Some((&b"A"[..], &b"a"[..])));
    assert_eq!(tree().same_but_for_case(), None);
}

proptest! {
    #[test]
    fn any_path_is_encoded_so_that_it_can_be_read(path in prop::collection::vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(decoded(&encoded(&path)), Some(path));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(levada-manifest [12]\n)?(.|\n){0,200}") {
        let _ = Manifest::parse(&text, hash);
    }
}
