//! tar archives in, the same tree out; damaged and hostile ones refused.

use crate::common::*;
use crate::trees::odd_tree;
use crate::zrfs;
use std::fs::{self, File};
use std::io::{Cursor, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use tar::{Builder, EntryType, Header};

/// The archive that GNU tar makes of a directory, in its format `format`.
fn gnu_tar(source: &Path, to: &Path, format: &str) {
    ok(tool("tar")
        .arg("--create")
        .arg(format!("--format={format}"))
        .arg("--file")
        .arg(to)
        .arg("-C")
        .arg(source)
        .arg("."));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

#[test]
fn an_archive_equals_its_directory() {
    let dir = scratch();
    let source = dir.path().join("source");
    odd_tree(&source);
    let before = tree(&source);
    let (archive, packed, copy) = (dir.path().join("archive"), dir.path().join("packed"), dir.path().join("copy"));
    gnu_tar(&source, &archive, "pax");
    let plain = fs::read(&archive).unwrap();
    // Told by what they hold, whatever they are called.
    for (kind, bytes) in [("tar", plain.clone()), ("tar.gz", gzip(&plain)), ("tar.zst", zstd(&plain))] {
        fs::write(&archive, &bytes).unwrap();
        for piped in [false, true] {
            let mut pack = zrfs!["pack", "--codec", "raw"];
            if piped {
                pack.arg("-").stdin(File::open(&archive).unwrap());
            } else {
                pack.arg(&archive);
            }
            ok(pack.arg(&packed));
            ok(&mut zrfs!["unpack", &packed, &copy]);
            println!("{kind}, piped: {piped}");
            assert_same_entries(before.clone(), tree(&copy), Compare::All);
            fs::remove_dir_all(&copy).unwrap();
            fs::remove_dir_all(&packed).unwrap();
        }
    }
    // GNU's own format, with names and links of any length, keeps whole seconds only.
    gnu_tar(&source, &archive, "gnu");
    ok(&mut zrfs!["pack", &archive, &packed]);
    ok(&mut zrfs!["unpack", &packed, &copy]);
    let mut before = before;
    before.values_mut().for_each(|e| e.mtime.1 = 0);
    assert_same_entries(before, tree(&copy), Compare::All);
}

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o640);
    header.set_mtime(1_234_567);
    header.set_size(size);
    header.set_uid(u64::from(rustix::process::geteuid().as_raw()));
    header.set_gid(u64::from(rustix::process::getegid().as_raw()));
    header
}

/// An archive under construction whose paths may be anything.
struct Forge(Builder<Vec<u8>>);

impl Forge {
    fn new() -> Self {
        Forge(Builder::new(Vec::new()))
    }
    fn file(&mut self, path: &[u8], bytes: &[u8]) -> &mut Self {
        let mut header = header(EntryType::Regular, bytes.len() as u64);
        self.append(&mut header, path, bytes)
    }
    fn link(&mut self, kind: EntryType, path: &[u8], target: &[u8]) -> &mut Self {
        let mut header = header(kind, 0);
        header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target);
        self.append(&mut header, path, &[])
    }
    fn node(&mut self, kind: EntryType, path: &[u8]) -> &mut Self {
        let mut header = header(kind, 0);
        self.append(&mut header, path, &[])
    }
    /// Sets the path's bytes as they are; the builder's own way would refuse a `..`.
    fn append(&mut self, header: &mut Header, path: &[u8], bytes: &[u8]) -> &mut Self {
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path);
        header.set_cksum();
        self.0.append(header, Cursor::new(bytes)).unwrap();
        self
    }
    fn write(self, to: &Path) -> Vec<u8> {
        let bytes = self.0.into_inner().unwrap();
        fs::write(to, &bytes).unwrap();
        bytes
    }
}

