//! The header against the structs and numbers that are here.

use super::super::code::*;
use super::super::layout::*;
use super::super::loader::*;
use super::super::source::*;
use std::io::Write;
use std::process::{Command, Stdio};

/// The header's text, compiled after which each of `checks` must hold.
fn compile(compiler: &str, args: &[&str], checks: &[String]) {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let mut source = String::from("#include <zrfs.h>\n#include <stddef.h>\n");
    for (k, check) in checks.iter().enumerate() {
        source += &format!("typedef char check_{k}[({check}) ? 1 : -1]; /* {check} */\n");
    }
    source += "int main(void) { return 0; }\n";
    let mut child = Command::new(compiler)
        .args(args)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", include, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{compiler} {args:?}:\n{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_header_has_the_structs_and_numbers_that_are_here() {
    let mut checks = Vec::new();
    for (name, size, fields) in [
        Info::LAYOUT,
        StreamInfo::LAYOUT,
        CreateOptions::LAYOUT,
        LoaderOptions::LAYOUT,
        BatchInfo::LAYOUT,
        Part::LAYOUT,
    ] {
        checks.push(format!("sizeof({name}) == {size}"));
        for (field, offset, size) in fields {
            checks.push(format!("offsetof({name}, {field}) == {offset}"));
            checks.push(format!("sizeof((({name} *)0)->{field}) == {size}"));
        }
    }
    checks.extend(NAMES.iter().map(|(name, code)| format!("ZRFS_E_{name} == {code}")));
    for codec in crate::format::Codec::ALL {
        checks.push(format!("ZRFS_{} == {}", codec.name().to_uppercase(), codec.number()));
    }
    for (name, number) in [
        ("OK", 0),
        ("BYTES", BYTES),
        ("DENSE", DENSE),
        ("RAGGED", RAGGED),
        ("MAX_DIMS", MAX_DIMS as u32),
        ("LOADER_ANY_ORDER", ANY_ORDER),
        ("LOADER_NO_WORKERS", NO_WORKERS),
    ] {
        checks.push(format!("ZRFS_{name} == {number}"));
    }
    let header = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/zrfs.h")).unwrap();
    let defined = header.lines().filter(|line| line.trim_start().starts_with("ZRFS_E_")).count();
    assert_eq!(defined, NAMES.len(), "a code of the header is not here");
    assert!(checks.len() > 90, "{}", checks.len());
    compile("cc", &["-std=c99", "-xc"], &checks);
    if Command::new("c++").arg("--version").output().is_ok() {
        compile("c++", &["-std=c++11", "-xc++"], &checks);
    }
}
