//! [`Picks`]: the tuned choices of all files that are valid for a device. [`Gemm`](crate::Gemm)
//! looks up each problem whose kernel is left to the planner. Unusable files are ignored, with one
//! warning.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pgemm_plan::{ProblemKey, TunedChoice, TunedChoices};

use super::results::{Platform, Results};
use crate::cache::DIRECTORY_VARIABLE;
use crate::driver::DeviceProperties;
use crate::error::Error;

/// Environment variable with a results file, or a folder of them, to use instead of
/// [`install_folder`]; `off` for none.
pub const VARIABLE: &str = "PGEMM_AUTOTUNE";

/// The choices that hold on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picks(HashMap<ProblemKey, TunedChoice>);

/// A file or folder that is not used.
#[derive(Debug)]
pub struct Ignored {
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    pub why: Error,
}

impl Picks {
    /// Loads the choices in `source`, a file or a folder of `.json` files, that are valid for the
    /// platform `here`. Of several choices for one problem, the latest counts. Also returns the
    /// ignored files with the reasons.
    pub fn load(source: &Path, here: &Platform) -> (Picks, Vec<Ignored>) {
        let mut picks = Picks::default();
        let mut ignored = Vec::new();
        let files = match files(source) {
            Ok(files) => files,
            Err(error) => {
                let path = source.to_owned();
                let why = Error::Io { path: path.clone(), source: error };
                return (picks, vec![Ignored { path, why }]);
            }
        };
        for path in files {
            match Results::read_for(&path, here) {
                Ok(results) => picks.add(results),
                Err(why) => ignored.push(Ignored { path, why }),
            }
        }
        (picks, ignored)
    }

    /// The choices for a device from the location in the environment variable [`VARIABLE`], or from
    /// [`install_folder`]. They are read once per process and device. One warning then lists the
    /// ignored files.
    pub fn from_environment(device: &DeviceProperties) -> Arc<Picks> {
        match source() {
            Some(source) => Picks::shared(source, device),
            None => Arc::default(),
        }
    }

    /// The choices in `source`, read by the first call of this process.
    fn shared(source: PathBuf, device: &DeviceProperties) -> Arc<Picks> {
        type Read = HashMap<(PathBuf, [u8; 16]), Arc<Picks>>;
        static READ: Mutex<Option<Read>> = Mutex::new(None);
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        let known = read.get_or_insert_default().entry((source, device.uuid));
        known
            .or_insert_with_key(|(source, _)| {
                let (picks, ignored) = Picks::load(source, &Platform::of(device));
                if !ignored.is_empty() {
                    let why: Vec<_> = ignored.iter().map(|file| file.why.to_string()).collect();
                    tracing::warn!("ignoring autotune results: {}", why.join(" – "));
                }
                Arc::new(picks)
            })
            .clone()
    }

    /// The choice for a problem.
    pub fn get(&self, key: &ProblemKey) -> Option<&TunedChoice> {
        self.0.get(key)
    }

    /// The number of problems that have a choice.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no problem has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds results. Of several choices for one problem, the latest counts.
    pub(crate) fn add(&mut self, results: Results) {
        for result in results.problems {
            let later = self.0.get(&result.key).is_none_or(|known| known.date <= result.date);
            if later {
                let tuned = TunedChoice { choice: result.chosen, date: result.date };
                self.0.insert(result.key, tuned);
            }
        }
    }
}

impl TunedChoices for Picks {
    fn tuned(&self, key: &ProblemKey) -> Option<&TunedChoice> {
        self.get(key)
    }
}

/// The default folder of results that [`Gemm`](crate::Gemm) reads: `autotune` in the folder of the
/// kernel cache ([`DIRECTORY_VARIABLE`], or `persistent-gemm` in the user's cache folder). `None`
/// if the user has none.
pub fn install_folder() -> Option<PathBuf> {
    let cache = match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => directories::ProjectDirs::from("", "", "persistent-gemm")?.cache_dir().to_owned(),
    };
    Some(cache.join("autotune"))
}