#[test]
fn later_entries_hold_and_links_find_their_file() {
    let dir = scratch();
    let (archive, packed, copy) = (dir.path().join("a.tar"), dir.path().join("packed"), dir.path().join("copy"));
    let mut tar = Forge::new();
    tar.file(b"./twice", b"first").file(b"linked", b"one inode").link(
        EntryType::Link,
        b"sub/implied/link",
        b"./linked",
    );
    tar.file(b"/absolute", b"no slash").file(b"twice", b"second").file(b"was a file", b"x");
    tar.node(EntryType::Directory, b"was a file").file(b"was a file/now a dir", b"y");
    tar.file(b"gone/by a file", b"z").file(b"gone", b"a file").link(EntryType::Symlink, b"sym", b"../\xff");
    tar.file(b"overwritten", b"old").link(EntryType::Link, b"keeps old", b"overwritten").file(b"overwritten", b"new");
    // A directory that was replaced takes what was in it along, and what comes after is not lost with it.
    tar.file(b"dir/sub/lost", b"1").file(b"dir", b"between").file(b"dir/sub/found", b"2").file(b"dir/too", b"3");
    // What cannot be taken replaces nothing.
    tar.file(b"stays/kept", b"4").node(EntryType::Fifo, b"stays").file(b"stays/kept too", b"5");
    tar.write(&archive);
    ok(&mut zrfs!["pack", &archive, &packed]);
    ok(&mut zrfs!["unpack", &packed, &copy]);
    let read = |path: &str| fs::read_to_string(copy.join(path)).unwrap();
    assert_eq!(read("twice"), "second");
    assert_eq!(read("absolute"), "no slash");
    assert_eq!(read("was a file/now a dir"), "y");
    assert_eq!(read("gone"), "a file");
    assert_eq!((read("dir/sub/found"), read("dir/too")), ("2".into(), "3".into()));
    assert_eq!(names(&copy.join("dir/sub")), ["found"]);
    assert_eq!((read("stays/kept"), read("stays/kept too")), ("4".into(), "5".into()));
    assert_eq!((read("overwritten"), read("keeps old")), ("new".into(), "old".into()));
    assert_eq!(fs::read_link(copy.join("sym")).unwrap(), name(b"../\xff"));
    let ino = |path: &str| fs::metadata(copy.join(path)).unwrap().ino();
    assert_eq!(ino("linked"), ino("sub/implied/link"));
    let meta = fs::metadata(copy.join("linked")).unwrap();
    assert_eq!((meta.nlink(), meta.mode() & 0o7777, meta.mtime()), (2, 0o640, 1_234_567));
}

#[test]
fn what_cannot_be_taken_is_named() {
    let dir = scratch();
    let (archive, packed) = (dir.path().join("a.tar"), dir.path().join("packed"));
    let outside = dir.path().join("outside");
    let mut tar = Forge::new();
    tar.file(b"good", b"kept").file(b"../outside", b"x").file(b"a/../../outside", b"x");
    tar.link(EntryType::Link, b"to nowhere", b"missing").node(EntryType::Fifo, b"pipe").node(EntryType::Char, b"dev");
    tar.node(EntryType::new(b'V'), b"volume label");
    tar.write(&archive);
    let said = fails(&mut zrfs!["pack", &archive, &packed], 1);
    for line in [
        "failed: ../outside: its path leads out of the archive",
        "failed: a/../../outside: its path leads out of the archive",
        "failed: to nowhere: a hard link to a file that the archive does not hold before it",
        "left out pipe: a FIFO",
        "left out dev: a character device",
        "failed: volume label: an entry of the unknown type 'V'",
    ] {
        assert!(said.contains(line), "{line}\nin\n{said}");
    }
    assert_eq!(ok(&mut zrfs!["cat", &packed, "good"]), b"kept");
    assert!(!outside.exists());
    let copy = dir.path().join("copy");
    ok(&mut zrfs!["unpack", &packed, &copy]);
    assert!(!outside.exists());
    assert_eq!(fs::read(copy.join("good")).unwrap(), b"kept");
}

#[test]
fn a_symlink_in_an_archive_leads_nothing_out() {
    // The classic: a link to a directory outside, then a file "below" it.
    let dir = scratch();
    let (archive, packed, copy) = (dir.path().join("a.tar"), dir.path().join("packed"), dir.path().join("copy"));
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let mut tar = Forge::new();
    tar.link(EntryType::Symlink, b"door", b"../outside").file(b"door/planted", b"x");
    tar.write(&archive);
    run(&mut zrfs!["pack", &archive, &packed]);
    if packed.exists() {
        run(&mut zrfs!["unpack", &packed, &copy]);
    }
    assert!(names(&outside).is_empty(), "the archive wrote outside of its tree");
}

