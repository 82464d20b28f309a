//! `libzrfs.so` as programs have it: what it exports, loaderx's Python package and its test suite over it, calls side by
//! side with loaderx's own libraries, and a C program.
//!
//! The functions themselves, with all that a careless caller can do, are tested in the engine's `src/ffi/tests/`.

#[path = "../../../tests/common/served.rs"]
mod served;

use served::Loaderx;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const SIGBUS: i32 = 7;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The library as the package's example, which `cargo test` makes anew before it runs these tests.
fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let path = deps.parent().and_then(Path::parent).unwrap().join("examples/libzrfs.so");
    assert!(path.is_file(), "{} is missing: run all of `cargo test -p zrfs-capi --features capi`", path.display());
    path
}

fn python() -> PathBuf {
    served::python(root())
}

fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("zrfs-test-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let [stdout, stderr] = [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(out.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", out.status);
    out
}

#[track_caller]
fn ok(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).unwrap()
}

#[test]
fn it_exports_what_the_header_declares_and_nothing_else() {
    let listed = ok(Command::new("nm").args(["-D", "--defined-only", "-f", "posix"]).arg(library()));
    let exported: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    let header = std::fs::read_to_string(root().join("include/zrfs.h")).unwrap();
    let mut code = String::new();
    for part in header.split("/*") {
        code += part.split_once("*/").map_or(part, |(_, rest)| rest);
    }
    // A name before a parenthesis, outside of comments.
    let mut declared: Vec<&str> = code
        .match_indices('(')
        .filter_map(|(at, _)| code[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next())
        .filter(|name| !name.is_empty() && *name != "defined")
        .collect();
    declared.sort_unstable();
    let mut sorted = exported.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, declared);
    let ours = |name: &&&str| name.starts_with("zr_") || name.starts_with("zrfs_");
    let others: Vec<_> = sorted.iter().filter(|name| !ours(name)).collect();
    assert_eq!(others, [&"cdeinit", &"cinit", &"cnext", &"cseek"]);
    assert!(declared.len() > 45, "{declared:?}");
}

/// loaderx's package with the library in place of its own two, made by running its test suite.
fn dropin() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("dropin");
        let script = root().join("tests/dropin.sh");
        let text = ok(Command::new(script).arg(library()).arg(python()).arg(&dir));
        assert!(text.contains("loaderx over zrfs") && text.trim_end().ends_with("all passed"), "{text}");
        assert!(text.matches("  ok   test_").count() >= 35, "{text}");
        dir.join("site")
    })
}

#[test]
fn loaderx_passes_its_own_suite_over_it() {
    dropin();
}

#[test]
fn it_answers_as_loaderx_does() {
    // In memory where that can be had: thousands of calls, of which ours sync.
    let shm = tempfile::Builder::new().prefix("zrfs-test-").tempdir_in("/dev/shm");
    let dir = shm.unwrap_or_else(|_| scratch());
    let script = root().join("capi/tests/differential.py");
    let seeds = (0..9).map(|seed: u32| seed.to_string());
    let text = ok(Command::new(python()).arg(script).arg(library()).arg(dir.path()).args(seeds));
    println!("{text}");
}

/// loaderx with its own libraries, or with ours in their place.
fn loaderx(ours: bool) -> Loaderx {
    let mut python = Command::new(python());
    if ours {
        python.env("PYTHONPATH", dropin());
    }
    Loaderx::start(python, root())
}

#[test]
fn stores_of_either_library_open_in_the_other() {
    let dir = scratch();
    let mut sides = [loaderx(false), loaderx(true)];
    for maker in [0, 1] {
        let other = 1 - maker;
        let made = dir.path().join(["theirs", "ours"][maker]);
        let written = sides[maker].ask(["write", made.to_str().unwrap()]);
        let written = written.as_object().unwrap();
        assert_eq!(written.len(), 24);
        let path = |name: &str| made.join(name).to_str().unwrap().to_string();
        let paths: Vec<String> = written.keys().map(|name| path(name)).collect();
        let read: Vec<&str> = ["read"].into_iter().chain(paths.iter().map(String::as_str)).collect();
        assert_eq!(sides[other].ask(read).as_object().unwrap(), written);
        // Both change them in turn, and agree each time.
        for name in written.keys() {
            let path = path(name);
            let mut side = maker;
            for step in [
                &["delete", &path, "0", "2"][..],
                &["append", &path, "5"],
                &["compact", &path],
                &["append", &path, "3"],
            ] {
                side = 1 - side;
                // Text is not of numbers, and new records are.
                if name.contains("text") && step[0] == "append" {
                    continue;
                }
                let said = sides[side].ask(step);
                assert_eq!(
                    sides[1 - side].ask(["read", &path])[name],
                    said,
                    "{step:?}, made and changed by {maker}, {side}"
                );
            }
        }
    }
}

