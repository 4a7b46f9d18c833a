//! [`Backend`]: where products of host matrices are computed. The cuda backend and the emulator
//! have a memory of their own ([`ProductMemory`]), in which they execute the launches of a plan;
//! the cpu backend computes the product itself.

#[cfg(feature = "cpu")]
mod cpu;
mod cuda;
#[cfg(feature = "emulator")]
mod emulator;

use std::time::Duration;

use pgemm_plan::{Config, Plan, Problem};

use crate::cache::Outcome;
use crate::error::{Error, Result};
use crate::matrix::HostMatrix;
use crate::matrix::batch::{laid_together, room_for, take_apart};
use crate::operands::HostBatch;
use crate::work::Pointers;

#[cfg(feature = "cpu")]
pub(crate) use cpu::Cpu;
pub(crate) use cuda::Cuda;
#[cfg(feature = "emulator")]
pub(crate) use emulator::Emulated;

/// Products that were checked: D of each, full of NaN, is to be computed.
pub(crate) struct HostProducts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) problem: &'a Problem,
    pub(crate) inputs: HostBatch<'a>,
    pub(crate) d: &'a mut [HostMatrix],
}

/// Computes products of host matrices.
pub(crate) trait Backend {
    /// Computes products whose problem, types and layouts were checked, and which are not empty.
    ///
    /// # Errors
    /// There is no kernel for the products, memory runs out, or the computation fails.
    fn multiply(&self, products: HostProducts<'_>) -> Result<Computed>;

    /// Computes a product of matrices inside of larger allocations, checked as above.
    ///
    /// # Errors
    /// The same as for [`multiply`](Self::multiply).
    fn multiply_allocations(
        &self,
        config: &Config,
        problem: &Problem,
        allocations: Allocations<'_>,
    ) -> Result<Computed>;
}

/// A memory that is not the host's, with kernels that compute in it.
pub(crate) trait ProductMemory {
    /// Copies the allocation of a matrix there, and returns its address, a multiple of 256. D is
    /// `written`.
    ///
    /// # Errors
    /// Memory runs out, or the copy fails.
    fn upload(&mut self, matrix: &'static str, bytes: &[u8], written: bool) -> Result<u64>;

    /// Copies D's allocation back.
    ///
    /// # Errors
    /// The copy, or work before it, fails.
    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<()>;

    /// Computes a problem whose matrices are at these addresses in the backend's memory.
    ///
    /// # Errors
    /// The same as for [`Backend::multiply`].
    fn compute(
        &mut self,
        config: &Config,
        problem: &Problem,
        pointers: &Pointers,
    ) -> Result<Computed>;
}

/// Computes in another memory: copies all allocations there, and D's back.
fn multiply_in(
    memory: &mut impl ProductMemory,
    config: &Config,
    problem: &Problem,
    allocations: Allocations<'_>,
) -> Result<Computed> {
    let mut upload = |matrix, bytes: Option<&[u8]>, written| {
        bytes.map_or(Ok(0), |bytes| memory.upload(matrix, bytes, written))
    };
    let addresses = [
        upload("A", Some(allocations.a), false)?,
        upload("B", Some(allocations.b), false)?,
        upload("C", allocations.c, false)?,
        upload("D", Some(allocations.d), true)?,
        upload("the bias", allocations.bias, false)?,
    ];
    let computed = memory.compute(config, problem, &allocations.pointers(addresses))?;
    memory.download(addresses[3], allocations.d)?;
    Ok(computed)
}

/// Computes with the matrices of each batch in one allocation.
fn multiply_together(backend: &impl Backend, products: HostProducts<'_>) -> Result<Computed> {
    let HostProducts { config, problem, inputs, d, .. } = products;
    let batch = problem.batch;
    let (a, b) = (laid_together(inputs.a, batch.a)?, laid_together(inputs.b, batch.b)?);
    let c = inputs.c.map(|c| laid_together(c, batch.c)).transpose()?;
    let mut all_d = room_for(problem.d_layout(), config.output_dtype(), d.len(), batch.d)?;
    let allocations = Allocations {
        a: a.bytes(),
        b: b.bytes(),
        c: c.as_ref().map(|c| c.bytes()),
        d: all_d.bytes_mut(),
        bias: inputs.bias.map(HostMatrix::bytes),
        offsets: [0; 5],
    };
    let computed = backend.multiply_allocations(config, problem, allocations)?;
    take_apart(all_d.bytes(), batch.d, d);
    Ok(computed)
}

/// How something was computed.
#[derive(Clone, Debug)]
pub struct Computed {
    /// The plan; `None` on the CPU, and where D is empty.
    pub plan: Option<Plan>,
    /// Planning, compiling, loading.
    pub prepare: Duration,
    /// Computing, without copies to and from a device.
    pub compute: Duration,
    /// The outcome of the kernel cache, on CUDA.
    pub cache: Option<Outcome>,
}

impl Computed {
    /// The result for a problem without any work.
    pub(crate) const NOTHING: Computed =
        Computed { plan: None, prepare: Duration::ZERO, compute: Duration::ZERO, cache: None };
}

/// Bytes of allocations on the host that hold the matrices of a problem, each from an offset on.
pub struct Allocations<'a> {
    /// A.
    pub a: &'a [u8],
    /// B.
    pub b: &'a [u8],
    /// C, or `None` if beta is 0, or C is D.
    pub c: Option<&'a [u8]>,
    /// D.
    pub d: &'a mut [u8],
    /// The bias, or `None` if the epilogue adds none.
    pub bias: Option<&'a [u8]>,
    /// Bytes before the first element of A, B, C, D and the bias. Allocations begin at multiples of
    /// 256.
    pub offsets: [u64; 5],
}

impl Allocations<'_> {
    /// Checks that every matrix lies within its allocation, and that a bias is given if the
    /// epilogue adds one.
    pub(crate) fn check(&self, config: &Config, problem: &Problem) -> Result<()> {
        config.check_bias_given(problem, self.bias.is_some())?;
        let ([a, b], output) = (config.operands(), config.output_dtype());
        let spans = problem.spans();
        // If there is no C, D stands in its place.
        let d = if self.c.is_none() { spans.d.max(spans.c) } else { spans.d };
        let bias = config.bias_length(problem).unwrap_or_default();
        for (index, (matrix, bytes, element, needed)) in [
            ("A", Some(self.a.len()), a, spans.a),
            ("B", Some(self.b.len()), b, spans.b),
            ("C", self.c.map(<[u8]>::len), output, spans.c),
            ("D", Some(self.d.len()), output, d),
            ("the bias", self.bias.map(<[u8]>::len), config.bias_dtype(), bias),
        ]
        .into_iter()
        .enumerate()
        {
            let Some(bytes) = bytes else { continue };
            let offset = usize::try_from(self.offsets[index]).unwrap_or(usize::MAX);
            let found = bytes.saturating_sub(offset) / element.bytes() as usize;
            if found < needed {
                return Err(Error::BufferLength { matrix, found, needed });
            }
        }
        Ok(())
    }

