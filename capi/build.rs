//! How `libzrfs.so` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Its threads live as long as the process: a program that unloads the library would take their code from them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-examples=-Wl,-z,nodelete");
}
