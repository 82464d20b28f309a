//! `--names`, and pictures.

use crate::common::{Mount, TempDir, bytes, mounter, run, shell, store, succeeds};
use crate::{conforms, python};
use zrfs::WriterOptions;
use zrfs::dataset::DenseWriter;
use zrfs::format::dtype::DType;

/// Tools that look at extensions work on records, and names resolve exactly as listed.
#[test]
fn records_get_names_and_extensions() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let mut records: Vec<Vec<u8>> = (0..200).map(|i| format!("text {i}\n").into_bytes()).collect();
    records[3] = [b"\x89PNG\r\n\x1a\n".as_slice(), &bytes(3, 500_000)].concat();
    records[5] = b"\xff\xd8\xff\xe0 a picture".to_vec();
    records[6] = b"{\"a\": [1, 2]}".to_vec();
    records[7] = b"\0\x01\x02".to_vec();
    let mut writer = store(&path, "zstd", &records);
    let mount = Mount::new(&path, &["--names", "auto", "--root", "files"]);
    let at = mount.path();
    let listed = succeeds(&shell(&format!("ls {at} | head -8 | tr '\\n' ' '")));
    let want = ["0.txt", "1.txt", "2.txt", "3.png", "4.txt", "5.jpg", "6.json", "7.bin"];
    assert_eq!(listed, want.map(|name| format!("0000000{name} ")).concat());
    conforms(&["dir", &at, "200"]);
    assert_eq!(succeeds(&shell(&format!("find {at} -name '*.txt' | wc -l"))), "196\n");
    assert_eq!(succeeds(&shell(&format!("cat {at}/00000006.json"))), "{\"a\": [1, 2]}");
    succeeds(&shell(&format!("python3 -m json.tool {at}/00000006.json >/dev/null")));
    for wrong in ["00000006.txt", "6.json", "00000006", "00000200.txt", "00000006.JSON"] {
        assert!(shell(&format!("stat {at}/{wrong}")).err.contains("No such file"), "{wrong}");
    }
    writer.append(&[b"<!DOCTYPE html>"]).unwrap();
    writer.sync().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(succeeds(&shell(&format!("cat {at}/00000200.html"))), "<!DOCTYPE html>");
    conforms(&["dir", &at, "201"]);

    let mount = Mount::new(&path, &["--names", "img-{index:03}.dat"]);
    let at = mount.path();
    assert_eq!(succeeds(&shell(&format!("ls {at}/files | sed -n 7p"))), "img-006.dat\n");
    assert_eq!(succeeds(&shell(&format!("cat {at}/files/img-199.dat"))), "text 199\n");
    let same = succeeds(&shell(&format!("stat -c %i-%h {at}/files/img-004.dat {at}/records/4")));
    let (one, two) = same.trim().split_once('\n').unwrap();
    assert!(one == two && one.ends_with("-2"), "two names of one file: {same}");

    let place = dir.path().join("m");
    std::fs::create_dir(&place).unwrap();
    for (pattern, why) in [("x.jpg", "index"), ("a/{index}", "slash"), ("{index", "{index:08}")] {
        let done = run(mounter(), &["--names", pattern, path.to_str().unwrap(), place.to_str().unwrap()]);
        assert!(done.code != Some(0) && done.err.contains(why), "{pattern}: {}", done.err);
    }
}

/// Any reader of PNG opens pictures: checked here by a decoder that is strict about checksums, lengths and ends.
#[test]
fn pictures_open_as_png() {
    let dir = TempDir::new().unwrap();
    let script = r#"
import os, struct, sys, zlib
import numpy as np
def decode(path):
    data = open(path, 'rb').read()
    assert len(data) == os.stat(path).st_size
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    at, chunks = 8, []
    while at < len(data):
        n, kind = struct.unpack('>I4s', data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        assert struct.unpack('>I', data[at + 8 + n:at + 12 + n])[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + n
    assert [k for k, _ in chunks] == [b'IHDR', b'IDAT', b'IEND']
    w, h, depth, colour, *rest = struct.unpack('>IIBBBBB', chunks[0][1])
    assert depth == 8 and rest == [0, 0, 0]
    channels = {0: 1, 2: 3, 6: 4}[colour]
    d = zlib.decompressobj()
    rows = d.decompress(chunks[1][1])
    assert d.eof and not d.unused_data
    rows = np.frombuffer(rows, 'u1').reshape(h, 1 + w * channels)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(h, w, channels)
at, shape = sys.argv[1], eval(sys.argv[2])
names = sorted(os.listdir(at + '/png'))
assert names == [f'{i}.png' for i in range(3)], names
for i in range(3):
    want = np.load(f'{at}/npy/{i}.npy')
    assert want.shape == shape
    got = decode(f'{at}/png/{i}.png')
    assert (got == want.reshape(got.shape)).all(), i
"#;
    for (k, shape) in [vec![28, 28], vec![7, 9, 1], vec![300, 400, 3], vec![33, 65, 4]].into_iter().enumerate() {
        let path = dir.path().join(k.to_string());
        let options = WriterOptions::new("zstd".parse().unwrap());
        let mut writer = DenseWriter::create(&path, options, DType::parse("|u1").unwrap(), shape.clone()).unwrap();
        writer.append(&bytes(k as u64, 3 * shape.iter().product::<u64>() as usize)).unwrap();
        writer.close().unwrap();
        let mount = Mount::new(&path, &[]);
        let shown: Vec<String> = shape.iter().map(u64::to_string).collect();
        let args = ["-c", script, &mount.path(), &format!("({},)", shown.join(","))];
        succeeds(&run(python().to_str().unwrap(), &args));
        assert_eq!(
            succeeds(&shell(&format!("head -c 8 {}/png/0.png | od -An -c | tr -d ' \\n'", mount.path()))),
            "211PNG\\r\\n032\\n"
        );
        conforms(&["dir", &format!("{}/png", mount.path()), "3"]);
    }
}
