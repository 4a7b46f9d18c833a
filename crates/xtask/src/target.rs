//! The machines that packages are made for.

use clap::ValueEnum;
use object::elf;

/// A machine, by the name that Rust has for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Hosts of H100 and H200.
    #[default]
    #[value(name = "x86_64-unknown-linux-gnu")]
    X86_64,
    /// GH200.
    #[value(name = "aarch64-unknown-linux-gnu")]
    Aarch64,
}

impl Target {
    /// The machine's name in `uname -m` and in the name of the package.
    pub fn machine(self) -> &'static str {
        match self {
            Target::X86_64 => "x86_64",
            Target::Aarch64 => "aarch64",
        }
    }

    /// The name that Rust has for it.
    pub fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// The machine in the header of an ELF file.
    pub fn elf_machine(self) -> u16 {
        match self {
            Target::X86_64 => elf::EM_X86_64,
            Target::Aarch64 => elf::EM_AARCH64,
        }
    }

    /// The dynamic loader.
    pub fn loader(self) -> &'static str {
        match self {
            Target::X86_64 => "ld-linux-x86-64.so.2",
            Target::Aarch64 => "ld-linux-aarch64.so.1",
        }
    }
}
