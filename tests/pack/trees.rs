//! Directories in, the same directories out.

use crate::common::*;
use crate::zrfs;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A tree with everything that a file system allows and people get wrong.
pub fn odd_tree(root: &Path) {
    let dir = |name: &[u8]| {
        let path = root.join(self::name(name));
        fs::create_dir_all(&path).unwrap();
        path
    };
    // Names: not UTF-8, control characters, the longest, the same letter composed and decomposed, markup, numbers.
    let names = dir(b"names");
    let long = [b'n'; 255];
    for bytes in [
        &b"\xff"[..],
        b"\xfe\xff\x01",
        b"new\nline",
        b"\x1b[31mred",
        b" ",
        b"-rf",
        b"...",
        b"a.b.c",
        b"17",
        b"caf\xc3\xa9",
        b"cafe\xcc\x81",
        b"*?[$(x)]\\",
        b"CON",
        &long,
    ] {
        fs::write(names.join(name(bytes)), bytes).unwrap();
    }
    let deep = dir(&[&b"d/"[..]; 40].concat());
    fs::write(deep.join("bottom"), "deep").unwrap();
    dir(b"empty dir/another");
    fs::write(dir(b"empty").join("file"), "").unwrap();
    // Sizes at which pages, blocks, batches, pieces and read-ahead begin and end.
    let sizes = dir(b"sizes");
    for size in [1, 4096, 110_592, 128 << 10, 1 << 20, 4 << 20, 8 << 20] {
        for size in [size - 1, size, size + 1] {
            let mut bytes = noise(size as u64, size);
            // Half noise, half text: frames of both kinds.
            bytes[size / 2..].fill(b'x');
            fs::write(sizes.join(size.to_string()), bytes).unwrap();
        }
    }
    fs::write(sizes.join("zeros"), vec![0; 5 << 20]).unwrap();
    // Symbolic links: relative, broken, absolute, to itself, to a directory, with odd bytes, the longest.
    let links = dir(b"links");
    let longest = "l/".repeat(2047);
    for (link, target) in [
        ("relative", &b"../sizes/4096"[..]),
        ("broken", b"nowhere/at all"),
        ("absolute", b"/etc/hostname"),
        ("self", b"self"),
        ("dir", b"../names"),
        ("odd", b"\xff\n"),
        ("longest", longest.as_bytes()),
    ] {
        symlink(name(target), links.join(link)).unwrap();
        set_mtime(&links.join(link), 1_000_000_007, 7);
    }
    // Hard links: small, empty, large, across directories, before and after in the order of names.
    let hard = dir(b"hard/a");
    let other = dir(b"hard/z");
    for (file, size) in [("small", 10), ("none", 0), ("large", 9 << 20)] {
        fs::write(other.join(file), noise(9, size)).unwrap();
        fs::hard_link(other.join(file), hard.join(file)).unwrap();
        fs::hard_link(other.join(file), other.join(format!("{file} again"))).unwrap();
    }
    // Modes and times, the directories' last, as making entries changes their times.
    let modes = dir(b"modes");
    for mode in [0o0000, 0o0400, 0o4755, 0o2755, 0o6711, 0o7777, 0o0644] {
        fs::write(modes.join(format!("{mode:04o}")), format!("{mode:o}")).unwrap();
        chmod(&modes.join(format!("{mode:04o}")), mode);
    }
    for mode in [0o0555, 0o1777, 0o2775, 0o0700] {
        let path = dir(format!("modes/dir{mode:04o}").as_bytes());
        fs::write(path.join("in it"), "x").unwrap();
        chmod(&path, mode);
        set_mtime(&path, 86_400 * i64::from(mode), 999_999_999);
    }
    let times = dir(b"times");
    for (i, (secs, nanos)) in
        [(0, 0), (1, 1), (1_700_000_000, 123_456_789), (-1, 0), (-1, 999_999_999), (-86_400 * 365, 5), (1 << 33, 3)]
            .into_iter()
            .enumerate()
    {
        let path = times.join(i.to_string());
        fs::write(&path, "t").unwrap();
        set_mtime(&path, secs, nanos);
        let meta = path.metadata().unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (secs, nanos), "the test's file system cannot hold this time");
    }
    set_mtime(&times, -5, 250);
    set_mtime(root, 1_600_000_000, 987_654_321);
}

#[test]
fn an_odd_tree_comes_back_the_same() {
    let dir = scratch();
    let source = dir.path().join("source");
    odd_tree(&source);
    let before = tree(&source);
    assert!(before.len() > 100);
    for codec in ["raw", "zstd", "zstd_dict"] {
        let (packed, copy) = (dir.path().join(codec), dir.path().join("copy"));
        let mut pack = zrfs!["pack", "--codec", codec, &source, &packed];
        if codec == "zstd_dict" {
            pack.args(["--level", "3"]);
        }
        ok(&mut pack);
        assert_eq!(names(&packed), ["data", "path", "tree.zr"]);
        ok(&mut zrfs!["unpack", &packed, &copy]);
        assert_same_entries(before.clone(), tree(&copy), Compare::All);
        fs::remove_dir_all(&copy).unwrap();
        // Into an empty directory that is there already.
        fs::create_dir(&copy).unwrap();
        ok(&mut zrfs!["unpack", "-q", &packed, &copy]);
        assert_same_entries(before.clone(), tree(&copy), Compare::All);
        fs::remove_dir_all(&copy).unwrap();
    }
    assert_same_entries(before, tree(&source), Compare::All);
}

