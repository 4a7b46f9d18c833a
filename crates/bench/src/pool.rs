//! [`OperandPool`]: random data on the device from which the operands of many problems are cut, so
//! that a problem needs no memory and no random numbers of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use persistent_gemm::HostMatrix;
use persistent_gemm::driver::{Device, DeviceBuffer, StreamRef};
use persistent_gemm::measure::{
    Addresses, Elements, matrix_bytes, padded, random_matrix, set_count,
};
use pgemm_ir::Element;
use pgemm_plan::{MatrixLayout, Problem};
use rayon::prelude::*;

use crate::error::Result;

/// Seeds of the random data of A and of B.
const SEEDS: [u64; 2] = [1, 2];

/// Rows and bytes of each of the data that a pool repeats: 64 MiB and a bit, so that it doesn't
/// repeat at a power of two.
const RANDOM_ROWS: usize = 65_537;
const RANDOM_ROW_BYTES: usize = 1024;

/// Bytes of a problem's matrices, and how many sets of them exceed twice the L2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sets {
    /// Bytes of A, B and D of one set, each up to the beginning of the next set's.
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) d: usize,
    /// The number of sets.
    pub(crate) count: usize,
}

impl Sets {
    /// The sets of a problem without a C.
    pub(crate) fn of(problem: &Problem, elements: Elements, l2_bytes: u64) -> Result<Sets> {
        let [a, b, _, d] = matrix_bytes(problem, elements)?.map(padded);
        let count = set_count(a.saturating_add(b).saturating_add(d), l2_bytes);
        Ok(Sets { a, b, d, count })
    }

    /// Bytes of A, of B and of D of all sets.
    pub(crate) fn bytes(&self) -> [usize; 3] {
        [self.a, self.b, self.d].map(|bytes| bytes.saturating_mul(self.count))
    }

    /// Bytes of everything.
    pub(crate) fn total_bytes(&self) -> usize {
        self.bytes().into_iter().fold(0, usize::saturating_add)
    }

    /// The addresses of the matrices of a set in pools that begin at these addresses. There is no
    /// C.
    fn addresses(&self, [a, b, d]: [u64; 3], set: usize) -> Addresses {
        let at = |pool: u64, bytes: usize| pool + (set * bytes) as u64;
        let d = at(d, self.d);
        Addresses { a: at(a, self.a), b: at(b, self.b), c: d, d, bias: 0 }
    }
}

/// Random data of one type: on the host once, on the device repeated.
struct Random {
    host: HostMatrix,
    device: DeviceBuffer,
}

impl Random {
    fn new(
        device: &Device,
        element: Element,
        (seed, bytes): (u64, usize),
        stream: StreamRef<'_>,
    ) -> Result<Random> {
        let columns = RANDOM_ROW_BYTES / element.bytes() as usize;
        let host = random_matrix(MatrixLayout::row_major(RANDOM_ROWS, columns), element, seed)?;
        let period = DeviceBuffer::from_host(device, host.bytes(), stream)?;
        let mut repeated = DeviceBuffer::new(device, bytes)?;
        for start in (0..bytes).step_by(period.bytes()) {
            let bytes = period.bytes().min(bytes - start);
            repeated.copy_from_device(start, &period, 0, bytes, stream)?;
        }
        stream.synchronize()?;
        Ok(Random { host, device: repeated })
    }

    /// These rows and columns of a matrix that begins `start` bytes into the data.
    fn gather(
        &self,
        start: usize,
        layout: MatrixLayout,
        rows: &[usize],
        columns: &[usize],
    ) -> Result<HostMatrix> {
        let element = self.host.dtype();
        let (size, bytes) = (element.bytes() as usize, self.host.bytes());
        let target = MatrixLayout::row_major(rows.len(), columns.len());
        let mut gathered = HostMatrix::zeros(target, element)?;
        let line = size * columns.len().max(1);
        gathered.bytes_mut().par_chunks_exact_mut(line).zip(rows).for_each(|(target, &row)| {
            for (place, &column) in target.chunks_exact_mut(size).zip(columns) {
                // The layout's matrix lies in memory, so its offsets don't overflow.
                let offset = layout.offset(row, column).unwrap_or(0) * size;
                let from = (start + offset) % bytes.len();
                place.copy_from_slice(&bytes[from..from + size]);
            }
        });
        Ok(gathered)
    }
}

