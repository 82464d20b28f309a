//! `include/zrfs-abi.h` is the same layout: a C program that is nothing but assertions compiles.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use zrfs_abi::*;

type Fields = &'static [(&'static str, usize, usize)];

/// The assertions, as C that fails to compile where one does not hold.
fn program() -> String {
    let mut c = String::from("#include \"zrfs-abi.h\"\n#include <stddef.h>\n");
    let mut n = 0;
    let mut say = |condition: String| {
        n += 1;
        writeln!(c, "typedef char assert_{n}[({condition}) ? 1 : -1];").unwrap();
    };
    let structures: [(&str, usize, Fields); 10] = [
        ("server", Server::BYTES, Server::FIELDS),
        ("store", Store::BYTES, Store::FIELDS),
        ("stream", Stream::BYTES, Stream::FIELDS),
        ("view", View::BYTES, View::FIELDS),
        ("spec", Spec::BYTES, Spec::FIELDS),
        ("sample", Sample::BYTES, Sample::FIELDS),
        ("announce", Announce::BYTES, Announce::FIELDS),
        ("slab_header", SlabHeader::BYTES, SlabHeader::FIELDS),
        ("slab_stream", SlabStream::BYTES, SlabStream::FIELDS),
        ("slab_request", SOCKET_BYTES, &[("view", 8, 8), ("key", 8, 8)]),
    ];
    for (name, bytes, fields) in structures {
        say(format!("sizeof(struct zrfs_{name}) == {bytes}"));
        let mut at = 0;
        for (field, size, _) in fields {
            say(format!("offsetof(struct zrfs_{name}, {field}) == {at}"));
            say(format!("sizeof(((struct zrfs_{name} *)0)->{field}) == {size}"));
            at += size;
        }
    }
    say(format!("sizeof(struct zrfs_slab_answer) == {SOCKET_BYTES}"));
    say(format!("offsetof(struct zrfs_view_small, indices) == {}", View::BYTES));
    say(format!("sizeof(struct zrfs_view_small) == {SMALL_BYTES}"));
    say(format!("sizeof(struct zrfs_view_large) == {LARGE_BYTES}"));
    let constants = [
        ("ABI_VERSION", u64::from(VERSION)),
        ("STREAM_OWN", STREAM_OWN.into()),
        ("STREAM_ALL", STREAM_ALL.into()),
        ("FEATURE_VIEWS", FEATURE_VIEWS),
        ("FEATURE_SOCKET", FEATURE_SOCKET),
        ("FEATURE_ANNOUNCE", FEATURE_ANNOUNCE),
        ("FEATURE_START", FEATURE_START),
        ("START", START.into()),
        ("STORE_DATASET", STORE_DATASET.into()),
        ("STORE_TREE", STORE_TREE.into()),
        ("KIND_BYTES", KIND_BYTES.into()),
        ("KIND_DENSE", KIND_DENSE.into()),
        ("KIND_RAGGED", KIND_RAGGED.into()),
        ("SMALL", SMALL as u64),
        ("LARGE", LARGE as u64),
        ("ALIGN", ALIGN),
        ("NO_STEP", NO_STEP),
        ("IOC_ANNOUNCE", ANNOUNCE.into()),
        ("IOC_SERVER", SERVER.into()),
        ("IOC_STORE", STORE.into()),
        ("IOC_STREAM", STREAM.into()),
        ("IOC_BEGIN", BEGIN.into()),
        ("IOC_PUSH_SMALL", PUSH_SMALL.into()),
        ("IOC_PUSH_LARGE", PUSH_LARGE.into()),
        ("IOC_SEAL", SEAL.into()),
        ("IOC_GATHER_SMALL", GATHER_SMALL.into()),
        ("IOC_GATHER_LARGE", GATHER_LARGE.into()),
        ("IOC_SAMPLE", SAMPLE.into()),
        ("IOC_CLOSE", CLOSE.into()),
        ("IOC_WAIT", WAIT.into()),
    ];
    for (name, value) in constants {
        say(format!("ZRFS_{name} == {value}u"));
    }
    c
}

fn compiles(compiler: &str, source: &Path, args: &[&str]) -> Result<(), String> {
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");
    let done = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I", include])
        .args(args)
        .arg(source)
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}; a C compiler is needed"));
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

#[test]
fn the_header_is_the_same_layout() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, wrong) = (dir.join("abi.c"), dir.join("abi-wrong.c"));
    let program = program();
    assert!(program.lines().count() > 150, "{program}");
    let header = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../include/zrfs-abi.h")).unwrap();
    assert!(header.contains(&format!("#define ZRFS_MAGIC \"{}\"\n", std::str::from_utf8(&MAGIC).unwrap())));
    std::fs::write(&source, &program).unwrap();
    compiles("cc", &source, &["-std=c99"]).unwrap();
    // To a program of 32 bits, too. Of the C library the header wants the numbers of ioctls alone, and few machines have the
    // one of 32 bits; the kernel's headers have those numbers.
    if cfg!(target_arch = "x86_64") {
        let kernel = dir.join("abi-32");
        std::fs::create_dir_all(kernel.join("sys")).unwrap();
        std::fs::write(kernel.join("sys/ioctl.h"), "#include <asm-generic/ioctl.h>\n").unwrap();
        compiles("cc", &source, &["-std=c99", "-m32", "-ffreestanding", "-I", kernel.to_str().unwrap()]).unwrap();
    }
    if Command::new("c++").arg("--version").output().is_ok_and(|o| o.status.success()) {
        compiles("c++", &source, &["-x", "c++"]).unwrap();
    }
    // It can fail.
    std::fs::write(
        &wrong,
        program.replace("offsetof(struct zrfs_view, count) == 16", "offsetof(struct zrfs_view, count) == 8"),
    )
    .unwrap();
    assert!(compiles("cc", &wrong, &["-std=c99"]).unwrap_err().contains("assert_"));
}
