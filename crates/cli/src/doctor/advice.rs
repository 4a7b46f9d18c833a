//! What `pgemm doctor` finds amiss, each with what to do.

use std::path::Path;

use persistent_gemm::driver::DeviceProperties;
use persistent_gemm::{ahead, assembled, behind, cache, packs, tune};

/// The environment variables that the command and the library read.
pub(super) const VARIABLES: [&str; 11] = [
    tune::VARIABLE,
    cache::DIRECTORY_VARIABLE,
    cache::MAX_BYTES_VARIABLE,
    behind::VARIABLE,
    pgemm_bench::CUBLASLT_VARIABLE,
    assembled::VARIABLE,
    "PGEMM_LOG",
    packs::VARIABLE,
    ahead::VARIABLE,
    pgemm_ptx::ptxas::VARIABLE,
    pgemm_bench::atlas::PYTHON_VARIABLE,
];

/// How the names of variables begin that only tests read.
const OF_TESTS: [&str; 9] = [
    "PGEMM_EMULATED_",
    "PGEMM_FUZZ_",
    "PGEMM_MUTANT",
    "PGEMM_REQUIRE_",
    "PGEMM_SEED",
    "PGEMM_SHARD",
    "PGEMM_TEST_",
    "PGEMM_TOOLS",
    "PGEMM_UPDATE_",
];

/// How the names of these variables begin.
pub(super) const PREFIX: &str = "PGEMM_";

/// Less free memory than one part in so many is remarked on.
const LITTLE_MEMORY: u64 = 4;

/// The state of a machine, as far as it calls for advice.
pub(super) struct State<'s> {
    /// Whether the driver's library can be used.
    pub(super) has_driver: bool,
    /// The device, if the driver has one of this ordinal.
    pub(super) device: Option<&'s DeviceProperties>,
    /// Free memory of the device, bytes.
    pub(super) free_bytes: Option<u64>,
    /// Why the kernel cache cannot be used.
    pub(super) cache_error: Option<String>,
    /// Whether kernels are there that were assembled in advance.
    pub(super) has_shipped_kernels: bool,
    /// The environment's variables.
    pub(super) environment: &'s [(String, String)],
    /// The file system's root, below which the device nodes of the driver are.
    pub(super) root: &'s Path,
}