/// Operands and results of all problems with the same element types. Operands are samples of
/// N(0, 1), or integers of the full range of an 8-bit type, repeated after 64 MiB.
pub(crate) struct OperandPool {
    elements: Elements,
    a: Random,
    b: Random,
    /// Locked for fills and copies only: contestants use the address.
    d: Mutex<DeviceBuffer>,
    d_address: u64,
    d_bytes: usize,
}

impl OperandPool {
    /// A pool that holds `bytes` of A, of B and of D.
    ///
    /// # Errors
    /// Driver errors.
    pub(crate) fn new(
        device: &Device,
        elements: Elements,
        bytes: [usize; 3],
        stream: StreamRef<'_>,
    ) -> Result<OperandPool> {
        let [of_a, of_b, of_d] = bytes;
        let d = DeviceBuffer::new(device, of_d)?;
        Ok(OperandPool {
            elements,
            a: Random::new(device, elements.a, (SEEDS[0], of_a), stream)?,
            b: Random::new(device, elements.b, (SEEDS[1], of_b), stream)?,
            d_address: d.address(),
            d_bytes: d.bytes(),
            d: Mutex::new(d),
        })
    }

    /// The element types.
    pub(crate) fn elements(&self) -> Elements {
        self.elements
    }

    /// Bytes of A, of B and of D.
    pub(crate) fn bytes(&self) -> [usize; 3] {
        [self.a.device.bytes(), self.b.device.bytes(), self.d_bytes]
    }

    /// The data that A and B repeat.
    pub(crate) fn periods(&self) -> [&[u8]; 2] {
        [self.a.host.bytes(), self.b.host.bytes()]
    }

    /// Whether the pool is large enough for these sets.
    pub(crate) fn holds(&self, sets: &Sets) -> bool {
        sets.bytes().into_iter().zip(self.bytes()).all(|(needed, there)| needed <= there)
    }

    /// The addresses of the matrices of a set.
    pub(crate) fn addresses(&self, sets: &Sets, set: usize) -> Addresses {
        let pools = [self.a.device.address(), self.b.device.address(), self.d_address];
        sets.addresses(pools, set)
    }

    /// Rows of an A and columns of a B that begin so many bytes into a set: all of k of each.
    pub(crate) fn gather(
        &self,
        problem: &Problem,
        starts: [usize; 2],
        rows: &[usize],
        columns: &[usize],
    ) -> Result<[HostMatrix; 2]> {
        let all: Vec<usize> = (0..problem.k).collect();
        Ok([
            self.a.gather(starts[0], problem.a_layout(), rows, &all)?,
            self.b.gather(starts[1], problem.b_layout(), &all, columns)?,
        ])
    }

    fn results(&self) -> MutexGuard<'_, DeviceBuffer> {
        // A panic elsewhere leaves the buffer valid: its bytes may be anything at any time.
        self.d.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets every bit of the D of a set: NaN in floating point.
    ///
    /// # Errors
    /// Driver errors.
    pub(crate) fn poison(&self, sets: &Sets, set: usize, stream: StreamRef<'_>) -> Result<()> {
        Ok(self.results().fill_u8(set * sets.d, sets.d, u8::MAX, stream)?)
    }

    /// Copies the first bytes of the D of a set to the host, after the work on `stream`.
    ///
    /// # Errors
    /// Driver errors.
    pub(crate) fn read(
        &self,
        sets: &Sets,
        set: usize,
        target: &mut [u8],
        stream: StreamRef<'_>,
    ) -> Result<()> {
        Ok(self.results().copy_to_host(set * sets.d, target, stream)?)
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;

    #[test]
    fn sets_lie_one_after_another_within_their_pools() {
        let problem = Problem::new(100, 200, 304, Major::K, Major::N);
        let elements = Elements::new(Element::Bf16, Element::F32);
        let sets = Sets::of(&problem, elements, 1 << 20).unwrap();
        assert_eq!((sets.a, sets.b, sets.d), (61_440, 121_856, 80_896));
        assert_eq!(sets.count, (2 << 20) / (61_440 + 121_856 + 80_896) + 1);
        let pools = [1 << 30, 1 << 40, 1 << 50];
        let mut ends = pools;
        for set in 0..sets.count {
            let Addresses { a, b, c, d, .. } = sets.addresses(pools, set);
            assert_eq!(([a, b, d], c), (ends, d));
            ends = [a + 61_440, b + 121_856, d + 80_896];
        }
        for ((end, pool), bytes) in ends.into_iter().zip(pools).zip(sets.bytes()) {
            assert_eq!(end, pool + bytes as u64);
        }
    }
}
