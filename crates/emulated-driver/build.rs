//! Names the library as programs ask for it.

fn main() {
    // `cudarc` first looks for `libcuda.so`. The loader returns a library that is open and has this
    // name before it looks for files.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo::rerun-if-changed=build.rs");
}
