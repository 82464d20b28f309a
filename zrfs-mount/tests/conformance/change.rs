//! What changes under a mount: appends, damage, deletions, read-only media.

use crate::common::{Mount, TempDir, bytes, run, shell, store, succeeds};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use zrfs::pack::Progress;
use zrfs::{Error, WriterOptions};

/// gcs#2792: who looked for a record before it was there finds it within a second after, and so does a listing.
#[test]
fn gcs2792_appended_records_appear_within_a_second() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = store(&path, "zstd", &vec![b"x".to_vec(); 10]);
    let mount = Mount::new(&path, &[]);
    let at = mount.path();
    for next in 10..14 {
        // Looked for by name and by listing, so that the kernel might remember that it is not there.
        assert!(shell(&format!("stat {at}/records/{next}; stat {at}/records/{next}")).err.contains("No such file"));
        assert_eq!(succeeds(&shell(&format!("ls {at}/records | wc -l"))), format!("{next}\n"));
        writer.append(&[format!("new {next}").as_bytes()]).unwrap();
        writer.sync().unwrap();
        let appended = Instant::now();
        let seen =
            || std::fs::read(format!("{at}/records/{next}")).is_ok_and(|got| got == format!("new {next}").as_bytes());
        within_a_second(appended, "it is found", seen);
        let listed = || std::fs::read_dir(format!("{at}/records")).unwrap().count() == next + 1;
        within_a_second(appended, "it is listed", listed);
    }
}

/// Looks until something is so. Who looks a second after (the kernel counts in ticks) must see it, however long that takes.
#[track_caller]
fn within_a_second(since: Instant, what: &str, is_so: impl Fn() -> bool) {
    loop {
        let begun = since.elapsed();
        if is_so() {
            return;
        }
        assert!(begun < Duration::from_millis(1050), "looked for {begun:?} after, and not yet: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Deleting and compacting are refused while the store is mounted, and say why; nothing changes.
#[test]
fn deleting_and_compacting_are_refused_while_mounted() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut writer = store(&path, "raw", &(0..10).map(|i| bytes(i, 1000)).collect::<Vec<_>>());
    writer.delete(&[9]).unwrap();
    drop(writer);
    let mount = Mount::new(&path, &[]);
    let mut writer = WriterOptions::new("raw".parse().unwrap()).open(&path).unwrap();
    let refused = [writer.delete(&[3]).unwrap_err(), writer.compact(&Progress::default()).unwrap_err()];
    for error in refused {
        assert!(matches!(error, Error::Locked { .. }) && error.to_string().contains("mounted"), "{error}");
    }
    let script = format!("cd {}/records && ls | wc -l && cat 3 | md5sum", mount.path());
    let want = format!(
        "9\n{}",
        succeeds(&run(
            "bash",
            &["-c", &format!("printf %s '{}' | md5sum", String::from_utf8(bytes(3, 1000)).unwrap())]
        ))
    );
    assert_eq!(succeeds(&shell(&script)), want);
    drop(mount);
    writer.delete(&[3]).unwrap();
    writer.compact(&Progress::default()).unwrap();
    assert_eq!(writer.len(), 8);
}

/// tfds#3330: one flipped bit is an error of that record only; the log names it once, and says what is wrong.
#[test]
fn tfds3330_a_damaged_record_is_eio_alone_and_named_in_the_log() {
    damaged("zstd");
    // Of a raw one the checksum tells.
    damaged("raw");
}

fn damaged(codec: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, codec, &(0..40).map(|i| bytes(i, 20_000)).collect::<Vec<_>>()).close().unwrap();
    let entry = zrfs::Store::open(&path).unwrap().entry(17).unwrap();
    let chunk = std::fs::File::options().read(true).write(true).open(path.join("0.chunk")).unwrap();
    let (mut byte, at) = ([0], u64::from(entry.offset) + u64::from(entry.phys_length) / 2);
    chunk.read_exact_at(&mut byte, at).unwrap();
    chunk.write_all_at(&[byte[0] ^ 4], at).unwrap();
    let log = dir.path().join("log");
    let mount = Mount::new(&path, &["--log", log.to_str().unwrap()]);
    let at = mount.path();
    for i in 0..40 {
        std::fs::write(dir.path().join(format!("want{i}")), bytes(i, 20_000)).unwrap();
    }
    // In order, as a tool reads them, and again; whole and from the middle.
    for _ in 0..2 {
        let script = format!(
            "ls {at}/records >/dev/null; for i in $(seq 0 39); do cmp -s {at}/records/$i {}/want$i || echo $i; done",
            dir.path().display()
        );
        assert_eq!(succeeds(&shell(&script)), "17\n");
        assert!(shell(&format!("cat {at}/records/17")).err.contains("Input/output error"));
        if codec == "zstd" {
            assert!(shell(&format!("tail -c 100 {at}/records/17")).err.contains("Input/output error"));
        }
    }
    let log = std::fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("record 17")).collect();
    assert!(lines.len() == 1 && lines[0].contains("0.chunk"), "{log}");
}

/// caffe PR#2384: a read-only store on a read-only medium, and 500 readers.
#[test]
fn caffe2384_read_only_media_and_500_readers() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    drop(store(&path, "zstd", &(0..100).map(|i| bytes(i, 5000)).collect::<Vec<_>>()));
    let script = r#"
        set -e; cd "$1"; mkdir medium m
        mount --bind s medium; mount -o remount,bind,ro medium
        chmod 444 s/*; chmod 555 s
        "$2" "$1/medium" "$1/m"
        ls m/records | wc -l
        seq 500 | xargs -P 500 -I{} sh -c 'cat m/records/$(({} % 100)) | wc -c' | sort | uniq -c | tr -s ' '
        umount m
    "#;
    let args = [
        "-mpf",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
        script,
        "x",
        dir.path().to_str().unwrap(),
        crate::common::mounter(),
    ];
    assert_eq!(succeeds(&run("unshare", &args)), "100\n 500 5000\n");
}