#[test]
fn truncated_archives_are_refused_and_leave_nothing() {
    let dir = scratch();
    let archive = dir.path().join("a.tar");
    let mut tar = Forge::new();
    for (i, size) in [0, 1, 511, 512, 513, 3000, 70_000].into_iter().enumerate() {
        tar.file(format!("file {i}").as_bytes(), &noise(7, size));
    }
    let whole = tar.write(&archive);
    let content = whole.len() - 1024;
    // In every header and every content, just before and after each block, and without the end mark.
    let mut cuts: Vec<usize> = (1..=content).step_by(97).chain((512..=content).step_by(512)).collect();
    cuts.extend((513..8000).step_by(512));
    let mut refused = 0;
    let mut refuse = |bytes: &[u8], what: &str| {
        fs::write(&archive, bytes).unwrap();
        let said = fails(&mut zrfs!["pack", &archive, dir.path().join("packed")], 1);
        assert!(said.contains("a.tar"), "{what}: {said}");
        assert_eq!(names(dir.path()), ["a.tar"], "{what} left something behind");
        refused += 1;
    };
    for cut in cuts {
        refuse(&whole[..cut], &format!("cut at {cut}"));
    }
    for (kind, bytes) in [("gz", gzip(&whole)), ("zst", zstd(&whole))] {
        for cut in (3..bytes.len()).step_by(bytes.len() / 20).chain(bytes.len() - 9..bytes.len()) {
            refuse(&bytes[..cut], &format!("{kind} cut at {cut}"));
        }
        // A flipped bit in the middle is noticed by the checksum at the end.
        let mut bad = bytes.clone();
        bad[bytes.len() / 2] ^= 4;
        if kind == "gz" {
            refuse(&bad, "gz with a flipped bit");
        }
    }
    assert!(refused > 900, "{refused}");
}

#[test]
fn a_pipe_that_breaks_leaves_nothing() {
    let dir = scratch();
    let mut tar = Forge::new();
    tar.file(b"a", &noise(1, 100_000));
    let bytes = tar.write(&dir.path().join("a.tar"));
    let mut child = zrfs!["pack", "-", dir.path().join("packed")];
    let mut child = child.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&bytes[..50_000]).unwrap();
    drop(pipe);
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("standard input"), "{}", stderr(&out));
    assert_eq!(names(dir.path()), ["a.tar"]);
    // No bytes at all are no archive.
    let said = fails(&mut zrfs!["pack", "-", dir.path().join("packed")], 1);
    assert!(said.contains("empty"), "{said}");
}

#[test]
fn owners_beyond_32_bits_are_refused_and_linked_links_kept() {
    let dir = scratch();
    let (archive, packed, copy) = (dir.path().join("a.tar"), dir.path().join("packed"), dir.path().join("copy"));
    let mut tar = Builder::new(Vec::new());
    for (name, uid) in [("root", 1u64 << 32), ("none", u64::from(u32::MAX)), ("fine", 1000)] {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o4755);
        header.set_uid(uid);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(1);
        tar.append_data(&mut header, name, &b"x"[..]).unwrap();
    }
    for (name, kind, to) in [("link", EntryType::Symlink, "fine"), ("again", EntryType::Link, "link")] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o777);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(0);
        tar.append_link(&mut header, name, to).unwrap();
    }
    fs::write(&archive, tar.into_inner().unwrap()).unwrap();
    let said = fails(&mut zrfs!["pack", &archive, &packed], 1);
    assert!(said.contains("root: its owner is out of range") && said.contains("none: its owner"), "{said}");
    ok(&mut zrfs!["unpack", &packed, &copy]);
    assert_eq!(names(&copy), ["again", "fine", "link"]);
    assert_eq!(fs::read_link(copy.join("again")).unwrap(), Path::new("fine"));
}
