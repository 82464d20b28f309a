//! Reading: every system call that reads, at every offset, and more than 4 GiB.

use crate::common::{Mount, TempDir, bytes, run, shell, store, succeeds};
use crate::{conforms, python};
use std::path::Path;
use zrfs::dataset::{DATA_STREAM, DenseWriter, PATH_STREAM};
use zrfs::format::TREE_FILE;
use zrfs::format::dtype::DType;
use zrfs::storage::Disk;
use zrfs::tree::{Meta, TreeBuilder};
use zrfs::{Writer, WriterOptions};

/// gondolin#16 (sizes around those of pages and requests), sqsh-tools#17 (4655 bytes, reads over, at and after the end),
/// bindfs PR#74 (O_DIRECT at odd sizes and offsets), oneclient#9 (shared maps), gof#417 (SEEK_HOLE), gof PR#408 (ENOTTY);
/// also mmap, sendfile, splice, copy_file_range, locks.
#[test]
fn gondolin16_sqsh17_bindfs74_oneclient9_gof417_every_way_to_read() {
    let dir = TempDir::new().unwrap();
    let lengths = [
        1, 511, 512, 513, 4095, 4096, 4097, 4655, 110_591, 110_592, 110_593, 131_071, 131_072, 131_073, 1_048_575,
        1_048_576, 1_048_577, 3_000_001,
    ];
    let records: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, &n)| bytes(i as u64, n)).collect();
    let tmp = dir.path().to_str().unwrap();
    for (i, record) in records.iter().enumerate() {
        std::fs::write(dir.path().join(format!("want{i}")), record).unwrap();
    }
    for codec in ["raw", "zstd"] {
        let path = dir.path().join(codec);
        store(&path, codec, &records);
        let mount = Mount::new(&path, &[]);
        for i in 0..records.len() {
            conforms(&["file", &format!("{}/records/{i}", mount.path()), &format!("{tmp}/want{i}"), tmp]);
        }
        // ENOTTY, which newer kernels call EOPNOTSUPP here.
        let flags = shell(&format!("lsattr {}/records/0", mount.path()));
        assert!(["Inappropriate ioctl", "not supported"].iter().any(|s| flags.err.contains(s)), "{flags:?}");
    }
}

/// gof#417: grep takes text for text.
#[test]
fn gof417_grep_finds_text() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    store(&path, "zstd", &(0..50).map(|i| format!("line one of {i}\nneedle {i}\n").into_bytes()).collect::<Vec<_>>());
    let mount = Mount::new(&path, &[]);
    let found = succeeds(&shell(&format!("grep -r needle {}/records | wc -l", mount.path())));
    assert_eq!(found, "50\n");
    assert_eq!(succeeds(&shell(&format!("grep -c needle {}/records/7", mount.path()))), "1\n");
}

/// oneclient#9: np.load, also mapped, of every record, and of one that is larger than a read.
#[test]
fn oneclient9_np_load_and_maps() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let data: Vec<u8> = (0..3 * 200_000u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let options = WriterOptions::new("zstd".parse().unwrap());
    let mut writer = DenseWriter::create(&path, options, DType::parse("<f4").unwrap(), vec![400, 500]).unwrap();
    writer.append(&data).unwrap();
    writer.close().unwrap();
    let mount = Mount::new(&path, &["--threads", "4"]);
    let script = r#"
import sys, numpy as np
for i in range(3):
    path = f'{sys.argv[1]}/npy/{i}.npy'
    want = np.arange(i * 200000, (i + 1) * 200000, dtype='<f4').reshape(400, 500)
    for mode in [None, 'r', 'c']:
        got = np.load(path, mmap_mode=mode)
        assert got.dtype == want.dtype and got.shape == want.shape and (got == want).all(), (i, mode)
    try: np.load(path, mmap_mode='r+')
    except OSError as e: assert e.errno == 30, e
    else: raise AssertionError('mapped to write')
"#;
    succeeds(&run(python().to_str().unwrap(), &["-c", script, &mount.path()]));
}

fn append(writer: &mut Writer, record: &[u8]) {
    writer.append(&[record]).unwrap();
}

