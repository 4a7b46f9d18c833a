//! The operands of contestants: sets of A, B, C and D on the device. Usually there are several,
//! which together exceed twice the L2, so that no GEMM finds its operands in the cache. For a warm
//! cache there is a single set.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pgemm_ir::Element;
use pgemm_kernels::Epilogue;
use pgemm_plan::{MatrixLayout, PlanError, Precision, Problem, ProblemKey, is_default_precision};
use serde::{Deserialize, Serialize};

use super::error::{MeasureError, Result};
use crate::driver::{Device, DeviceBuffer, StreamRef};
use crate::matrix::HostMatrix;
use crate::matrix::batch::{laid_together, room_for, take_apart};
use crate::operands::{HostBatch, Operands};

/// Element types, precision and epilogue of a product. C has the type of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Elements {
    /// A.
    pub a: Element,
    /// B.
    pub b: Element,
    /// C and D.
    pub d: Element,
    /// How accurately products are added up.
    #[serde(default, skip_serializing_if = "is_default_precision")]
    pub precision: Precision,
    /// The bias and activation that are applied to results.
    #[serde(default, skip_serializing_if = "Epilogue::is_none")]
    pub epilogue: Epilogue,
}

impl Elements {
    /// A and B of one type.
    pub const fn new(ab: Element, d: Element) -> Elements {
        Elements { a: ab, b: ab, d, precision: Precision::Full, epilogue: Epilogue::NONE }
    }

    /// The types and epilogue of a tuned problem.
    pub fn of(key: &ProblemKey) -> Elements {
        let [a, b] = key.operands();
        Elements { b, precision: key.precision, ..Elements::new(a, key.output) }
    }
}

/// Device addresses of the matrices of one operand set, multiples of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Of A.
    pub a: u64,
    /// Of B.
    pub b: u64,
    /// C, or the address of D if beta is 0 and there is no C.
    pub c: u64,
    /// D.
    pub d: u64,
    /// The bias, which all sets share, or 0 if there is none.
    pub bias: u64,
}

/// Sets start at multiples of this, so that every set has the alignment of the first.
const ALIGNMENT: usize = 1024;

/// Seed of the bias.
const BIAS_SEED: u64 = 0xb1a5;

/// The largest number of sets. It matters only for sets under about 30 KB, whose total then stays
/// below twice the L2.
const MAX_SETS: usize = 4096;

/// The state of L2 at the beginning of a GEMM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L2 {
    /// Operands are in memory: launches rotate through sets that together exceed twice the cache.
    #[default]
    Cold,
    /// Operands are in the cache, as far as they fit: every launch uses the same set.
    Warm,
}

impl L2 {
    /// The name as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            L2::Cold => "cold",
            L2::Warm => "warm",
        }
    }

    /// The state of L2 for this number of operand sets.
    pub const fn of_sets(count: usize) -> L2 {
        if count == 1 { L2::Warm } else { L2::Cold }
    }

    /// Operand sets for a problem of `set_bytes` bytes.
    fn set_count(self, set_bytes: usize, l2_bytes: u64) -> usize {
        match self {
            L2::Cold => set_count(set_bytes, l2_bytes),
            L2::Warm => 1,
        }
    }
}

/// Sets for a problem of `set_bytes` bytes: at least two, and more than twice the L2 together.
pub fn set_count(set_bytes: usize, l2_bytes: u64) -> usize {
    let l2_bytes = usize::try_from(l2_bytes).unwrap_or(usize::MAX / 2);
    (l2_bytes.saturating_mul(2) / set_bytes.max(1)).saturating_add(1).clamp(2, MAX_SETS)
}

/// The operand sets of one problem, with their contents on the host.
///
/// A, B and C hold independent samples of N(0, 1), or uniform integers of the full range of an
/// 8-bit type: constant or small values draw less power and run faster than realistic data. All
/// sets hold the same values at different addresses.
#[derive(Debug)]
pub struct OperandSets {
    problem: Problem,
    elements: Elements,
    host_a: Vec<HostMatrix>,
    host_b: Vec<HostMatrix>,
    host_c: Vec<HostMatrix>,
    host_bias: Option<HostMatrix>,
    bias: Option<DeviceBuffer>,
    a: Replicated,
    b: Replicated,
    c: Option<Replicated>,
    d: Replicated,
    count: usize,
}