    /// The matrices in allocations at these addresses.
    fn pointers(&self, [a, b, c, d, bias]: [u64; 5]) -> Pointers {
        let offsets = self.offsets;
        let c = if self.c.is_some() { c } else { d };
        let at = |address, i: usize| address + offsets[i];
        Pointers::new(at(a, 0), at(b, 1), at(c, 2), at(d, 3)).with_bias(at(bias, 4))
    }
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;
    use pgemm_plan::Major;

    use super::*;

    /// Without a C, D is read in its place, by C's leading dimension.
    #[test]
    fn d_has_to_hold_what_is_read_as_c_too() {
        let mut problem = Problem::new(4, 8, 2, Major::K, Major::N).with_beta(1.0);
        problem.c_leading_dimension = 20;
        let config = Config::new(Element::F32);
        let check = |c: Option<usize>, d: usize, offset: u64| {
            let [a, b] = [vec![0; 4 * 2 * 4], vec![0; 2 * 8 * 4]];
            let (c, mut d) = (c.map(|elements| vec![0; elements * 4]), vec![0; d * 4]);
            let offsets = [0, 0, 0, offset, 0];
            let allocations =
                Allocations { a: &a, b: &b, c: c.as_deref(), d: &mut d, bias: None, offsets };
            allocations.check(&config, &problem).map_err(|error| error.to_string())
        };
        // Three lines, and the eight elements of the last.
        let (of_c, of_d) = (3 * 20 + 8, 3 * 8 + 8);
        assert_eq!(check(Some(of_c), of_d, 0), Ok(()));
        assert_eq!(check(None, of_c, 0), Ok(()));
        assert_eq!(check(Some(of_c), of_d + 1, 4), Ok(()));
        for (c, d, offset) in [
            (Some(of_c - 1), of_d, 0),
            (Some(of_c), of_d - 1, 0),
            (None, of_c - 1, 0),
            (None, of_d, 0),
            (Some(of_c), of_d, 4),
        ] {
            assert!(check(c, d, offset).is_err(), "{c:?} {d} {offset}");
        }
    }
}