#[test]
fn an_empty_tree_comes_back_the_same() {
    let dir = scratch();
    let (source, packed, copy) = (dir.path().join("source"), dir.path().join("packed"), dir.path().join("copy"));
    fs::create_dir(&source).unwrap();
    chmod(&source, 0o2710);
    set_mtime(&source, 12, 34);
    ok(&mut zrfs!["pack", &source, &packed]);
    ok(&mut zrfs!["unpack", &packed, &copy]);
    assert_same(&source, &copy, Compare::All);
    assert_eq!(tree(&copy).len(), 1);
    assert_eq!(ok(&mut zrfs!["ls", "--json", &packed]), b"");
}

#[test]
fn without_privileges_everything_but_the_owners_comes_back() {
    // As another user, who can reach neither the build directory nor much else.
    need_root();
    let dir = tempfile::tempdir().unwrap();
    chmod(dir.path(), 0o755);
    let (zrfs, source, out) = (dir.path().join("zrfs"), dir.path().join("source"), dir.path().join("out"));
    copy_of_zrfs(&zrfs);
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::create_dir(&out).unwrap();
    chmod(&out, 0o777);
    for (file, mode) in [("plain", 0o644), ("sub/read only", 0o444), ("sub/program", 0o755)] {
        fs::write(source.join(file), file).unwrap();
        chmod(&source.join(file), mode);
    }
    chmod(&source.join("sub"), 0o555);
    let nobody = |args: &[&Path]| {
        let mut command = tool("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&zrfs).args(args);
        command
    };
    let (packed, copy) = (out.join("packed"), out.join("copy"));
    ok(&mut nobody(&["pack".as_ref(), &source, &packed]));
    ok(&mut nobody(&["unpack".as_ref(), &packed, &copy]));
    let (mut before, mut after) = (tree(&source), tree(&copy));
    assert!(after.values().all(|e| e.owner == (65_534, 65_534)));
    before.values_mut().chain(after.values_mut()).for_each(|e| e.owner = (0, 0));
    assert_same_entries(before, after, Compare::All);

    // What this user cannot read is named; the rest is packed.
    fs::write(source.join("secret file"), "x").unwrap();
    chmod(&source.join("secret file"), 0o000);
    fs::create_dir(source.join("secret dir")).unwrap();
    fs::write(source.join("secret dir/inside"), "x").unwrap();
    chmod(&source.join("secret dir"), 0o000);
    let packed = out.join("partly");
    let said = fails(&mut nobody(&["pack".as_ref(), &source, &packed]), 1);
    for path in ["secret file", "secret dir"] {
        let path = source.join(path);
        assert!(said.contains(&format!("failed: {}: Permission denied", path.display())), "{said}");
    }
    assert!(said.contains("2 files could not be taken along"), "{said}");
    let listed = String::from_utf8(ok(&mut zrfs!["ls", &packed])).unwrap();
    for path in ["plain", "sub/read only", "sub/program"] {
        assert!(listed.contains(path), "{listed}");
    }
    assert!(!listed.contains("secret"), "{listed}");
    // So that the directory can be removed.
    chmod(&source.join("secret dir"), 0o755);
}

#[test]
fn what_holds_no_data_is_left_out_and_named() {
    need_root();
    let dir = scratch();
    let (source, packed, copy) = (dir.path().join("source"), dir.path().join("packed"), dir.path().join("copy"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "kept").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    let node = |name: &str, kind, dev| mknodat(CWD, source.join(name), kind, Mode::from_raw_mode(0o600), dev).unwrap();
    node("pi\npe", FileType::Fifo, 0);
    node("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node("block", FileType::BlockDevice, rustix::fs::makedev(7, 200));
    let out = run(&mut zrfs!["pack", &source, &packed]);
    let said = stderr(&out);
    assert!(out.status.success(), "{said}");
    let source_text = source.display();
    for line in [
        format!("left out {source_text}/socket: a socket"),
        format!("left out {source_text}/char: a character device"),
        format!("left out {source_text}/block: a block device"),
        // A name that could break a log line is quoted.
        format!("left out \"{source_text}/pi\\npe\": a FIFO"),
    ] {
        assert!(said.lines().any(|l| l.ends_with(&line)), "{line}\nin\n{said}");
    }
    ok(&mut zrfs!["unpack", &packed, &copy]);
    assert_eq!(names(&copy), ["file"]);
    // --quiet is about success: warnings stay.
    let said = stderr(&run(&mut zrfs!["pack", "--quiet", &source, dir.path().join("again")]));
    assert_eq!(said.lines().count(), 4, "{said}");
    // Given alone, none of them is a source, and none is waited for.
    for alone in ["pi\npe", "socket", "char"] {
        let said = fails(&mut zrfs!["pack", source.join(alone), dir.path().join("alone")], 1);
        assert!(said.contains("neither a file nor a directory"), "{said}");
    }
}

#[test]
fn the_target_may_be_inside_the_source() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "kept").unwrap();
    let packed = source.join("store.zr");
    ok(&mut zrfs!["pack", &source, &packed]);
    let copy = dir.path().join("copy");
    ok(&mut zrfs!["unpack", &packed, &copy]);
    assert_eq!(names(&copy), ["file"], "the store does not hold itself");
    // Packed anew in place, it does not hold its predecessor either.
    ok(&mut zrfs!["pack", "--force", &source, &packed]);
    fs::remove_dir_all(&copy).unwrap();
    ok(&mut zrfs!["unpack", &packed, &copy]);
    assert_eq!(names(&copy), ["file"], "the store does not hold the store that it replaced");
    // From inside the source, with relative paths.
    ok(zrfs!["pack", ".", "here.zr"].current_dir(&source));
    fs::remove_dir_all(&copy).unwrap();
    ok(zrfs!["unpack", "here.zr", &copy].current_dir(&source));
    assert_eq!(names(&copy), ["file", "store.zr"]);
}
