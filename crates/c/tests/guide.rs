//! The blocks of C and C++ in the README and the book are compiled with the header. A page's blocks
//! of one language follow each other, and each sees the names of the ones before it.
//! `PGEMM_REQUIRE_CC=1` makes a missing compiler a failure.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use pgemm_docs::listings;

/// A language of blocks: its compiler, the flags, and the names that the blocks use and do not
/// declare.
struct Language {
    name: &'static str,
    extension: &'static str,
    compilers: [&'static str; 2],
    flags: &'static [&'static str],
    given: &'static str,
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: "c",
        extension: "c",
        compilers: ["gcc", "clang"],
        flags: &["-std=c11", "-Wall", "-Wextra", "-pedantic"],
        given: "void page(const void *a_device, const void *b_device, void *c_device, void *d_device, \
                int64_t m, int64_t n, int64_t k, void *stream, const pgemm_problem *problems, size_t count, \
                void (*progress)(size_t, size_t, void *), void *context, pgemm_problem problem, \
                pgemm_engine *engine, pgemm_job *job, uint64_t ticket, const void *x_device, \
                void *y_device)",
    },
    Language {
        name: "cpp",
        extension: "cpp",
        compilers: ["g++", "clang++"],
        flags: &["-std=c++17", "-Wall", "-Wextra", "-pedantic"],
        given: "void page(const void *A_device, const void *B_device, void *C_device, const void *A, \
                const void *B, const void *C, void *D, const void *bias_device, int M, int N, int K, \
                const void *x_device, void *y_device, void *stream)",
    },
];

/// The program of a page's blocks: each is a scope within the one before, so that it may declare
/// names anew.
fn program(language: &Language, blocks: &[listings::Block]) -> String {
    let (mut includes, mut body) = (String::new(), String::new());
    for block in blocks {
        body += &format!("{{\n#line {} \"{}\"\n", block.line + 1, block.page);
        for line in block.text.lines() {
            if line.starts_with("#include") {
                includes += line;
                includes.push('\n');
                body.push('\n');
            } else {
                body += line;
                body.push('\n');
            }
        }
    }
    let headers = if language.name == "c" {
        "#include <stdio.h>\n#include <persistent_gemm.h>\n"
    } else {
        "#include <cstdio>\n#include <vector>\n#include <persistent_gemm.h>\n"
    };
    let ends = "}\n".repeat(blocks.len());
    // The definition without a declaration before it would be a warning of some compilers.
    format!("{headers}{includes}{given};\n{given} {{\n{body}{ends}}}\n", given = language.given)
}

fn is_there(compiler: &str) -> bool {
    let version = Command::new(compiler).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

#[test]
fn blocks_of_the_book_compile() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let work = tempfile::tempdir().unwrap();
    for language in &LANGUAGES {
        let mut pages: BTreeMap<String, Vec<listings::Block>> = BTreeMap::new();
        for block in listings::all() {
            if block.language == language.name {
                pages.entry(block.page.clone()).or_default().push(block);
            }
        }
        assert!(pages.len() >= 2, "few pages have blocks of {}", language.name);
        let compilers = language.compilers.into_iter().filter(|name| is_there(name));
        let compilers: Vec<_> = compilers.collect();
        if compilers.is_empty() {
            let required = std::env::var_os("PGEMM_REQUIRE_CC").is_some_and(|value| value == "1");
            assert!(!required, "none of {} is on the path", language.compilers.join(", "));
            let names = language.compilers.join(", ");
            // Tests that pass show what goes past the harness only.
            let note = format!("SKIPPED: none of {names} is on the path\n");
            std::io::stderr().write_all(note.as_bytes()).unwrap();
        }
        for (page, blocks) in &pages {
            let source = work.path().join("page").with_extension(language.extension);
            std::fs::write(&source, program(language, blocks)).unwrap();
            for compiler in &compilers {
                let mut command = Command::new(compiler);
                // Names of a block that only later readers of the page use.
                command.args(language.flags).args([
                    "-Werror",
                    "-Wno-unused",
                    "-Wno-unused-parameter",
                    "-fsyntax-only",
                    "-I",
                ]);
                let output = command.arg(&header).arg(&source).output().unwrap();
                let message = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{compiler} refuses {page}:\n{message}");
            }
        }
    }
}