impl OperandSets {
    /// Fills and uploads the sets for `problem`. Returns when they are on the device.
    ///
    /// # Errors
    /// [`MeasureError::EmptyProblem`], [`MeasureError::SetsDoNotFit`], an error of the problem, or
    /// driver errors.
    pub fn new(
        device: &Device,
        problem: &Problem,
        elements: Elements,
        l2: L2,
        seed: u64,
        stream: StreamRef<'_>,
    ) -> Result<OperandSets> {
        let problem = checked(problem)?;
        let matrices = random_matrices(&problem, elements, seed)?;
        OperandSets::holding(device, &problem, elements, l2, matrices, stream)
    }

    /// The same with `count` sets, at least one.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub fn rotating(
        device: &Device,
        problem: &Problem,
        elements: Elements,
        count: usize,
        seed: u64,
        stream: StreamRef<'_>,
    ) -> Result<OperandSets> {
        let problem = checked(problem)?;
        let matrices = random_matrices(&problem, elements, seed)?;
        OperandSets::copies(device, &problem, elements, count.max(1), matrices, stream)
    }

    /// Uploads the sets for `problem`, which hold these A, B and C, as many as it needs, in layout
    /// and type as `problem` and `elements` say; no C where beta is 0.
    pub fn holding(
        device: &Device,
        problem: &Problem,
        elements: Elements,
        l2: L2,
        matrices: [Vec<HostMatrix>; 3],
        stream: StreamRef<'_>,
    ) -> Result<OperandSets> {
        let set_bytes = set_bytes(problem, elements)?;
        let count = l2.set_count(set_bytes, device.properties().l2_bytes);
        OperandSets::copies(device, problem, elements, count, matrices, stream)
    }

    fn copies(
        device: &Device,
        problem: &Problem,
        elements: Elements,
        count: usize,
        [host_a, host_b, host_c]: [Vec<HostMatrix>; 3],
        stream: StreamRef<'_>,
    ) -> Result<OperandSets> {
        let [.., d_bytes] = matrix_bytes(problem, elements)?;
        let set_bytes = set_bytes(problem, elements)?;
        let free = device.free_memory_bytes()?;
        if (set_bytes as u64).saturating_mul(count as u64) > free {
            return Err(MeasureError::SetsDoNotFit {
                sets: count,
                set_bytes: set_bytes as u64,
                free,
            });
        }

        let upload = |matrices: &[HostMatrix], stride| -> Result<Replicated> {
            let matrix = laid_together(matrices, stride)?;
            let copies = Replicated::new(device, matrix.bytes().len(), count)?;
            for set in 0..count {
                copies.lock().copy_from_host(set * copies.stride, matrix.bytes(), stream)?;
            }
            Ok(copies)
        };
        let batch = problem.batch;
        let length = elements.epilogue.bias_length(problem.m, problem.n);
        let row = MatrixLayout::row_major(1, length);
        let bias_type = Epilogue::bias_type(elements.d);
        let host_bias =
            (length > 0).then(|| random_matrix(row, bias_type, BIAS_SEED)).transpose()?;
        let bias =
            host_bias.as_ref().map(|bias| DeviceBuffer::from_host(device, bias.bytes(), stream));
        Ok(OperandSets {
            host_bias,
            bias: bias.transpose()?,
            problem: *problem,
            elements,
            a: upload(&host_a, batch.a)?,
            b: upload(&host_b, batch.b)?,
            c: if host_c.is_empty() { None } else { Some(upload(&host_c, batch.c)?) },
            d: Replicated::new(device, d_bytes, count)?,
            host_a,
            host_b,
            host_c,
            count,
        })
    }

    /// The number of sets: one for a warm cache, at least two for a cold one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The problem that they belong to.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The element types.
    pub fn elements(&self) -> Elements {
        self.elements
    }

    /// Bytes of all sets together.
    pub fn total_bytes(&self) -> u64 {
        let c = self.c.as_ref().map_or(0, |c| c.total_bytes);
        (self.a.total_bytes + self.b.total_bytes + c + self.d.total_bytes) as u64
    }

    /// A, B and C on the host; no C where beta is 0.
    pub fn host(&self) -> HostBatch<'_> {
        let c = Some(&self.host_c[..]).filter(|c| !c.is_empty());
        Operands::new(&self.host_a[..], &self.host_b[..]).c(c).bias(self.host_bias.as_ref())
    }

    /// The device addresses of the matrices of `set`.
    ///
    /// # Errors
    /// [`MeasureError::NoSuchSet`].
    pub fn addresses(&self, set: usize) -> Result<Addresses> {
        if set >= self.count {
            return Err(MeasureError::NoSuchSet { requested: set, count: self.count });
        }
        let d = self.d.address(set);
        Ok(Addresses {
            a: self.a.address(set),
            b: self.b.address(set),
            c: self.c.as_ref().map_or(d, |c| c.address(set)),
            d,
            bias: self.bias_address(),
        })
    }

    /// Bytes from one set's A, B and D to the next one's.
    pub fn strides(&self) -> [usize; 3] {
        [self.a.stride, self.b.stride, self.d.stride]
    }

    /// The device address of the bias, or 0 if there is none.
    pub fn bias_address(&self) -> u64 {
        self.bias.as_ref().map_or(0, DeviceBuffer::address)
    }

    /// Enqueues setting every bit of every D, gaps included: NaN in floating point.
    ///
    /// # Errors
    /// Driver errors.
    pub fn poison_outputs(&self, stream: StreamRef<'_>) -> Result<()> {
        let mut d = self.d.lock();
        let bytes = d.bytes();
        Ok(d.fill_u8(0, bytes, u8::MAX, stream)?)
    }

    /// D of each product of `set` as it is on the device, after the work on `stream`. Of a batch
    /// gaps between lines are not read.
    ///
    /// # Errors
    /// [`MeasureError::NoSuchSet`], host memory, or driver errors.
    pub fn read_outputs(&self, set: usize, stream: StreamRef<'_>) -> Result<Vec<HostMatrix>> {
        self.addresses(set)?;
        let (layout, batch) = (self.problem.d_layout(), self.problem.batch);
        let mut all = room_for(layout, self.elements.d, batch.count, batch.d)?;
        self.d.lock().copy_to_host(set * self.d.stride, all.bytes_mut(), stream)?;
        if batch.is_one() {
            return Ok(vec![HostMatrix::from_bytes(layout, self.elements.d, all.bytes())?]);
        }
        let poisoned = |_| {
            let mut d = HostMatrix::zeros(layout, self.elements.d)?;
            d.poison();
            Ok(d)
        };
        let mut d = (0..batch.count).map(poisoned).collect::<Result<Vec<_>>>()?;
        take_apart(all.bytes(), batch.d, &mut d);
        Ok(d)
    }
}

