//! Writes the programs of the guides to kernels as tests, which `tests/hw_docs.rs` runs on a GPU.
//! So each listing stands once, on its page. The doc tests run the same text in the emulator.

#[allow(dead_code, reason = "the library uses the rest")]
#[path = "src/listings.rs"]
mod listings;

use std::path::Path;
use std::{env, fs};

/// The pages whose listings build kernels.
const PAGES: [&str; 3] = ["cookbook", "fragments", "kernels"];

fn main() {
    let mut tests = String::new();
    for page in PAGES {
        let path = listings::root().join("docs").join(page).with_extension("md");
        println!("cargo::rerun-if-changed={}", path.display());
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let blocks = listings::blocks(&format!("docs/{page}.md"), &text);
        for block in blocks.iter().filter(|block| block.runs_on_gpu()) {
            // The emulation of this module is a GPU.
            let program = block.program().replace("persistent_gemm::program", "crate::card");
            // The emulated device knows no instructions of one's own, and no kernel that a listing
            // loads by itself.
            let everywhere = !program.contains("Instruction::") && !block.is("no_run");
            let name = if everywhere { "is_right" } else { "is_right_on_a_gpu" };
            tests += &format!(
                "mod {page}_{} {{\n{program}\n#[test]\nfn {name}() {{\n    \
                 crate::card::launch({:?}, main);\n}}\n}}\n",
                block.line,
                block.place()
            );
        }
    }
    let folder = env::var_os("OUT_DIR").expect("cargo names a folder");
    fs::write(Path::new(&folder).join("hw_docs.rs"), tests).expect("cargo's folder is writable");
}
