//! Attributes: sizes, blocks, owners, extended attributes, and that nothing can be changed.

use crate::common::{Mount, TempDir, bytes, run, shell, store, succeeds, tree};
use crate::{conforms, counted};
use zrfs::WriterOptions;
use zrfs::dataset::DenseWriter;
use zrfs::format::dtype::DType;

/// rat#165: du, and blocks of 512 bytes for 0, 1, 512, 513 bytes and 1 MiB; mus#368: statvfs and NAME_MAX.
#[test]
fn rat165_mus368_blocks_and_file_system_sizes() {
    let dir = TempDir::new().unwrap();
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    for (name, n) in [("a", 0), ("b", 1), ("c", 512), ("d", 513), ("e", 1 << 20)] {
        std::fs::write(files.join(name), bytes(1, n)).unwrap();
    }
    let path = dir.path().join("d.zr");
    crate::tools::pack(&files, &path);
    let mount = Mount::new(&path, &["--root", "tree"]);
    let at = mount.path();
    assert_eq!(succeeds(&shell(&format!("cd {at} && stat -c %b a b c d e"))), "0\n1\n1\n2\n2048\n");
    assert_eq!(succeeds(&shell(&format!("du -s -B512 {at} | cut -f1"))), "2052\n");
    assert_eq!(succeeds(&shell(&format!("du -sb --apparent-size {at}/e | cut -f1"))), "1048576\n");
    let statfs = succeeds(&shell(&format!("stat -f -c '%l %b %c %s' {at}")));
    let numbers: Vec<u64> = statfs.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert!(numbers[0] == 255 && numbers[1..].iter().all(|&n| n > 0), "{statfs}");
    succeeds(&shell(&format!("df {at} && df -i {at}")));
}

/// Nothing can be changed: EROFS, whatever is tried, and whoever tries it.
#[test]
fn every_change_is_refused_with_erofs() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("d.zr");
    tree(&dir.path().join("files"), &path);
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    conforms(&["readonly", &format!("{at}/tree/sub"), &format!("{at}/tree/sub/hard")]);
    conforms(&["readonly", &format!("{at}/streams/data/records"), &format!("{at}/streams/data/records/0")]);
    conforms(&["readonly", &format!("{at}/.zrfs"), &format!("{at}/.zrfs/info.json")]);
}

fn typed(path: &std::path::Path) {
    let options = WriterOptions::new("zstd".parse().unwrap());
    let mut writer = DenseWriter::create(path, options, DType::parse("<f4").unwrap(), vec![2, 3]).unwrap();
    writer.append(&[0; 24 * 20]).unwrap();
    writer.close().unwrap();
}

#[test]
fn extended_attributes_by_name() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    typed(&path);
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    let get = |name: &str, file: &str| {
        run("getfattr", &["--absolute-names", "--only-values", "-n", name, &format!("{at}/{file}")])
    };
    for (name, file, want) in [
        ("user.zrfs.dtype", "records/3", "<f4"),
        ("user.zrfs.shape", "npy/3.npy", "[2,3]"),
        ("user.zrfs.codec", "records", "zstd"),
        ("user.zrfs.index", "records/19", "19"),
        ("user.zrfs.records", "npy", "20"),
        ("user.zrfs", "records/0", "codec dtype index shape stored"),
    ] {
        assert_eq!(succeeds(&get(name, file)), want, "{name} of {file}");
    }
    assert!(get("user.other", "records/0").err.contains("No such attribute"));
    assert!(get("user.zrfs.codec", ".zrfs/info.json").err.contains("No such attribute"));
    assert_eq!(succeeds(&run("getfattr", &["-d", &format!("{at}/records/0")])), "", "none are listed");
    let script = "import os, sys\n\
         f = sys.argv[1] + '/records/0'\n\
         assert os.listxattr(f) == []\n\
         assert os.getxattr(f, 'user.zrfs.shape') == b'[2,3]'\n";
    succeeds(&run("python3", &["-c", script, &at]));
    let none = Mount::new(&path, &["--no-xattrs"]);
    let refused = run("getfattr", &["-n", "user.zrfs.codec", &format!("{}/records/0", none.path())]);
    assert!(refused.err.contains("Operation not supported"), "{refused:?}");
}

/// s3fs#848: copying with extended attributes works in silence and asks little: two lists and one ACL a file at most,
/// which is what cp does, and with --no-xattrs one request in all.
#[test]
fn s3fs848_copying_tools_do_not_storm() {
    const FILES: u64 = 300;
    let dir = TempDir::new().unwrap();
    let (files, path, out) = (dir.path().join("files"), dir.path().join("d.zr"), dir.path().join("out"));
    std::fs::create_dir(&files).unwrap();
    for i in 0..FILES {
        std::fs::write(files.join(i.to_string()), bytes(i, 100)).unwrap();
    }
    crate::tools::pack(&files, &path);
    let out = out.to_str().unwrap();
    for tool in [
        format!("cp -a SOURCE {out}"),
        format!("mkdir {out} && tar --xattrs --acls -cf - -C SOURCE . | tar --xattrs --acls -xf - -C {out}"),
        format!("rsync -aAX SOURCE/ {out}/"),
    ] {
        for (args, lists, gets) in [(&[][..], 2 * (FILES + 2), FILES + 5), (&["--no-xattrs"][..], 1, 1)] {
            let mount = Mount::new(&path, args);
            let done = shell(&format!("set -e; {}", tool.replace("SOURCE", &format!("{}/tree", mount.path()))));
            succeeds(&done);
            // Where there are none, tar says so of each file.
            assert!(!args.is_empty() || done.err.is_empty(), "{tool}: {}", done.err);
            let counts = ["listxattr", "getxattr"].map(|op| counted(&mount, &format!("/requests/{op}/count")));
            assert!(counts[0] <= lists && counts[1] <= gets, "{tool} {args:?}: {counts:?}");
            succeeds(&shell(&format!("diff -r {} {out} && rm -r {out}", files.display())));
        }
    }
    let mount = Mount::new(&path, &[]);
    succeeds(&shell(&format!("ls -lR {} >/dev/null", mount.path())));
    assert!(counted(&mount, "/requests/getxattr/count") <= 4, "ls learns from the first refusal");
}

/// `.zrfs/stats.json` counts, always has its stated length, and is new at each look.
#[test]
fn statistics_are_fresh_at_each_look() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "zstd", &(0..20).map(|i| bytes(i, 5000)).collect::<Vec<_>>());
    // A reader whose files are pushed makes no requests.
    let mount = Mount::new(&path, &["--push-size", "0"]);
    let at = mount.path();
    let before = counted(&mount, "/requests/read/count");
    succeeds(&shell(&format!("cat {at}/records/* | wc -c | grep -qx 100000")));
    let after = counted(&mount, "/requests/read/count");
    assert!((before + 20..before + 40).contains(&after), "{before} {after}");
    let lengths = succeeds(&shell(&format!("wc -c < {at}/.zrfs/stats.json; stat -c %s {at}/.zrfs/stats.json")));
    let lengths: Vec<&str> = lengths.lines().collect();
    assert_eq!(lengths[0], lengths[1]);
    assert!(counted(&mount, "/requests/lookup/max_us") < 5_000_000);
}