/// Copies of one matrix in one allocation.
#[derive(Debug)]
struct Replicated {
    /// Locked for copies and fills only: contestants hold the sets shared and use addresses.
    buffer: Mutex<DeviceBuffer>,
    address: u64,
    stride: usize,
    total_bytes: usize,
}

impl Replicated {
    fn new(device: &Device, bytes: usize, count: usize) -> Result<Replicated> {
        let stride = padded(bytes);
        let total_bytes = stride.saturating_mul(count);
        let buffer = DeviceBuffer::new(device, total_bytes)?;
        Ok(Replicated {
            address: buffer.address(),
            buffer: Mutex::new(buffer),
            stride,
            total_bytes,
        })
    }

    fn address(&self, set: usize) -> u64 {
        self.address + (set * self.stride) as u64
    }

    fn lock(&self) -> MutexGuard<'_, DeviceBuffer> {
        // A panic elsewhere leaves the buffer as valid as before: its bytes may be anything at any
        // time.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The problem as sets are made for it, if there is something to compute.
fn checked(problem: &Problem) -> Result<Problem> {
    problem.validate()?;
    let problem = problem.normalised();
    let Problem { m, n, k, .. } = problem;
    if problem.is_empty() || k == 0 {
        return Err(MeasureError::EmptyProblem { m, n, k });
    }
    Ok(problem)
}

/// A, B and C of all products of a batch; no C where beta is 0.
fn random_matrices(
    problem: &Problem,
    elements: Elements,
    seed: u64,
) -> Result<[Vec<HostMatrix>; 3]> {
    let batch = problem.batch;
    let matrices = |layout, element, stride, first: u64| -> Result<Vec<HostMatrix>> {
        let seeds = (0..batch.matrices(stride)).map(|index| first.wrapping_add(3 * index as u64));
        seeds.map(|seed| random_matrix(layout, element, seed)).collect()
    };
    let a = matrices(problem.a_layout(), elements.a, batch.a, seed)?;
    let b = matrices(problem.b_layout(), elements.b, batch.b, seed.wrapping_add(1))?;
    let c = if problem.beta == 0.0 {
        vec![]
    } else {
        matrices(problem.c_layout(), elements.d, batch.c, seed.wrapping_add(2))?
    };
    Ok([a, b, c])
}

/// Bytes of a set on the device.
///
/// # Errors
/// A leading dimension is too short or a span overflows.
pub fn set_bytes(problem: &Problem, elements: Elements) -> Result<usize, PlanError> {
    let spans = matrix_bytes(problem, elements)?;
    Ok(spans.into_iter().map(padded).fold(0usize, usize::saturating_add))
}

/// Bytes from the start of one matrix to the next.
pub fn padded(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX)
}

