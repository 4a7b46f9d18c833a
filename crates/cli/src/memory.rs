//! Host memory: refused before, rather than killed by the operating system in the middle.

use persistent_gemm::measure::Elements;
use persistent_gemm::{Dtype, Problem};
use pgemm_files::memory::available;

use crate::usage::UsageError;

/// What else than the product takes memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Purpose {
    /// D is compared with a reference.
    pub verify: bool,
    /// The emulator computes D.
    pub emulated: bool,
    /// A, B and C are in memory already, in the types in which they are used.
    pub loaded: [bool; 3],
}

/// Bytes of memory for A, B, C and D of a whole batch, and for the purpose.
fn needed(problem: &Problem, elements: Elements, purpose: Purpose) -> u64 {
    let Problem { m, n, k, batch, .. } = *problem;
    let Elements { a, b, d, .. } = elements;
    let matrix = |rows: usize, columns: usize, bytes: u32| {
        (rows as u64).saturating_mul(columns as u64).saturating_mul(u64::from(bytes))
    };
    let reads_c = problem.beta != 0.0;
    let [holds_a, holds_b, holds_c] = purpose.loaded.map(|loaded| !loaded);
    let matrices = [
        (matrix(m, k, a.bytes()), batch.matrices(batch.a), holds_a),
        (matrix(k, n, b.bytes()), batch.matrices(batch.b), holds_b),
        (matrix(m, n, d.bytes()), batch.matrices(batch.d), true),
        (matrix(m, n, d.bytes()), if reads_c { batch.matrices(batch.c) } else { 0 }, holds_c),
    ];
    // The matrices of a batch are copied once more, into one allocation. The emulator has a copy of
    // its own, with a record of 8 bytes for each 4.
    let emulated = if purpose.emulated { 3 } else { 0 };
    let copied = emulated + if batch.is_one() { 0 } else { 1 };
    let mut bytes = matrices.iter().fold(0u64, |bytes, (of_one, count, held)| {
        let copies = copied + u64::from(*held);
        bytes.saturating_add(of_one.saturating_mul(*count as u64).saturating_mul(copies))
    });
    if purpose.verify {
        // The reference needs 16 bytes per element of D, 24 with a C, and 8 more if A and B are
        // f64. References are computed one after another.
        let doubles = [a, b] == [Dtype::F64; 2];
        let of_element = if reads_c { 24 } else { 16 } + if doubles { 8 } else { 0 };
        bytes = bytes.saturating_add(matrix(m, n, of_element));
    }
    bytes
}

/// Rejects problems whose matrices do not fit the available memory.
///
/// # Errors
/// [`UsageError::HostMemory`].
pub fn check(problem: &Problem, elements: Elements, purpose: Purpose) -> Result<(), UsageError> {
    match (needed(problem, elements, purpose), available()) {
        (needed, Some(available)) if needed > available => {
            let Problem { m, n, k, .. } = *problem;
            let Purpose { verify, emulated, .. } = purpose;
            Err(UsageError::HostMemory { m, n, k, needed, available, verify, emulated })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use persistent_gemm::Major;

    use super::*;

    const PLAIN: Purpose = Purpose { verify: false, emulated: false, loaded: [false; 3] };
    const VERIFIED: Purpose = Purpose { verify: true, ..PLAIN };

    #[test]
    fn the_reference_and_c_count() {
        let problem = Problem::new(10, 20, 30, Major::K, Major::N);
        assert_eq!(
            needed(&problem, Elements::new(Dtype::Bf16, Dtype::F32), PLAIN),
            600 + 1200 + 800
        );
        assert_eq!(needed(&problem, Elements::new(Dtype::Bf16, Dtype::F32), VERIFIED), 2600 + 3200);
        let problem = problem.with_beta(1.0);
        assert_eq!(
            needed(&problem, Elements::new(Dtype::Bf16, Dtype::Bf16), VERIFIED),
            1800 + 800 + 4800
        );
    }

    #[test]
    fn copies_count_and_what_is_there_does_not() {
        let problem = Problem::new(10, 20, 30, Major::K, Major::N);
        let elements = Elements::new(Dtype::Bf16, Dtype::F32);
        let emulated = Purpose { emulated: true, ..PLAIN };
        assert_eq!(needed(&problem, elements, emulated), 4 * 2600);
        let loaded = Purpose { loaded: [true, false, false], ..PLAIN };
        assert_eq!(needed(&problem, elements, loaded), 2600 - 600);
        let emulated = Purpose { emulated: true, ..loaded };
        assert_eq!(needed(&problem, elements, emulated), 4 * 2600 - 600);
        assert_eq!(needed(&problem.with_batch(3), elements, PLAIN), 3 * 2 * 2600);
        let endless = Problem::new(usize::MAX, usize::MAX, usize::MAX, Major::K, Major::N);
        assert_eq!(needed(&endless, elements, emulated), u64::MAX);
    }

    #[test]
    fn more_than_any_machine_has_is_refused_and_little_is_not() {
        let problem = |size| Problem::new(size, size, size, Major::K, Major::N);
        let f16 = Elements::new(Dtype::F16, Dtype::F16);
        assert!(check(&problem(16), f16, VERIFIED).is_ok());
        if available().is_some() {
            let error = check(&problem(1 << 24), f16, VERIFIED).unwrap_err().to_string();
            assert!(error.contains("leave --verify out"), "{error}");
            assert!(!error.contains("emulator"), "{error}");
            let emulated = Purpose { emulated: true, ..PLAIN };
            let error = check(&problem(1 << 24), f16, emulated).unwrap_err().to_string();
            assert!(error.contains("--backend cpu"), "{error}");
        }
    }
}
