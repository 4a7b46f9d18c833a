//! The parsers: each target reads an input by one of them, and says whether it was accepted.

mod files;
mod matrices;
mod texts;

/// A parser.
pub struct Target {
    /// Its name, which is also the name of the folder of its corpus.
    pub name: &'static str,
    /// Reads an input. Returns whether the parser accepts it.
    ///
    /// The function panics where an accepted input does not keep what the parser promises.
    pub run: fn(&[u8]) -> bool,
    /// Inputs that are made anew, since their form changes with the code.
    pub made: fn() -> Vec<Vec<u8>>,
}

/// All parsers.
pub const TARGETS: [Target; 17] = [
    Target { name: "layout", run: texts::layout, made: Vec::new },
    Target { name: "spec", run: texts::spec, made: texts::specs },
    Target { name: "epilogue", run: texts::epilogue, made: Vec::new },
    Target { name: "words", run: texts::words, made: Vec::new },
    Target { name: "problem-name", run: texts::problem_name, made: Vec::new },
    Target { name: "suite", run: texts::suite, made: Vec::new },
    Target { name: "problem", run: texts::problem, made: Vec::new },
    Target { name: "tuned", run: files::tuned, made: files::tuned_results },
    Target { name: "atlas", run: files::atlas, made: Vec::new },
    Target { name: "results", run: files::results, made: Vec::new },
    Target { name: "pack", run: files::pack, made: files::packs },
    Target { name: "pack-index", run: files::pack_index, made: files::packs },
    Target { name: "program", run: files::program, made: files::programs },
    Target { name: "location", run: matrices::location, made: matrices::locations },
    Target { name: "npy", run: matrices::npy, made: matrices::arrays },
    Target { name: "safetensors", run: matrices::safetensors, made: matrices::tensors },
    Target { name: "cache", run: files::cache, made: files::cache_entries },
];
