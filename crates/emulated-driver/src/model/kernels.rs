//! Kernels by their PTX. The name of the entry says which kernel of the library it is; the kernel
//! is built from it. Other kernels are read from files. Either way the kernel's PTX must be the
//! given one, so that what runs is what would run on a GPU.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use pgemm_ir::{Kernel, SM_SMEM_BYTES, SM_THREADS, SYSTEM_SMEM_BYTES};
use pgemm_kernels::{
    ArithmeticProbe, GemmKernel, LoadProbe, ProbeKernel, ProbeSpec, RepackKernel, RepackSpec, Spec,
    empty_kernel,
};

/// A kernel of the library.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) kernel: Kernel,
    /// Whether it runs until the host tells it to end.
    pub(crate) resident: bool,
}

impl Loaded {
    /// CTAs that are on an SM at once, with so much shared memory each.
    pub(crate) fn ctas_per_sm(&self, smem_bytes: u32) -> u32 {
        let by_smem = SM_SMEM_BYTES / (smem_bytes + SYSTEM_SMEM_BYTES);
        let by_threads = SM_THREADS / self.kernel.threads().max(1);
        // Its registers are chosen for so many.
        by_smem.min(by_threads).min(self.kernel.ctas_per_sm)
    }
}

/// A loaded module.
pub(crate) struct Module {
    pub(crate) kernel: Arc<Loaded>,
    /// The handle of its kernel, once somebody has asked for it.
    pub(crate) function: Option<usize>,
}

/// A kernel as its handle shows it.
pub(crate) struct Function {
    pub(crate) kernel: Arc<Loaded>,
    /// The most dynamic shared memory that a launch may have.
    pub(crate) most_smem_bytes: u32,
}

/// The environment variable that lists files with kernels in their text form, separated as in
/// `PATH`. A folder in the list has the file `NAME.kernel` for each of its kernels.
const FILES: &str = "PGEMM_EMULATED_KERNELS";

/// All kernels that were ever loaded, by their PTX.
#[derive(Default)]
pub(crate) struct Kernels(HashMap<String, Arc<Loaded>>);

impl Kernels {
    /// The kernel of a PTX module, and whether it is new.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn of(&mut self, ptx: &str) -> Result<(Arc<Loaded>, bool), String> {
        // Comments at the end of the text make texts different for drivers that cache code.
        let mut lines = ptx.trim_end();
        while let Some((before, last)) = lines.rsplit_once('\n')
            && last.starts_with("//")
        {
            lines = before.trim_end();
        }
        let is_new = !self.0.contains_key(ptx);
        if let Some(found) = self.0.get(lines) {
            let found = found.clone();
            self.0.insert(ptx.to_owned(), found.clone());
            return Ok((found, is_new));
        }
        let name = entry(lines).ok_or("line 1: there is no `.visible .entry`")?;
        let kernel = match by_name(name) {
            Some(kernel) => kernel,
            None => in_files(name, listed_files())?,
        };
        let expected = pgemm_ptx::emit(&kernel.kernel).map_err(|error| error.to_string())?;
        let expected = expected.trim_end();
        if expected != lines {
            let differs = |(found, wanted): &(&str, &str)| found != wanted;
            let pairs = lines.lines().zip(expected.lines());
            let line = 1 + pairs.take_while(|pair| !differs(pair)).count();
            return Err(format!("line {line} is not that of the kernel {name}"));
        }
        let kernel = Arc::new(kernel);
        self.0.insert(lines.to_owned(), kernel.clone());
        self.0.insert(ptx.to_owned(), kernel.clone());
        Ok((kernel, is_new))
    }
}

/// The name of the entry of a PTX module.
fn entry(ptx: &str) -> Option<&str> {
    let (_, after) = ptx.split_once(".visible .entry ")?;
    Some(after.split_once('(')?.0)
}

/// The files that the environment lists now.
fn listed_files() -> Vec<PathBuf> {
    env::var_os(FILES).map_or_else(Vec::new, |paths| env::split_paths(&paths).collect())
}

/// The kernel of this name in one of the files.
///
/// # Errors
/// None has it, or a file cannot be used.
fn in_files(name: &str, files: Vec<PathBuf>) -> Result<Loaded, String> {
    for mut path in files {
        if path.is_dir() {
            path = path.join(format!("{name}.kernel"));
            if !path.exists() {
                continue;
            }
        }
        let kernel =
            in_file(&path).map_err(|error| format!("{FILES}: {}: {error}", path.display()))?;
        if kernel.name == name {
            return Ok(Loaded { kernel, resident: false });
        }
    }
    Err(format!("no kernel has the name {name}: list the file of its text form in {FILES}"))
}

fn in_file(path: &Path) -> Result<Kernel, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let kernel = pgemm_ir::text::parse(&text).map_err(|error| error.to_string())?;
    pgemm_ir::optimise(kernel).map_err(|error| error.to_string())
}

/// The kernel of the library whose entry has this name.
fn by_name(name: &str) -> Option<Loaded> {
    let launched = |kernel| Some(Loaded { kernel, resident: false });
    if let Some(parts) = name.strip_prefix("gemm_") {
        let parts: Vec<&str> = parts.split('_').collect();
        return spec(&parts, name);
    }
    if let Some(spec) = RepackSpec::all().find(|spec| spec.name() == name) {
        return launched(RepackKernel::build(spec).ok()?.kernel);
    }
    if let Some(element) = name.strip_prefix("arithmetic_") {
        return launched(ArithmeticProbe::build(element.parse().ok()?).ok()?.kernel);
    }
    if let Some(parts) = name.strip_prefix("probe_") {
        let (parts, checksums) = match parts.strip_suffix("_sums") {
            Some(parts) => (parts, true),
            None => (parts, false),
        };
        let (box_bytes, stages) = parts.split_once("_s")?;
        let (box_bytes, stages) = (box_bytes.parse().ok()?, stages.parse().ok()?);
        return launched(
            ProbeKernel::build(ProbeSpec { box_bytes, stages, checksums }).ok()?.kernel,
        );
    }
    match name {
        "empty" => launched(empty_kernel().ok()?),
        "loads" => launched(LoadProbe::build().ok()?.kernel),
        _ => None,
    }
}

