//! How `libzrfs.so` is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Its threads live as long as the process: a program that unloads the library would take their code from them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-examples=-Wl,-z,nodelete");
    // A program that was linked with the library's path looks for it by name, as one linked with -lzrfs does.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libzrfs.so");
}
