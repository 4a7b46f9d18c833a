//! Checks which systems can load a program or a shared library: the version of glibc that its
//! symbols need, and the libraries that it names.
//!
//! A program that was linked on a new system needs symbol versions such as `GLIBC_2.34`, which an
//! older glibc does not have, and is then refused by the dynamic loader.

use std::fmt;

use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::FileHeader;
use object::{Endianness, read};

use crate::target::Target;

/// The newest glibc that a file of a package may need: that of RHEL 8. Debian 10 has it as well.
pub const NEWEST_GLIBC: Glibc = Glibc(2, 28);

/// Libraries that a file may name, besides the dynamic loader: those of glibc, and our own.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"];
const OWN_LIBRARY: &str = "libpersistent_gemm.so.";

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(pub u32, pub u32);

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "glibc {}.{}", self.0, self.1)
    }
}

/// Why a file cannot be part of a package.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("it is no 64-bit ELF file: {0}")]
    Malformed(#[from] read::Error),
    #[error("it is for the ELF machine {found}, and the package is for {expected}")]
    Machine { found: u16, expected: &'static str },
    #[error(
        "it needs {version} of {library}, and packages are for {NEWEST_GLIBC}; link it with zig \
         for that version"
    )]
    Version { library: String, version: String },
    #[error("it needs the library {0}, which not every system has; link it statically")]
    Library(String),
}

/// The least glibc that a program or library needs.
///
/// # Errors
/// Not every system that packages are for can load it.
pub fn check(data: &[u8], target: Target) -> Result<Glibc, ElfError> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let found = header.e_machine(endian);
    if found != target.elf_machine() {
        return Err(ElfError::Machine { found, expected: target.machine() });
    }
    let sections = header.sections(endian, data)?;

    let dynamic = sections.dynamic_table(endian, data)?;
    for entry in dynamic.iter() {
        if entry.tag == DT_NEEDED {
            let name = String::from_utf8_lossy(dynamic.string(entry)?).into_owned();
            let allowed = LIBRARIES.contains(&name.as_str())
                || name == target.loader()
                || name.starts_with(OWN_LIBRARY);
            if !allowed {
                return Err(ElfError::Library(name));
            }
        }
    }

    let mut least = Glibc(2, 0);
    if let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        while let Some((need, mut versions)) = needs.next()? {
            let library = String::from_utf8_lossy(need.file(endian, strings)?).into_owned();
            while let Some(version) = versions.next()? {
                let version = String::from_utf8_lossy(version.name(endian, strings)?).into_owned();
                match glibc(&version) {
                    Some(glibc) if glibc <= NEWEST_GLIBC => least = least.max(glibc),
                    _ => return Err(ElfError::Version { library, version }),
                }
            }
        }
    }
    Ok(least)
}

