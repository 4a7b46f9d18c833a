//! Parsers of files.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use persistent_gemm::cache::{CacheKey, DEFAULT_MAX_BYTES, JitCache, Outcome};
use persistent_gemm::driver::{DeviceProperties, DriverVersion};
use persistent_gemm::language::text;
use persistent_gemm::program::Program;
use persistent_gemm::tune::{Platform, ProblemKey, Results, TuneOptions, TuneResult};
use persistent_gemm::{Choice, Config, Dtype, Major, Problem};
use pgemm_bench::atlas::AtlasFile;
use pgemm_bench::{Collection, Report, RooflineReport};
use pgemm_cubins::{Compression, Group, Pack};
use pgemm_kernels::{ProbeKernel, ProbeSpec, RepackKernel, RepackSpec, empty_kernel};
use pgemm_ptx::ResourceReport;

/// A folder for the input, in memory where the operating system has such a folder.
pub(super) static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
});

/// Writes the input to a file of this name.
pub(super) fn file(name: &str, input: &[u8]) -> PathBuf {
    let path = FOLDER.path().join(name);
    fs::write(&path, input).unwrap();
    path
}

pub(super) fn tuned(input: &[u8]) -> bool {
    Results::read(&file("tuned.json", input)).is_ok()
}

/// Results of the tuner for one problem.
pub(super) fn tuned_results() -> Vec<Vec<u8>> {
    let platform = Platform {
        device: "NVIDIA H200".into(),
        uuid: "GPU-00000000-0000-0000-0000-000000000000".into(),
        sm_count: 132,
        cuda: "13.0".into(),
        driver: None,
    };
    let mut results = Results::new(platform);
    let problem = Problem::new(512, 768, 256, Major::K, Major::K);
    let choice = Choice::plain("bf16-kk-bf16-128x128x64-s6-w2-c2x1".parse().unwrap());
    results.problems.push(TuneResult {
        key: ProblemKey::of(&problem, &Config::new(Dtype::Bf16)),
        date: "2026-11-20T12:00:00Z".to_owned(),
        options: TuneOptions::default(),
        chosen: choice,
        heuristic: choice,
        finalist: None,
        trials: vec![],
    });
    let path = FOLDER.path().join("made.json");
    results.write(&path).unwrap();
    vec![fs::read(path).unwrap()]
}

pub(super) fn atlas(input: &[u8]) -> bool {
    AtlasFile::read(&file("atlas.jsonl", input)).is_ok()
}

/// All other files of results.
pub(super) fn results(input: &[u8]) -> bool {
    let path = file("results.jsonl", input);
    let rows = Collection::read([&path], |_| true);
    let others = [Report::read(&path).is_ok(), RooflineReport::read(&path).is_ok()];
    rows.is_ok() || others.contains(&true)
}

/// A pack, and all of its kernels.
pub(super) fn pack(input: &[u8]) -> bool {
    let Ok(pack) = Pack::read(input.to_vec()) else { return false };
    let names: Vec<String> = pack.names().map(str::to_owned).collect();
    let kernels = names.iter().filter(|name| pack.cubin(name).is_some_and(|cubin| cubin.is_ok()));
    kernels.count() == names.len() && !names.is_empty()
}

/// Bytes of a pack before the length of its index: magic and format.
const BEFORE_LENGTH: usize = 12;

/// A pack whose index has the right checksum, whatever it says.
pub(super) fn pack_index(input: &[u8]) -> bool {
    let mut input = input.to_vec();
    let sum = BEFORE_LENGTH + 4;
    let index = sum + blake3::OUT_LEN;
    let Some(length) = input.get(BEFORE_LENGTH..sum) else { return pack(&input) };
    let length = u32::from_le_bytes(length.try_into().unwrap_or_default()) as usize;
    if let Some(end) = index.checked_add(length).filter(|end| *end <= input.len()) {
        let hash = blake3::hash(&input[index..end]);
        input[sum..index].copy_from_slice(hash.as_bytes());
    }
    pack(&input)
}