/// Samples of N(0, 1), or integers of the full range of an 8-bit type.
pub fn random_matrix(layout: MatrixLayout, element: Element, seed: u64) -> Result<HostMatrix> {
    let mut matrix = HostMatrix::zeros(layout, element)?;
    matrix.fill_random(seed);
    Ok(matrix)
}

/// Bytes of all matrices A, B, C and D of a set on the device. C does not count if it is not read.
///
/// # Errors
/// A leading dimension is too short or a span overflows.
pub fn matrix_bytes(problem: &Problem, elements: Elements) -> Result<[usize; 4], PlanError> {
    let batch = problem.batch.normalised();
    let c = match problem.beta {
        0.0 => 0,
        _ => problem.all_bytes("C", problem.c_layout(), batch.c, elements.d)?,
    };
    Ok([
        problem.all_bytes("A", problem.a_layout(), batch.a, elements.a)?,
        problem.all_bytes("B", problem.b_layout(), batch.b, elements.b)?,
        c,
        // Never the same for all.
        problem.all_bytes("D", problem.d_layout(), batch.d, elements.d)?,
    ])
}

/// Bytes of A, B and D, and of C if it is read. A GEMM, or a batch, must move at least these.
///
/// # Errors
/// A leading dimension is too short or a span overflows.
pub fn operand_bytes(problem: &Problem, elements: Elements) -> Result<usize, PlanError> {
    Ok(matrix_bytes(problem, elements)?.into_iter().fold(0, usize::saturating_add))
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;

    const L2_BYTES: u64 = 60 << 20;

    #[test]
    fn sets_exceed_twice_the_l2() {
        for set_bytes in [40_000, 1 << 20, 24 << 20, 59 << 20, 61 << 20, 1 << 30] {
            let count = set_count(set_bytes, L2_BYTES);
            assert!(count >= 2 && count * set_bytes > 2 * L2_BYTES as usize, "{set_bytes}");
        }
        assert_eq!(set_count(1 << 30, L2_BYTES), 2);
        assert_eq!(set_count(1024, L2_BYTES), MAX_SETS);
    }

    #[test]
    fn a_warm_cache_takes_one_set() {
        for set_bytes in [1024, 1 << 20, 1 << 30] {
            assert_eq!(L2::Warm.set_count(set_bytes, L2_BYTES), 1);
            let cold = L2::Cold.set_count(set_bytes, L2_BYTES);
            assert_eq!(L2::of_sets(cold), L2::Cold);
        }
        assert_eq!(L2::of_sets(1), L2::Warm);
    }

    #[test]
    fn c_counts_only_where_it_is_read() {
        let problem = Problem::new(2, 3, 5, Major::K, Major::K);
        let elements = Elements::new(Element::Bf16, Element::F32);
        assert_eq!(operand_bytes(&problem, elements).unwrap(), 2 * 10 + 2 * 15 + 4 * 6);
        let batch = problem.with_batch(3).with_b_batch_stride(0);
        assert_eq!(operand_bytes(&batch, elements).unwrap(), 3 * 2 * 10 + 2 * 15 + 3 * 4 * 6);
        let problem = problem.with_beta(1.0);
        assert_eq!(operand_bytes(&problem, elements).unwrap(), 2 * 10 + 2 * 15 + 2 * 4 * 6);
    }
}