#[test]
fn forked_children_read_on() {
    let dir = scratch();
    let mut command = Command::new("timeout");
    command.arg("100").arg(python()).args(["-W", "ignore"]).arg(root().join("capi/tests/fork.py")).arg(dir.path());
    assert_eq!(ok(command.env("PYTHONPATH", dropin())), "8 children\n");
}

#[test]
fn a_bus_error_that_is_not_ours_goes_where_it_went_before() {
    let dir = scratch();
    // Nowhere, or to Python's own handler.
    for faulthandler in ["0", "1"] {
        let mut command = Command::new("timeout");
        command.arg("100").arg(python()).args(["-W", "ignore"]).arg(root().join("capi/tests/bus.py"));
        command.arg(dir.path().join(faulthandler)).arg(faulthandler).env("PYTHONPATH", dropin());
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(String::from_utf8_lossy(&out.stdout), "reads\n", "{said}");
        assert_eq!(out.status.signal(), Some(SIGBUS), "{}: {said}", out.status);
        assert_eq!(said.contains("Fatal Python error: Bus error"), faulthandler == "1", "{said}");
    }
}

#[test]
fn the_example_in_c_draws_the_same_batches_both_ways() {
    let dir = scratch();
    let program = dir.path().join("gather");
    let library = library();
    let from = library.parent().unwrap().to_str().unwrap();
    run(Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"])
        .arg(root().join("examples/c/gather.c"))
        .args([format!("-I{}", root().join("include").display()), format!("-L{from}"), format!("-Wl,-rpath,{from}")])
        .args(["-lzrfs", "-o"])
        .arg(&program));
    let made = loaderx(true).ask(["write", dir.path().to_str().unwrap()]);
    assert_eq!(made["dense-f4-zstd"]["records"].as_array().unwrap().len(), 33);
    let gather =
        |store: &str| ok(Command::new(&program).arg(dir.path().join(store)).args(["cyclic,batch=8,seed=3", "4"]));
    for (store, first) in
        [("dense-f4-zstd", "dense-f4-zstd: 33 records of <f4 3"), ("ragged-i4-raw", "ragged-i4-raw: 21 records of <i4")]
    {
        let text = gather(store);
        let (one, two) = text.split_once("the same from the loader\n").unwrap();
        let (head, one) = one.split_once('\n').unwrap();
        assert!(head.ends_with(first), "{text}");
        assert_eq!(one, two);
        assert_eq!(one.lines().count(), 4, "{text}");
        assert!(one.starts_with("step 0: 8 records, ") && !one.contains("sum 0\n"), "{text}");
    }
    let out = Command::new(&program).arg("/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        (out.status.code(), &said[..]),
        (Some(1), "gather: open: /nowhere is not a zrfs store or dataset: there is nothing of that name\n")
    );
}

/// Over a real mount, which goes with the command.
#[test]
fn batches_come_from_a_mount() {
    let mounter = library().parent().and_then(Path::parent).unwrap().join("zrfs-mount");
    assert!(mounter.is_file(), "{} is missing: cargo build -p zrfs-mount", mounter.display());
    let (dir, script) = (scratch(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/view.py"));
    let store = dir.path().join("numbers.zr");
    run(Command::new(python()).arg(&script).arg(library()).arg("make").arg(&store));
    let mut mounted = Command::new(mounter);
    mounted.arg("run").arg(&store).arg("--").arg(python()).arg(&script).arg(library());
    run(&mut mounted);
}