/// The file or folder of the results that [`Gemm`](crate::Gemm) reads: what [`VARIABLE`] names, or
/// [`install_folder`] if it exists.
pub fn source() -> Option<PathBuf> {
    named_or_installed(std::env::var_os(VARIABLE), install_folder())
}

/// The location of results: the value of the variable, or the folder if it exists.
fn named_or_installed(variable: Option<OsString>, folder: Option<PathBuf>) -> Option<PathBuf> {
    match variable {
        Some(value) if value == "off" => None,
        Some(value) if !value.is_empty() => Some(value.into()),
        _ => folder.filter(|folder| folder.exists()),
    }
}

/// The file itself, or the `.json` files of a folder, by name.
///
/// # Errors
/// The file or folder cannot be read.
pub fn files(source: &Path) -> io::Result<Vec<PathBuf>> {
    if !std::fs::metadata(source)?.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(source)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuned::results::tests::{candidate, key, platform, result};
    use crate::{Config, OperandAlignment, Plan};

    fn write(folder: &Path, name: &str, results: &Results) -> PathBuf {
        let path = folder.join(name);
        results.write(&path).unwrap();
        path
    }

    fn results(entries: &[(usize, u32, &str)]) -> Results {
        let mut results = Results::new(platform());
        for &(m, raster_rows, date) in entries {
            results.problems.push(result(key(m), raster_rows, date));
        }
        results
    }

    #[test]
    fn the_variable_comes_before_the_folder() {
        let folder = tempfile::tempdir().unwrap().keep();
        let installed = || Some(folder.clone());
        assert_eq!(named_or_installed(Some("a.json".into()), installed()), Some("a.json".into()));
        assert_eq!(named_or_installed(Some("off".into()), installed()), None);
        assert_eq!(named_or_installed(Some("".into()), installed()), installed());
        assert_eq!(named_or_installed(None, installed()), installed());
        std::fs::remove_dir(&folder).unwrap();
        // Nothing was ever tuned, so there is no warning.
        assert_eq!(named_or_installed(None, installed()), None);
        assert_eq!(named_or_installed(None, None), None);
    }

    #[test]
    fn files_are_read_once_per_process_and_device() {
        let folder = tempfile::tempdir().unwrap();
        let device = |uuid, name: &str| DeviceProperties {
            ordinal: 0,
            name: name.into(),
            uuid: [uuid; 16],
            compute_capability: (9, 0),
            sm_count: 132,
            l2_bytes: 50 << 20,
            shared_memory_per_cta_bytes: 227 << 10,
            memory_bytes: 141 << 30,
            memory_mb_per_second: 4_916_736,
            driver_version: crate::driver::MINIMUM_DRIVER,
        };
        let one = device(1, "NVIDIA H200");
        let here = Results { platform: Platform::of(&one), ..results(&[(512, 3, "2026-11-20")]) };
        let file = write(folder.path(), "a.json", &here);
        let source = || folder.path().to_owned();
        let picks = Picks::shared(source(), &one);
        assert_eq!(picks.get(&key(512)).unwrap().choice, candidate(3));
        std::fs::remove_file(file).unwrap();
        assert!(Arc::ptr_eq(&picks, &Picks::shared(source(), &one)));
        assert!(Picks::shared(source(), &device(2, "NVIDIA H200")).is_empty());
    }

    #[test]
    fn the_latest_of_several_files_counts() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a.json", &results(&[(512, 3, "2026-11-21"), (640, 4, "2026-11-20")]));
        write(folder.path(), "b.json", &results(&[(512, 5, "2026-11-19")]));
        std::fs::write(folder.path().join("notes.txt"), "not results").unwrap();
        let (picks, ignored) = Picks::load(folder.path(), &platform());
        assert!(ignored.is_empty(), "{ignored:?}");
        assert_eq!(picks.len(), 2);
        assert_eq!(picks.get(&key(512)).unwrap().choice, candidate(3));
        assert_eq!(picks.get(&key(640)).unwrap().choice, candidate(4));
        assert_eq!(picks.get(&key(641)), None);
        // A file by its own name.
        let (alone, _) = Picks::load(&folder.path().join("b.json"), &platform());
        assert_eq!(alone.get(&key(512)).unwrap().choice, candidate(5));
    }

    #[test]
    fn foreign_and_damaged_files_are_ignored_say_why_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let good = results(&[(512, 3, "2026-11-20")]);
        write(folder.path(), "good.json", &good);
        let foreign = Results {
            platform: Platform { device: "NVIDIA H100 PCIe".into(), sm_count: 114, ..platform() },
            ..good.clone()
        };
        write(folder.path(), "foreign.json", &foreign);
        let text = serde_json::to_string(&good).unwrap();
        std::fs::write(folder.path().join("half.json"), &text[..text.len() / 2]).unwrap();
        std::fs::create_dir(folder.path().join("folder.json")).unwrap();
        let old = text.replace("\"schema\":4", "\"schema\":2");
        std::fs::write(folder.path().join("old.json"), old).unwrap();

        let (picks, ignored) = Picks::load(folder.path(), &platform());
        assert_eq!(picks.len(), 1);
        let why: Vec<_> = ignored.iter().map(|file| file.why.to_string()).collect();
        assert_eq!(why.len(), 4, "{why:?}");
        assert!(why[0].contains("folder.json"), "{why:?}");
        assert!(why[1].contains("NVIDIA H100 PCIe there, NVIDIA H200 here"), "{why:?}");
        assert!(why[1].contains("SMs: 114 there, 132 here"), "{why:?}");
        assert!(why[2].contains("half.json") && why[2].contains("EOF"), "{why:?}");
        assert!(why[3].contains("schema is 2, this version reads 4"), "{why:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
        let half = std::fs::read_to_string(folder.path().join("half.json")).unwrap();
        assert_eq!(half, text[..text.len() / 2]);

        let (picks, ignored) = Picks::load(&folder.path().join("missing"), &platform());
        assert!(picks.is_empty() && ignored.len() == 1);
    }

    #[test]
    fn a_pick_comes_before_the_heuristic_and_after_every_knob() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a.json", &results(&[(512, 3, "2026-11-20T12:00:00Z")]));
        let (picks, _) = Picks::load(folder.path(), &platform());
        let plans = |m, config: &Config| {
            let problem = key(m).problem();
            let alignment = OperandAlignment::ALIGNED;
            let plans = Plan::candidates_with(&problem, config, 132, &picks, alignment).unwrap();
            plans.collect::<Vec<_>>()
        };
        let free = Config::new(key(512).dtype);
        let tuned = plans(512, &free);
        let heuristic = Plan::candidates(&key(512).problem(), &free, 132).unwrap();
        assert_eq!(tuned[0].spec, candidate(3).spec);
        assert_eq!(tuned[0].raster_rows, 3);
        assert_eq!(tuned[0].why, "tuned on 2026-11-20");
        // The heuristic's kernels follow, in case the driver spoils the tuned kernel.
        assert_eq!(tuned[1..], heuristic);

        assert_eq!(plans(513, &free)[0].why, "by the heuristic");
        let knobs: [fn(&mut Config); 9] = [
            |config| config.tile_m = Some(128),
            |config| config.tile_n = Some(128),
            |config| config.tile_k = Some(64),
            |config| config.cluster = Some(pgemm_kernels::Cluster::NONE),
            |config| config.warps_per_block = Some(12),
            |config| config.prefetch_depth = Some(3),
            |config| config.raster_rows = Some(1),
            |config| config.sms = Some(100),
            |config| config.output = Some(crate::Dtype::F32),
        ];
        for set in knobs {
            let mut config = free.clone();
            set(&mut config);
            let plans = plans(512, &config);
            assert!(!plans[0].why.contains("tuned"), "{config:?}");
        }
        let spec = heuristic[0].spec;
        assert_eq!(plans(512, &Config::for_spec(spec))[0].why, "as asked");
    }
}
