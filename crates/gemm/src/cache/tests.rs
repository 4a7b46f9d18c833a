//! The cache against damage, other processes and folders that cannot be used.

use std::convert::Infallible;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::*;
use crate::driver::DriverVersion;

fn device() -> DeviceProperties {
    DeviceProperties {
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
    }
}

fn key(name: &str) -> CacheKey {
    CacheKey::new(name, "// ptx", &device())
}

fn report(text: &[u8]) -> ResourceReport {
    let text: String = text.iter().map(|&byte| char::from(byte % 64 + 32)).collect();
    ResourceReport::parse(&format!("Used 168 registers, used 1 barriers\n(C7510) {text}."))
}

fn get(cache: &JitCache, key: &CacheKey, bytes: &[u8]) -> Outcome {
    let (found, outcome) = cache.get_or_build::<Infallible>(key, || Ok(report(bytes))).unwrap();
    assert_eq!(found, report(bytes));
    outcome
}

fn entry_path(cache: &JitCache, key: &CacheKey) -> PathBuf {
    cache.directory.as_ref().unwrap().join(key.file_name())
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_report_is_built_once() {
    let directory = tempfile::tempdir().unwrap();
    // A folder that does not exist yet.
    let cache = JitCache::new(directory.path().join("a/b"), DEFAULT_MAX_BYTES);
    assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Miss);
    assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Hit);
    // Another process: nothing but the folder is shared.
    let other = JitCache::new(directory.path().join("a/b"), DEFAULT_MAX_BYTES);
    let (found, outcome) =
        other.get_or_build::<Infallible>(&key("gemm"), || panic!("it is in the cache")).unwrap();
    assert_eq!((&found, outcome), (&report(b"image"), Outcome::Hit));
    assert_eq!(found.registers, Some(168));
    let stats = cache.stats().unwrap();
    assert_eq!((stats.entries, stats.hits, stats.builds), (1, 1, 1));
    assert_eq!(stats.bytes, fs::metadata(entry_path(&cache, &key("gemm"))).unwrap().len());
}

#[test]
fn failed_builds_are_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let cache = JitCache::new(directory.path().into(), DEFAULT_MAX_BYTES);
    let failure = cache.get_or_build(&key("gemm"), || Err("does not compile")).unwrap_err();
    assert_eq!(failure, "does not compile");
    assert_eq!(files(directory.path()), 0);
    assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Miss);
}

#[test]
fn keys_tell_apart_whatever_changes_a_report() {
    let other = |change: fn(&mut DeviceProperties)| {
        let mut device = device();
        change(&mut device);
        CacheKey::new("gemm", "ptx", &device)
    };
    let keys = [
        CacheKey::new("gemm", "ptx", &device()),
        CacheKey::new("gemm2", "ptx", &device()),
        CacheKey::new("gemm", "ptx2", &device()),
        CacheKey::new("", "gemmptx", &device()),
        other(|device| device.name = "NVIDIA H100".into()),
        other(|device| device.compute_capability = (9, 1)),
        other(|device| device.driver_version.minor = 1),
        other(|device| device.driver_version.major = 12),
    ];
    for (index, a) in keys.iter().enumerate() {
        for b in keys.get(index + 1..).unwrap() {
            assert_ne!(a, b);
        }
    }
    // What does not change a report does not change its key.
    assert_eq!(keys[0], other(|device| device.ordinal = 3));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let key = key("gemm");
    let whole = encode(&key, &report(b"image")).unwrap();
    assert_eq!(decode(&key, &whole).unwrap(), report(b"image"));
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&key, &damaged).is_err(), "bit {bit} of {}", whole.len() * 8);
    }
    for bytes in 0..whole.len() {
        assert!(decode(&key, &whole[..bytes]).is_err(), "cut to {bytes}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(matches!(decode(&key, &longer), Err(CorruptedEntry::Length)));
    assert!(matches!(decode(&CacheKey([7; 32]), &whole), Err(CorruptedEntry::Key)));
}

#[test]
fn a_payload_that_is_no_report_under_a_good_checksum_is_noticed() {
    let key = key("gemm");
    let whole = encode(&key, &report(b"image")).unwrap();
    let (header, rest) = whole.split_at(HEADER_BYTES);
    let mut payload = rest[CHECKSUM_BYTES..].to_vec();
    payload[0] = b'[';
    let lying = [header, &checksum(header, &payload), &payload].concat();
    assert!(decode(&key, &lying).is_err());
}

#[test]
fn damaged_entries_are_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let cache = JitCache::new(directory.path().into(), DEFAULT_MAX_BYTES);
    let key = key("gemm");
    assert_eq!(get(&cache, &key, b"image"), Outcome::Miss);
    let path = entry_path(&cache, &key);
    let whole = fs::read(&path).unwrap();
    // A byte of the magic, format, key, length, checksum, payload.
    let regions = [0, 8, 12, 12 + KEY_BYTES, HEADER_BYTES, HEADER_BYTES + CHECKSUM_BYTES];
    let late = [HEADER_BYTES + CHECKSUM_BYTES + 10, whole.len() - 1];
    for byte in regions.into_iter().chain(late) {
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x10;
        fs::write(&path, damaged).unwrap();
        assert_eq!(get(&cache, &key, b"image"), Outcome::Rebuilt, "byte {byte}");
        assert_eq!(get(&cache, &key, b"image"), Outcome::Hit, "byte {byte}");
    }
    for bytes in [0, 7, HEADER_BYTES, whole.len() - 1] {
        fs::write(&path, &whole[..bytes]).unwrap();
        assert_eq!(get(&cache, &key, b"image"), Outcome::Rebuilt, "cut to {bytes}");
        assert_eq!(get(&cache, &key, b"image"), Outcome::Hit, "cut to {bytes}");
    }
}