/// The kernel of a spec, by the parts of its entry's name. That has `_` in place of each `-` and
/// `.`, so the marks that can be there are tried.
fn spec(parts: &[&str], entry: &str) -> Option<Loaded> {
    let mut names = vec![String::new()];
    for (index, part) in parts.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| parts[before]);
        // The operands may have two types, and an epilogue has names of its own.
        let in_epilogue = parts[..index].iter().skip(4).any(|part| part.starts_with('e'));
        let marks: &[&str] = match before {
            None => &[""],
            Some("gated" | "threads") => &["_"],
            Some(_) if in_epilogue => &["-", "_", "."],
            Some(_) if index == 1 => &["-", "_"],
            Some(_) => &["-"],
        };
        let extended = names.iter().flat_map(|name| marks.iter().map(move |mark| (name, mark)));
        names = extended.map(|(name, mark)| format!("{name}{mark}{part}")).collect();
    }
    let built = names.into_iter().filter_map(|name| {
        let spec: Spec = name.parse().ok()?;
        let kernel = GemmKernel::build(&spec).ok()?.kernel;
        Some(Loaded { kernel, resident: spec.is_resident() })
    });
    built.into_iter().find(|loaded| loaded.kernel.name == entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(kernel: &Kernel) -> String {
        pgemm_ptx::emit(kernel).unwrap()
    }

    #[test]
    fn kernels_are_found_by_the_names_of_their_entries() {
        let specs = [
            "bf16-kn-bf16-64x64x64-s4-w1-c1x1",
            "e4m3_e5m2-kk-f32-64x64x128-s4-w1-c1x1-p128",
            "bf16-kk-bf16-128x64x64-s4-w2-c1x1-gated_n-esilu",
            "bf16-kk-bf16-64x64x64-s4-w1-c2x1-ebias_n.silu",
            "bf16-kk-bf16-64x64x64-s4-w1-c1x1-threads_ab-erelu",
            "bf16-mk-bf16-32x24x32-s0-direct1x4",
            "tf32x3-kk-f32-64x64x32-s3-w1-c1x1",
            "f64-kn-f64-64x64x16-s4-w2x2-k8",
        ];
        let mut kernels = Kernels::default();
        for name in specs {
            let spec: Spec = name.parse().unwrap();
            let kernel = GemmKernel::build(&spec).unwrap().kernel;
            let (found, is_new) = kernels.of(&emitted(&kernel)).unwrap();
            assert!(found.kernel == kernel && !found.resident && is_new, "{name}");
        }
        for spec in RepackSpec::all() {
            let kernel = RepackKernel::build(spec).unwrap().kernel;
            assert!(kernels.of(&emitted(&kernel)).unwrap().0.kernel == kernel, "{}", spec.name());
        }
        let probe = ProbeSpec { box_bytes: 4096, stages: 8, checksums: true };
        let others = [
            empty_kernel().unwrap(),
            LoadProbe::build().unwrap().kernel,
            ProbeKernel::build(probe).unwrap().kernel,
            ProbeKernel::build(ProbeSpec { checksums: false, ..probe }).unwrap().kernel,
            ArithmeticProbe::build(pgemm_ir::Element::Bf16).unwrap().kernel,
        ];
        for kernel in others {
            assert!(kernels.of(&emitted(&kernel)).unwrap().0.kernel == kernel, "{}", kernel.name);
        }
    }

    #[test]
    fn other_kernels_are_found_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.kernel");
        let mut kernel = empty_kernel().unwrap();
        kernel.name = "nothing".to_owned();
        let text = pgemm_ir::text::to_text(&kernel, pgemm_ir::text::TextOptions::default());
        fs::write(&path, text).unwrap();
        let found = in_files("nothing", vec![path.clone()]).unwrap();
        assert!(found.kernel == kernel && !found.resident);
        assert!(in_files("other", vec![path.clone()]).unwrap_err().contains(FILES));
        assert!(in_files("other", vec![]).is_err());
        fs::write(&path, "kernel").unwrap();
        let damaged = in_files("nothing", vec![path]).unwrap_err();
        assert!(damaged.contains("empty.kernel: 1:7: "), "{damaged}");
    }

    #[test]
    fn other_code_is_refused() {
        let text = emitted(&empty_kernel().unwrap());
        let mut kernels = Kernels::default();
        let refused = |kernels: &mut Kernels, text: &str| kernels.of(text).unwrap_err();
        assert!(refused(&mut kernels, ".version 8.3\n").contains("line 1"));
        let other = refused(&mut kernels, &text.replace("empty", "full"));
        assert!(other.contains("no kernel has the name full"), "{other}");
        let changed = refused(&mut kernels, &text.replace("ret;", "exit;"));
        assert!(changed.starts_with("line ") && changed.ends_with("kernel empty"), "{changed}");
        let longer = refused(&mut kernels, &format!("{text}.visible .entry more()\n"));
        assert!(longer.ends_with("kernel empty"), "{longer}");
        // A comment makes another text of the same code.
        assert!(kernels.of(&text).unwrap().1);
        assert!(!kernels.of(&text).unwrap().1);
        assert!(kernels.of(&format!("{text}\n// 1.2\n")).unwrap().1);
    }
}
