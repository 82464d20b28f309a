//! Any bytes as an input of `zrfs pack`: told what it is, and read as an array, from a pipe and from a file.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Cursor, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use zrfs::pack::array::{self, ArraySource};
use zrfs::pack::detect::{Kind, detect_stream};
use zrfs::pack::{idx, npy};

/// So much is read of an array whose header claims more.
const ENOUGH: u64 = 1 << 20;

thread_local! {
    /// One file in memory, written anew for each input.
    static FILE: RefCell<(File, PathBuf)> = RefCell::new({
        let path = PathBuf::from(format!("/dev/shm/zrfs-fuzz-{}", std::process::id()));
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).expect("a file in /dev/shm");
        // Without a name nothing is left of it, however this process ends.
        std::fs::remove_file(&path).expect("the file that was just made");
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        (file, path)
    });
}

/// Takes any bytes.
pub fn target(data: &[u8]) {
    let name = Path::new("input");
    let Ok((kind, stream)) = detect_stream(Box::new(Cursor::new(data.to_vec())), name) else { return };
    let from_pipe = match kind {
        Kind::Npy(_) => npy::from_stream(stream, name),
        Kind::Idx(_) => idx::from_stream(stream, name),
        Kind::Tar(_) | Kind::Directory => return,
    };
    let from_pipe = from_pipe.map(read);
    let from_file = FILE.with_borrow_mut(|(file, path)| {
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(data)).expect("a full /dev/shm");
        array::open(path).map(read)
    });
    // Where both ways give all records, they give the same ones. A file's length is checked before, a pipe's on the
    // way; Fortran order cannot be read from a pipe.
    if let (Ok(Some(a)), Ok(Some(b))) = (&from_pipe, &from_file) {
        assert_eq!(a, b, "a pipe and a file differ");
    }
}

/// All records, if there is an end to them and no error before.
fn read(mut source: Box<dyn ArraySource>) -> Option<Vec<u8>> {
    let record = source.records().record_bytes();
    assert!(record > 0);
    let (mut out, mut records) = (Vec::new(), 0);
    while record <= ENOUGH && (out.len() as u64) < ENOUGH {
        let n = source.read((ENOUGH / 8 / record).max(1), &mut out).ok()?;
        records += n;
        assert_eq!(out.len() as u64, records * record);
        if n == 0 {
            assert_eq!(records, source.records().len());
            return Some(out);
        }
    }
    None
}