#[test]
fn an_entry_that_is_a_folder_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let cache = JitCache::new(directory.path().into(), DEFAULT_MAX_BYTES);
    fs::create_dir(entry_path(&cache, &key("gemm"))).unwrap();
    assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Disabled);
}

#[test]
fn folders_that_cannot_be_written_are_done_without() {
    let directory = tempfile::tempdir().unwrap();
    // A path through a file cannot be created even by root, whom permission bits would not stop.
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let cache = JitCache::new(file.join("cache"), DEFAULT_MAX_BYTES);
    for _ in 0..2 {
        assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Disabled);
    }
    assert!(cache.warned.load(Ordering::Relaxed));
    assert!(matches!(cache.stats(), Err(Error::Io { .. })));

    let off = JitCache::disabled();
    assert_eq!(get(&off, &key("gemm"), b"image"), Outcome::Disabled);
    assert!(!off.warned.load(Ordering::Relaxed));
    let stats = off.stats().unwrap();
    assert_eq!((stats.directory, stats.entries, stats.builds), (None, 0, 1));
    assert_eq!(off.clear().unwrap(), 0);
}

#[test]
fn the_least_recently_used_entry_goes_first() {
    let directory = tempfile::tempdir().unwrap();
    let image = vec![7u8; 10_000];
    let entry_bytes = encode(&key("0"), &report(&image)).unwrap().len() as u64;
    let cache = JitCache::new(directory.path().into(), 3 * entry_bytes);
    let keys: Vec<_> = (0..5).map(|index| key(&index.to_string())).collect();
    for (key, age) in keys.iter().zip([300, 200, 100]) {
        assert_eq!(get(&cache, key, &image), Outcome::Miss);
        let file = File::options().write(true).open(entry_path(&cache, key)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    // A hit makes the oldest the youngest.
    assert_eq!(get(&cache, &keys[0], &image), Outcome::Hit);
    assert_eq!(get(&cache, &keys[3], &image), Outcome::Miss);
    assert_eq!(cache.stats().unwrap().entries, 3);
    assert!(!entry_path(&cache, &keys[1]).exists());
    assert_eq!(get(&cache, &keys[0], &image), Outcome::Hit);
    assert_eq!(get(&cache, &keys[2], &image), Outcome::Hit);
    // One that alone is too large pushes nothing out.
    assert_eq!(get(&cache, &keys[4], &vec![1u8; 40_000]), Outcome::Disabled);
    assert_eq!(cache.stats().unwrap().entries, 3);
    assert_eq!(cache.clear().unwrap(), 3);
    assert_eq!(cache.stats().unwrap().bytes, 0);
}

#[test]
fn files_of_others_in_a_shared_folder_stay() {
    let directory = tempfile::tempdir().unwrap();
    let cache = JitCache::new(directory.path().into(), DEFAULT_MAX_BYTES);
    let foreign = ["notes.txt", "engine.jit", ".writing-old", ".pgemm-notes"];
    for name in foreign {
        let file = File::create(directory.path().join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let folder = format!("{}.{EXTENSION}", "0".repeat(64));
    fs::create_dir(directory.path().join(&folder)).unwrap();
    assert_eq!(cache.stats().unwrap().entries, 0);
    assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Miss);
    assert_eq!(cache.stats().unwrap().entries, 1);
    assert_eq!(cache.clear().unwrap(), 1);
    for name in foreign.into_iter().chain([folder.as_str()]) {
        assert!(directory.path().join(name).exists(), "{name}");
    }
    assert_eq!(files(directory.path()), foreign.len() + 1);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_an_entry_is_replaced() {
    use std::process::Command;
    let directory = tempfile::tempdir().unwrap();
    let cache = JitCache::new(directory.path().into(), DEFAULT_MAX_BYTES);
    let path = entry_path(&cache, &key("gemm"));
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Rebuilt);
    assert_eq!(get(&cache, &key("gemm"), b"image"), Outcome::Hit);
}

#[test]
fn threads_share_a_folder() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 40;
    let directory = tempfile::tempdir().unwrap();
    let images: Vec<_> = (0..4u8).map(|value| vec![value; 5000 + usize::from(value)]).collect();
    // Room for about half of them, so that entries vanish while others read; and one thread damages
    // what it finds.
    let cache_of = || JitCache::new(directory.path().into(), 12_000);
    let start = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, images, cache_of) = (&start, &images, &cache_of);
            scope.spawn(move || {
                let cache = cache_of();
                start.wait();
                for round in 0..ROUNDS {
                    let which = (thread + round) % images.len();
                    get(&cache, &key(&which.to_string()), &images[which]);
                }
                let stats = cache.stats().unwrap();
                assert_eq!(stats.hits + stats.builds, ROUNDS as u64);
            });
        }
        scope.spawn(|| {
            let cache = cache_of();
            start.wait();
            for round in 0..ROUNDS {
                let path = entry_path(&cache, &key(&(round % images.len()).to_string()));
                if let Ok(file) = File::options().write(true).open(path) {
                    let _ = file.set_len(1000);
                }
                thread::yield_now();
            }
        });
    });
    assert!(cache_of().stats().unwrap().bytes <= 12_000);
    let temporary = fs::read_dir(directory.path())
        .unwrap()
        .filter(|file| file.as_ref().unwrap().path().extension().is_none())
        .count();
    assert_eq!(temporary, 0);
}

#[cfg(unix)]
#[test]
fn the_folder_is_for_this_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("a/b");
    create_private(&own).unwrap();
    for made in [own.parent().unwrap(), &own] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700, "{made:?}");
    }
}