/// A tree with one file of `pieces` pieces of 64 MiB, each zeros with its number at both ends, and a last one of 7 bytes.
fn long_file(path: &Path, pieces: u64) -> u64 {
    const PIECE: usize = 64 << 20;
    std::fs::create_dir(path).unwrap();
    let meta = Meta { mode: 0o644, mtime: Default::default(), uid: 0, gid: 0 };
    let mut tree = TreeBuilder::new(path, Meta { mode: 0o755, ..meta }, PIECE as u32).unwrap();
    let size = pieces * PIECE as u64 + 7;
    tree.file(tree.root(), b"long", meta, 0, size).unwrap();
    let new = |name| WriterOptions::new("zstd".parse().unwrap()).level(Some(1)).create(path.join(name)).unwrap();
    let (mut data, mut paths) = (new(DATA_STREAM), new(PATH_STREAM));
    let mut piece = vec![0; PIECE];
    for k in 0..pieces {
        piece[..8].copy_from_slice(&k.to_le_bytes());
        piece[PIECE - 8..].copy_from_slice(&k.to_le_bytes());
        append(&mut data, &piece);
        append(&mut paths, b"long");
    }
    append(&mut data, b"the end");
    append(&mut paths, b"long");
    data.sync().unwrap();
    paths.sync().unwrap();
    tree.finish(&Disk::default(), &path.join(TREE_FILE)).unwrap();
    size
}

/// A file of more than 4 GiB: sizes, offsets and maps beyond 32 bits, forwards and backwards.
#[test]
fn files_of_more_than_4_gib() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("d.zr");
    let size = long_file(&path, 65);
    let mount = Mount::new(&path, &["--root", "tree"]);
    let script = r#"
import mmap, os, sys
path, size = sys.argv[1] + '/long', int(sys.argv[2])
fd, piece = os.open(path, os.O_RDONLY), 64 << 20
assert os.fstat(fd).st_size == size == os.lseek(fd, 0, os.SEEK_END)
assert os.fstat(fd).st_blocks == -(-size // 512)
assert os.lseek(fd, 0, os.SEEK_HOLE) == size
for k in [64, 63, 65, 0, 64]:
    at = k * piece
    before = (k - 1).to_bytes(8, 'little') if k else b''
    after = k.to_bytes(8, 'little') if k < 65 else b'the end'
    assert os.pread(fd, 16, max(at - 8, 0))[:len(before + after)] == before + after, k
assert os.pread(fd, 100, size - 7) == b'the end' and os.pread(fd, 100, size) == b''
assert os.pread(fd, 100, size + (1 << 33)) == b''
m = mmap.mmap(fd, 1 << 20, mmap.MAP_SHARED, mmap.PROT_READ, offset=(1 << 32) - (1 << 19))
assert m[(1 << 19) - 8:(1 << 19) + 8] == (63).to_bytes(8, 'little') + (64).to_bytes(8, 'little')
"#;
    succeeds(&run("python3", &["-c", script, &mount.path(), &size.to_string()]));
}

/// squashfuse#121: 1 and 16 clients at 1, 4 and 16 threads, all right and none left waiting. (How fast they are is measured
/// in docs/PERFORMANCE.md.)
#[test]
fn squashfuse121_one_and_sixteen_clients() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let records: Vec<Vec<u8>> = (0..150).map(|i| bytes(i, 1000 + i as usize * 700)).collect();
    store(&path, "zstd", &records);
    let want = dir.path().join("want");
    std::fs::create_dir(&want).unwrap();
    for (i, record) in records.iter().enumerate() {
        std::fs::write(want.join(i.to_string()), record).unwrap();
    }
    let sums =
        |at: &str| format!("cd {at} && seq 0 149 | xargs cat | sha1sum; seq 0 149 | sort -R | xargs cat | wc -c");
    let right = succeeds(&shell(&sums(want.to_str().unwrap())));
    for threads in ["1", "4", "16"] {
        for clients in [1, 16] {
            let mount = Mount::new(&path, &["--threads", threads]);
            let one = sums(&format!("{}/records", mount.path()));
            let all = format!("for k in $(seq {clients}); do ({one}) & done; wait");
            let mut lines: Vec<String> = succeeds(&shell(&all)).lines().map(str::to_string).collect();
            lines.sort();
            lines.dedup();
            let mut want: Vec<String> = right.lines().map(str::to_string).collect();
            want.sort();
            assert_eq!(lines, want, "{clients} clients, {threads} threads");
        }
    }
}