/// The glibc that has a symbol version: `GLIBC_2.17` or `GLIBC_2.2.5`. Versions of other libraries,
/// and `GLIBC_PRIVATE`, are none.
fn glibc(version: &str) -> Option<Glibc> {
    let mut numbers = version.strip_prefix("GLIBC_")?.split('.').map(|number| number.parse().ok());
    Some(Glibc(numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use std::{env, fs};

    use object::write::elf::{SectionIndex, Vernaux, Verneed, Writer};
    use object::{Endianness, elf};

    use super::*;

    /// A shared library that names a library and needs versions of its symbols.
    fn library(machine: u16, needed: &str, versions: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Endianness::Little, true, &mut bytes);
        let name = writer.add_dynamic_string(needed.as_bytes());
        let versions: Vec<_> =
            versions.iter().map(|version| writer.add_dynamic_string(version.as_bytes())).collect();
        writer.reserve_file_header();
        writer.reserve_null_section_index();
        let _ = writer.reserve_dynstr_section_index();
        let _: SectionIndex = writer.reserve_dynamic_section_index();
        let _ = writer.reserve_gnu_verneed_section_index();
        let _ = writer.reserve_shstrtab_section_index();
        let dynstr = writer.reserve_dynstr();
        let dynamic = writer.reserve_dynamic(2);
        let verneed = writer.reserve_gnu_verneed(1, versions.len());
        writer.reserve_shstrtab();
        writer.reserve_section_headers();

        let header = object::write::elf::FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: machine,
            e_entry: 0,
            e_flags: 0,
        };
        writer.write_file_header(&header).unwrap();
        writer.write_dynstr();
        writer.write_align_dynamic();
        writer.write_dynamic_string(elf::DT_NEEDED, name).unwrap();
        writer.write_dynamic(elf::DT_NULL, 0).unwrap();
        writer.write_align_gnu_verneed();
        writer.write_gnu_verneed(&Verneed {
            version: elf::VER_NEED_CURRENT,
            aux_count: versions.len() as u16,
            file: name,
        });
        for (index, name) in versions.into_iter().enumerate() {
            writer.write_gnu_vernaux(&Vernaux { flags: 0, index: index as u16 + 2, name });
        }
        writer.write_shstrtab();
        writer.write_null_section_header();
        writer.write_dynstr_section_header(dynstr as u64);
        writer.write_dynamic_section_header(dynamic as u64);
        writer.write_gnu_verneed_section_header(verneed as u64);
        writer.write_shstrtab_section_header();
        bytes
    }

    #[test]
    fn the_newest_symbol_version_is_what_a_file_needs() {
        let versions = ["GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.3"];
        let bytes = library(elf::EM_X86_64, "libc.so.6", &versions);
        assert_eq!(check(&bytes, Target::X86_64).unwrap(), Glibc(2, 17));
        let bytes = library(elf::EM_AARCH64, "libc.so.6", &["GLIBC_2.28"]);
        assert_eq!(check(&bytes, Target::Aarch64).unwrap(), Glibc(2, 28));
    }

    #[test]
    fn a_newer_glibc_and_private_symbols_are_refused() {
        for version in
            ["GLIBC_2.29", "GLIBC_2.100", "GLIBC_3.0", "GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR"]
        {
            let bytes = library(elf::EM_X86_64, "libc.so.6", &["GLIBC_2.17", version]);
            let error = check(&bytes, Target::X86_64).unwrap_err().to_string();
            assert!(error.contains(version) && error.contains("libc.so.6"), "{error}");
        }
    }

    #[test]
    fn other_libraries_and_machines_are_refused() {
        let error = |machine, library_name| {
            check(&library(machine, library_name, &[]), Target::X86_64).unwrap_err().to_string()
        };
        assert!(error(elf::EM_X86_64, "libstdc++.so.6").contains("libstdc++.so.6"));
        assert!(error(elf::EM_X86_64, "ld-linux-aarch64.so.1").contains("ld-linux-aarch64.so.1"));
        assert!(error(elf::EM_AARCH64, "libc.so.6").contains("x86_64"));
        let own = library(elf::EM_X86_64, "libpersistent_gemm.so.0.1", &[]);
        assert_eq!(check(&own, Target::X86_64).unwrap(), Glibc(2, 0));
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(matches!(check(b"#!/bin/sh\n", Target::X86_64), Err(ElfError::Malformed(_))));
        let mut cut = library(elf::EM_X86_64, "libc.so.6", &["GLIBC_2.17"]);
        cut.truncate(cut.len() - 100);
        assert!(matches!(check(&cut, Target::X86_64), Err(ElfError::Malformed(_))));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_program_that_was_linked_for_this_machine_alone_is_refused() {
        // Rust links the unwinder of the system, and symbols of the system's glibc.
        let program = fs::read(env::current_exe().unwrap()).unwrap();
        let error = check(&program, Target::X86_64).unwrap_err();
        assert!(matches!(error, ElfError::Library(_) | ElfError::Version { .. }), "{error}");
    }
}
