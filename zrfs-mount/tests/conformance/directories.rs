//! Listings: complete, exact and in any order of calls.

use crate::common::{Mount, TempDir, run, shell, store, succeeds, tree};
use crate::{conforms, python};
use std::os::unix::fs::FileExt;

/// mp#819 (rewinddir), sshfs PR#379 (seekdir over 100k records), jfs PR#6547 (4095, 4096, 4097 and 65537 records).
#[test]
fn mp819_sshfs379_jfs6547_directories_of_any_size() {
    let dir = TempDir::new().unwrap();
    for count in [1, 2, 4095, 4096, 4097, 65_537, 100_000] {
        let path = dir.path().join(count.to_string());
        store(&path, "raw", &vec![b"x".to_vec(); count]);
        let mount = Mount::new(&path, &["--names", "auto"]);
        conforms(&["dir", &format!("{}/records", mount.path()), &count.to_string()]);
        if count < 5000 {
            conforms(&["dir", &format!("{}/files", mount.path()), &count.to_string()]);
        }
    }
    let empty = dir.path().join("empty");
    store(&empty, "zstd", &[]);
    let mount = Mount::new(&empty, &[]);
    conforms(&["dir", &format!("{}/records", mount.path()), "0"]);
    conforms(&["dir", &mount.path(), "3"]);
    conforms(&["dir", &format!("{}/.zrfs", mount.path()), "4"]);
}

/// mus#616: 3000 directory fds are held, and each is listed.
#[test]
fn mus616_many_open_directories() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &vec![b"x".to_vec(); 100]);
    let mount = Mount::new(&path, &[]);
    let held = "import os, sys, resource\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
         fds = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(3000)]\n\
         assert all(sorted(map(int, os.listdir(fd))) == list(range(100)) for fd in fds)\n";
    succeeds(&run("python3", &["-c", held, &format!("{}/records", mount.path())]));
}

/// spkenv/spk#1020: File::Find believes the link counts of directories, and sees what find sees.
#[test]
fn spk1020_file_find_sees_what_find_sees() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("d.zr");
    tree(&dir.path().join("files"), &path);
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    // With $dont_use_nlink = 0 a wrong count hides directories.
    let script = "use File::Find; $File::Find::dont_use_nlink = 0; \
         find({no_chdir => 1, wanted => sub { print \"$File::Find::name\\0\" }}, $ARGV[0])";
    let perl = succeeds(&shell(&format!("perl -e '{script}' {at} | LC_ALL=C sort -z | md5sum")));
    let find = succeeds(&shell(&format!("find {at} -print0 | LC_ALL=C sort -z | md5sum")));
    assert_eq!(perl, find);
    for place in ["", "/tree", "/tree/sub", "/streams", "/streams/data"] {
        let dirs = format!("find {at}{place} -mindepth 1 -maxdepth 1 -type d | wc -l");
        let links = format!("stat -c %h {at}{place}");
        let (dirs, links) = (succeeds(&shell(&dirs)), succeeds(&shell(&links)));
        assert_eq!(dirs.trim().parse::<u64>().unwrap() + 2, links.trim().parse::<u64>().unwrap(), "{place}");
    }
    conforms(&["dir", &format!("{at}/tree/sub"), "4"]);
}

/// (ours) only the canonical spelling of an index is a name; curvine PR#1143: lengths of names, `0/`.
#[test]
fn names_that_are_no_records() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &vec![b"x".to_vec(); 10]);
    let mount = Mount::new(&path, &[]);
    let script = r#"
import errno, os, sys
def fails(name, want):
    try: os.stat(sys.argv[1] + '/records/' + name)
    except OSError as e: assert e.errno == want, (name, e)
    else: raise AssertionError(name)
for name in ['007', '+5', '-1', '1e3', ' 5', '5 ', '0x5', '\uff15', '7.0', '10', str(2**64 - 1), str(2**64), '5.npy', 'x' * 255, '9' * 255]:
    fails(name, errno.ENOENT)
fails('9' * 256, errno.ENAMETOOLONG)
fails('0/', errno.ENOTDIR)
fails('0/x', errno.ENOTDIR)
fails('../records/0/.', errno.ENOTDIR)
assert os.pathconf(sys.argv[1], 'PC_NAME_MAX') == 255
"#;
    succeeds(&run(python().to_str().unwrap(), &["-c", script, &mount.path()]));
}

/// android-file-transfer#89: inode numbers are unique and stable, never 0 or 1, also around 2^32.
#[test]
fn android89_inodes_of_more_than_four_billion_records() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "raw", &[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    // The table is made long without being written: segments of holes, and entries where they are looked at.
    let (length, segment) = ((1u64 << 32) + 1, 1u64 << 28);
    let open =
        |name: &str| std::fs::File::options().write(true).create(true).truncate(false).open(path.join(name)).unwrap();
    let entry = |offset: u32| [offset, 1, 1, 0].map(u32::to_le_bytes).concat();
    for k in 0..=length / segment {
        let entries = segment.min(length - k * segment);
        open(&format!("{k}.loc")).set_len(entries * 16).unwrap();
    }
    for (index, offset) in [(0, 0), (1, 1), (2, 2), (length - 2, 1), (length - 1, 2)] {
        let file = open(&format!("{}.loc", index / segment));
        file.write_all_at(&entry(offset), index % segment * 16).unwrap();
    }
    open("meta.zr").write_all_at(&length.to_le_bytes(), 14).unwrap();
    let look = format!("cd $AT/records && stat -c '%i %s' 0 1 2 {} {} && cat {}", length - 2, length - 1, length - 1);
    let (mut seen, mut first) = (Vec::new(), String::new());
    for _ in 0..2 {
        let mount = Mount::new(&path, &[]);
        let said = succeeds(&shell(&look.replace("$AT", &mount.path())));
        seen = said.lines().filter_map(|l| l.split_once(' ')?.0.parse::<u64>().ok()).collect();
        assert!(said.ends_with('c'), "{said}");
        assert!(shell(&format!("stat {}/records/{length}", mount.path())).err.contains("No such file"));
        assert!(first.is_empty() || first == said, "the same after a remount");
        first = said;
    }
    assert!(seen.len() == 5 && seen.iter().all(|&ino| ino > 1), "{seen:?}");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5);
}