/// Small packs of both kinds of compression.
pub(super) fn packs() -> Vec<Vec<u8>> {
    let cubin = |seed: u8| (0..900u32).map(|at| ((at * at) >> 4) as u8 ^ seed).collect::<Vec<u8>>();
    let kernels = [("a".to_owned(), cubin(1)), ("b".to_owned(), cubin(2))];
    let others = [("c".to_owned(), cubin(3))];
    let pack = |compression| {
        let groups =
            [&kernels[..], &others[..]].map(|kernels| Group { compression, ..Group::new(kernels) });
        pgemm_cubins::write(&groups, "generator", "ptxas 12.9", b"notes").unwrap()
    };
    vec![pack(Compression::Zstandard), pack(Compression::Lzma2)]
}

fn cache_key() -> CacheKey {
    let device = DeviceProperties {
        ordinal: 0,
        name: "NVIDIA H200".into(),
        uuid: [0; 16],
        compute_capability: (9, 0),
        sm_count: 132,
        l2_bytes: 60 << 20,
        shared_memory_per_cta_bytes: 232_448,
        memory_bytes: 1 << 37,
        memory_mb_per_second: 4_916_736,
        driver_version: DriverVersion { major: 13, minor: 0 },
    };
    CacheKey::new("kernel", "// ptx", &device)
}

/// A cache with one entry, its path and its bytes.
static CACHE: LazyLock<(JitCache, PathBuf, Vec<u8>)> = LazyLock::new(|| {
    let folder = FOLDER.path().join("cache");
    let cache = JitCache::new(folder.clone(), DEFAULT_MAX_BYTES);
    look_up(&cache);
    let entry = only_file(&folder);
    let bytes = fs::read(&entry).unwrap();
    (cache, entry, bytes)
});

fn look_up(cache: &JitCache) -> Outcome {
    let report =
        || ResourceReport::parse("Used 168 registers, used 1 barriers\n(C7510) Potential.");
    let found = cache.get_or_build::<Infallible>(&cache_key(), || Ok(report()));
    found.unwrap_or_else(|never| match never {}).1
}

fn only_file(folder: &Path) -> PathBuf {
    fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
}

/// An entry with the right checksum, whatever its report says.
pub(super) fn cache(input: &[u8]) -> bool {
    let (cache, path, entry) = &*CACHE;
    let fixed = payload_start(entry) - blake3::OUT_LEN - 8;
    let mut bytes = entry[..fixed].to_vec();
    bytes.extend((input.len() as u64).to_le_bytes());
    let sum = *blake3::Hasher::new().update(&bytes).update(input).finalize().as_bytes();
    bytes.extend(sum);
    bytes.extend(input);
    fs::write(path, bytes).unwrap();
    look_up(cache) == Outcome::Hit
}

/// Where the report of an entry begins: it is JSON, and nothing before it is.
fn payload_start(entry: &[u8]) -> usize {
    let json =
        |start: &usize| serde_json::from_slice::<serde_json::Value>(&entry[*start..]).is_ok();
    (0..entry.len()).find(json).unwrap()
}

/// The report of a true entry.
pub(super) fn cache_entries() -> Vec<Vec<u8>> {
    let entry = &CACHE.2;
    vec![entry[payload_start(entry)..].to_vec()]
}

/// A kernel in its text form. What is accepted has a text of the same meaning.
pub(super) fn program(input: &[u8]) -> bool {
    let Ok(program) = Program::load_file(file("a.kernel", input)) else { return false };
    assert_eq!(text::parse(&program.to_text()).as_ref(), Ok(program.kernel()));
    let _ = (program.explain(), program.ptx());
    true
}

/// Some of the library's smaller kernels.
pub(super) fn programs() -> Vec<Vec<u8>> {
    let probe = ProbeSpec { box_bytes: 4096, stages: 4, checksums: true };
    let repack = RepackSpec::all().next().unwrap();
    let kernels = [
        empty_kernel().unwrap(),
        ProbeKernel::build(probe).unwrap().kernel,
        RepackKernel::build(repack).unwrap().kernel,
    ];
    let options = text::TextOptions { locations: false };
    kernels.iter().map(|kernel| text::to_text(kernel, options).into_bytes()).collect()
}
