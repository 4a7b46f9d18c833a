//! Host memory: refused before, rather than killed by the operating system in the middle.

use persistent_gemm::measure::Elements;
use persistent_gemm::{Dtype, Problem};

use crate::usage::UsageError;

/// Bytes that new allocations may take without swapping, or `None` if the operating system doesn't
/// say.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Bytes of A, B, C and D of a whole batch, and of the reference. The reference needs 16 bytes per
/// element of D, 24 with a C, and 8 more if A and B are f64.
fn needed(problem: &Problem, elements: Elements, verify: bool) -> u64 {
    let Problem { m, n, k, batch, .. } = *problem;
    let product = |matrices: usize, rows: usize, columns: usize, bytes: u32| {
        let elements = (rows as u64).saturating_mul(columns as u64);
        elements.saturating_mul(matrices as u64).saturating_mul(u64::from(bytes))
    };
    // The matrices of a batch are copied once more, into one allocation.
    let of = |stride| if batch.is_one() { 1 } else { batch.matrices(stride).saturating_mul(2) };
    let reads_c = problem.beta != 0.0;
    let Elements { a, b, d, .. } = elements;
    let mut bytes = product(of(batch.a), m, k, a.bytes());
    bytes = bytes.saturating_add(product(of(batch.b), k, n, b.bytes()));
    bytes = bytes.saturating_add(product(of(batch.d), m, n, d.bytes()));
    if reads_c {
        bytes = bytes.saturating_add(product(of(batch.c), m, n, d.bytes()));
    }
    if verify {
        let doubles = [a, b] == [Dtype::F64; 2];
        let of_element = if reads_c { 24 } else { 16 } + if doubles { 8 } else { 0 };
        // References are computed one after another.
        bytes = bytes.saturating_add(product(1, m, n, of_element));
    }
    bytes
}

/// Rejects random matrices that do not fit the available memory.
///
/// # Errors
/// [`UsageError::HostMemory`].
pub fn check(problem: &Problem, elements: Elements, verify: bool) -> Result<(), UsageError> {
    match (needed(problem, elements, verify), available()) {
        (needed, Some(available)) if needed > available => {
            let Problem { m, n, k, .. } = *problem;
            Err(UsageError::HostMemory { m, n, k, needed, available, verify })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use persistent_gemm::Major;

    use super::*;

    #[test]
    fn the_reference_and_c_count() {
        let problem = Problem::new(10, 20, 30, Major::K, Major::N);
        assert_eq!(
            needed(&problem, Elements::new(Dtype::Bf16, Dtype::F32), false),
            600 + 1200 + 800
        );
        assert_eq!(needed(&problem, Elements::new(Dtype::Bf16, Dtype::F32), true), 2600 + 3200);
        let problem = problem.with_beta(1.0);
        assert_eq!(
            needed(&problem, Elements::new(Dtype::Bf16, Dtype::Bf16), true),
            1800 + 800 + 4800
        );
    }

    #[test]
    fn more_than_any_machine_has_is_refused_and_little_is_not() {
        let problem = |size| Problem::new(size, size, size, Major::K, Major::N);
        let f16 = Elements::new(Dtype::F16, Dtype::F16);
        assert!(check(&problem(16), f16, true).is_ok());
        if available().is_some() {
            let error = check(&problem(1 << 24), f16, true).unwrap_err();
            assert!(error.to_string().contains("leave --verify out"), "{error}");
        }
    }
}