impl State<'_> {
    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.as_str())
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The advice, most important first.
    pub(super) fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        self.of_driver(&mut advice);
        self.of_device(&mut advice);
        self.of_compilation(&mut advice);
        for (name, value) in self.environment {
            let of_tests = OF_TESTS.iter().any(|prefix| name.starts_with(prefix));
            if name.starts_with(PREFIX) && !of_tests && !VARIABLES.contains(&name.as_str()) {
                advice.push(format!(
                    "{name} is set to '{value}', and no variable of this version has that name: \
                     use one of {}",
                    VARIABLES.join(", ")
                ));
            }
        }
        advice
    }

    fn of_driver(&self, advice: &mut Vec<String>) {
        if self.has_driver {
            return;
        }
        let (module, node) =
            (self.exists("proc/driver/nvidia/version"), self.exists("dev/nvidia0"));
        let container = self.exists(".dockerenv") || self.exists("run/.containerenv");
        if module || node {
            advice.push(
                "the kernel module of the NVIDIA driver is loaded, and its library libcuda.so.1 is \
                 not found: install the package of the driver's libraries, or add their folder to \
                 LD_LIBRARY_PATH. In a container, start it with --gpus all and the NVIDIA \
                 Container Toolkit"
                    .to_owned(),
            );
        } else if container {
            advice.push(
                "this is a container without a GPU: start it with --gpus all and the NVIDIA \
                 Container Toolkit"
                    .to_owned(),
            );
        }
    }

    fn of_device(&self, advice: &mut Vec<String>) {
        if let (true, None, Some(devices)) =
            (self.has_driver, self.device, self.variable("CUDA_VISIBLE_DEVICES"))
        {
            advice.push(format!(
                "CUDA_VISIBLE_DEVICES is '{devices}', which hides all other devices: unset it, or \
                 name the device"
            ));
        }
        let Some(device) = self.device else { return };
        if device.name.contains("MIG") {
            advice.push(format!(
                "the device is a MIG slice of {} SMs: kernels with clusters of more CTAs than the \
                 slice holds are not chosen, and those that a program asks for are refused",
                device.sm_count
            ));
        }
        if let Some(free) =
            self.free_bytes.filter(|free| *free < device.memory_bytes / LITTLE_MEMORY)
        {
            advice.push(format!(
                "{} of {} of device memory are free: `nvidia-smi` lists the programs that hold the \
                 rest, which also disturb measurements",
                crate::output::bytes(free),
                crate::output::bytes(device.memory_bytes)
            ));
        }
    }

    fn of_compilation(&self, advice: &mut Vec<String>) {
        if let Some(error) = &self.cache_error {
            advice.push(format!(
                "the kernel cache cannot be used ({error}): set {} to a folder that this user may \
                 write to",
                cache::DIRECTORY_VARIABLE
            ));
        }
        if self.device.is_some() && !self.has_shipped_kernels {
            advice.push(
                "no kernels were assembled in advance, so each is compiled when it is first used, \
                 0.3 s to 1.3 s each: install a release, or compile ahead with `pgemm warm`"
                    .to_owned(),
            );
        }
        if self.variable("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
            advice.push(
                "CUDA_CACHE_DISABLE is set, so every process compiles anew the kernels that were \
                 not assembled in advance: unset it"
                    .to_owned(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use persistent_gemm::driver::DriverVersion;

    use super::*;

    fn device(name: &str) -> DeviceProperties {
        DeviceProperties {
            ordinal: 0,
            name: name.into(),
            uuid: [0; 16],
            compute_capability: (9, 0),
            sm_count: 16,
            l2_bytes: 60 << 20,
            shared_memory_per_cta_bytes: 232_448,
            memory_bytes: 1 << 34,
            memory_mb_per_second: 4_916_736,
            driver_version: DriverVersion { major: 13, minor: 0 },
        }
    }

    fn state<'s>(device: Option<&'s DeviceProperties>, root: &'s Path) -> State<'s> {
        State {
            has_driver: device.is_some(),
            device,
            free_bytes: device.map(|device| device.memory_bytes),
            cache_error: None,
            has_shipped_kernels: true,
            environment: &[],
            root,
        }
    }

    #[test]
    fn a_machine_in_order_needs_no_advice() {
        let root = tempfile::tempdir().unwrap();
        let h200 = device("NVIDIA H200");
        assert_eq!(state(Some(&h200), root.path()).advice(), [""; 0]);
        assert_eq!(state(None, root.path()).advice(), [""; 0]);
        let known: Vec<_> = VARIABLES.map(|name| (name.to_owned(), String::new())).into();
        let known = State { environment: &known, ..state(Some(&h200), root.path()) };
        assert_eq!(known.advice(), [""; 0]);
    }

    #[track_caller]
    fn has_one(state: &State, parts: &[&str]) {
        let advice = state.advice();
        assert_eq!(advice.len(), 1, "{advice:?}");
        for part in parts {
            assert!(advice[0].contains(part), "'{part}' is missing in: {}", advice[0]);
        }
    }

    #[test]
    fn each_failure_has_its_remedy() {
        let root = tempfile::tempdir().unwrap();
        let (h200, slice) = (device("NVIDIA H200"), device("NVIDIA H200 MIG 1g.18gb"));
        let fine = || state(Some(&h200), root.path());
        has_one(&state(Some(&slice), root.path()), &["MIG slice of 16 SMs", "refused"]);
        has_one(&State { free_bytes: Some(1 << 30), ..fine() }, &["1.0 GiB of 16.0 GiB"]);
        has_one(
            &State { cache_error: Some("no room".into()), ..fine() },
            &["no room", "PGEMM_CACHE_DIR"],
        );
        has_one(&State { has_shipped_kernels: false, ..fine() }, &["pgemm warm"]);
        let set = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let disabled = set("CUDA_CACHE_DISABLE", "1");
        has_one(&State { environment: &disabled, ..fine() }, &["compiles anew", "unset it"]);
        let misspelt = set("PGEMM_CACHEDIR", "/x");
        let parts = ["PGEMM_CACHEDIR is set to '/x'", "PGEMM_CACHE_DIR"];
        has_one(&State { environment: &misspelt, ..fine() }, &parts);
        let hidden = set("CUDA_VISIBLE_DEVICES", "7");
        let hidden = State { environment: &hidden, device: None, ..fine() };
        has_one(&hidden, &["CUDA_VISIBLE_DEVICES is '7'"]);

        let nowhere = || state(None, root.path());
        fs::write(root.path().join(".dockerenv"), "").unwrap();
        has_one(&nowhere(), &["container without a GPU", "--gpus all"]);
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/nvidia0"), "").unwrap();
        has_one(&nowhere(), &["libcuda.so.1 is not found", "LD_LIBRARY_PATH"]);
    }

    /// A variable that the sources read and this list lacks would be called unknown.
    #[test]
    fn the_variables_are_those_of_the_sources() {
        let own_use =
            ["PGEMM_STARTED", "PGEMM_STARTUP_CUBIN", "PGEMM_SHIPPED_PACK", "PGEMM_SOURCES"];
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pattern = format!("{}/*/src/**/*.rs", crates.display());
        for path in glob::glob(&pattern).unwrap() {
            let path = path.unwrap();
            // The constants of the C header begin in the same way.
            if path.components().any(|part| part.as_os_str() == "c") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for name in text.split('"').filter(|word| word.starts_with(PREFIX)) {
                let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
                let of_tests = OF_TESTS.iter().any(|prefix| name.starts_with(prefix));
                // The misspelt name above stands for the user's own.
                if is_name && ![PREFIX, "PGEMM_CACHEDIR"].contains(&name) && !of_tests {
                    let is_known = VARIABLES.contains(&name) || own_use.contains(&name);
                    assert!(is_known, "{name} in {}", path.display());
                }
            }
        }
    }
}
