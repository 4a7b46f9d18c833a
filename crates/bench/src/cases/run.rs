//! Computes a random case, and compares D with the reference.

use persistent_gemm::host::{self, Allocations, Executor};
use persistent_gemm::{Accumulation, ErrorModel, HostMatrix, Operands, Reference, Result};
use pgemm_ir::Element;
use pgemm_plan::{Major, MatrixLayout, OperandLayout, Plan, Precision, Problem};

use super::{Case, CaseOutcome, Fill};

/// Largest integer operand.
const MAGNITUDE: u32 = 3;

impl Case {
    /// Computes the case and compares D with the reference, within the derived error bound, or
    /// exactly if sums are exact. D is filled with NaN first, unless it is C. The CPU backend gets
    /// matrices without gaps.
    ///
    /// # Errors
    /// The errors of [`multiply`](host::multiply), or of the reference.
    pub fn run(&self, executor: &Executor) -> Result<CaseOutcome> {
        let Case { config, problem, .. } = self;
        problem.validate()?;
        let [a, b] = config.operands();
        let output = config.output_dtype();
        let d_layout = problem.d_layout();
        let lines = (d_layout.lines(), d_layout.line_length());
        let result = |leading| OperandLayout::new(problem.d_major, leading);
        let batch = problem.batch;
        let a = self.stored(0, a, problem.a_lines(), (problem.a, batch.a))?;
        let b = self.stored(1, b, problem.b_lines(), (problem.b, batch.b))?;
        let c_place = (result(problem.c_leading_dimension), batch.c);
        let c = self.stored(2, output, lines, c_place)?;
        let d_place = (result(problem.d_leading_dimension), batch.d);
        let mut d = self.stored(3, output, lines, d_place)?;
        let length = config.epilogue.bias_length(problem.m, problem.n);
        let row = OperandLayout::new(Major::K, length.max(1));
        let bias = self.stored(4, config.bias_dtype(), (1, length), (row, 0))?;
        let adds_bias = config.epilogue.bias().is_some();
        let bias_copy = bias.copy(0, 1, length, Major::K)?;
        let bias_copy = Some(&bias_copy).filter(|_| adds_bias);
        self.prepare_output(&mut d, &c);

        let Problem { m, n, k, batch, .. } = *problem;
        let plain = Problem::new(m, n, k, Major::K, Major::N)
            .with_alpha(problem.alpha)
            .with_beta(problem.beta)
            .with_batch(batch.count);
        let copies = |stored: &Stored,
                      [rows, columns]: [usize; 2],
                      rows_along|
         -> Result<Vec<HostMatrix>> {
            (0..batch.count).map(|index| stored.copy(index, rows, columns, rows_along)).collect()
        };
        let (a_copies, b_copies) = (copies(&a, [m, k], Major::K)?, copies(&b, [k, n], Major::N)?);
        let c_copies = copies(&c, [m, n], Major::N)?;
        let reads_c = problem.beta != 0.0;
        let inputs =
            Operands::new(&a_copies, &b_copies).c(reads_c.then_some(&c_copies)).bias(bias_copy);

        let before = d.clone();
        let (plan, computed) = match executor {
            Executor::Cpu { .. } => {
                (None, Some(host::multiply(executor, config, &plain, inputs)?.d))
            }
            _ => {
                let allocations = Allocations {
                    a: a.matrix.bytes(),
                    b: b.matrix.bytes(),
                    c: (reads_c && !self.in_place).then(|| c.matrix.bytes()),
                    bias: adds_bias.then(|| bias.matrix.bytes()),
                    offsets: [&a, &b, &c, &d, &bias].map(Stored::offset_bytes),
                    d: d.matrix.bytes_mut(),
                };
                (host::multiply_allocations(executor, config, problem, allocations)?.plan, None)
            }
        };
        let untouched = d.gaps(batch.count, [m, n]) == before.gaps(batch.count, [m, n]);
        let computed = computed.map_or_else(|| copies(&d, [m, n], Major::N), Ok)?;
        let mut comparisons = vec![];
        for (index, d) in computed.iter().enumerate() {
            let Operands { a, b, c, .. } = inputs.of(index);
            let reference =
                Reference::with_epilogue(&plain.one(), (a, b, c), config.epilogue, bias_copy)?;
            comparisons.push(match self.fill {
                Fill::Integers if config.precision() == Precision::F16 => {
                    reference.compare_exact_f16(d)?
                }
                Fill::Integers => reference.compare_exact(d)?,
                Fill::Random => reference.compare(d, &self.model(plan.as_ref()))?,
            });
        }
        Ok(CaseOutcome { plan, comparisons, untouched })
    }

    /// Fills D with NaN, so that an element that is not written is found, or with C if D is C.
    fn prepare_output(&self, d: &mut Stored, c: &Stored) {
        match self.in_place {
            true => d.matrix.clone_from(&c.matrix),
            false => d.matrix.poison(),
        }
    }

    /// Matrix number `index` in its allocation, whose gaps are filled with values too.
    fn stored(
        &self,
        index: usize,
        element: Element,
        lines: (usize, usize),
        (layout, batch_stride): (OperandLayout, usize),
    ) -> Result<Stored> {
        let offset = self.offsets[index];
        let last = |count: usize, apart: usize| (count.max(1) - 1) * apart;
        let span = last(lines.0, layout.leading_dimension) + last(lines.1, layout.step) + 1;
        let span = span + last(self.problem.batch.count, batch_stride);
        let mut matrix = HostMatrix::zeros(MatrixLayout::row_major(1, offset + span), element)?;
        let seed = self.seed.wrapping_mul(4).wrapping_add(index as u64);
        match self.fill {
            Fill::Random => matrix.fill_random(seed),
            Fill::Integers => matrix.fill_integers(seed, MAGNITUDE),
        }
        Ok(Stored { matrix, offset, batch_stride, layout })
    }

    /// The error model of the comparison. The signs of broadcast operands are not independent of
    /// each other.
    fn model(&self, plan: Option<&Plan>) -> ErrorModel {
        let broadcast =
            |operand: OperandLayout| operand.step == 0 || operand.leading_dimension == 0;
        let accumulation = match plan.map(|plan| Accumulation::of(&plan.spec)) {
            None => Accumulation::Nearest,
            Some(any) if broadcast(self.problem.a) || broadcast(self.problem.b) => any,
            Some(accumulation) => accumulation.of_random_signs(),
        };
        let [a, b] = self.config.operands();
        ErrorModel { accumulation, a, b }
    }
}

/// The place of a matrix in its allocation. The allocation is a matrix of a single line.
#[derive(Clone)]
struct Stored {
    matrix: HostMatrix,
    /// Elements before the first one.
    offset: usize,
    /// Elements from one matrix of a batch to the next.
    batch_stride: usize,
    layout: OperandLayout,
}

impl Stored {
    fn offset_bytes(&self) -> u64 {
        self.offset as u64 * u64::from(self.matrix.dtype().bytes())
    }

    /// If an element of a matrix of the batch is, in elements.
    fn place(&self, index: usize, line: usize, along: usize) -> usize {
        let first = self.offset + index * self.batch_stride;
        first + line * self.layout.leading_dimension + along * self.layout.step
    }

    /// A matrix without gaps, row-major. Its rows run along `rows_along`.
    fn copy(
        &self,
        index: usize,
        rows: usize,
        columns: usize,
        rows_along: Major,
    ) -> Result<HostMatrix> {
        let values = self.matrix.to_f64_vec();
        let layout = MatrixLayout::row_major(rows, columns);
        let mut copy = HostMatrix::zeros(layout, self.matrix.dtype())?;
        let by_rows = self.layout.major == rows_along;
        copy.fill_with(|row, column| {
            let (line, along) = if by_rows { (row, column) } else { (column, row) };
            values[self.place(index, line, along)]
        });
        Ok(copy)
    }

    /// All bytes of the allocation that are not elements of the `count` matrices D of a batch.
    fn gaps(&self, count: usize, [rows, columns]: [usize; 2]) -> Vec<u8> {
        let size = self.matrix.dtype().bytes() as usize;
        let (lines, length) = match self.layout.major {
            Major::M => (columns, rows),
            _ => (rows, columns),
        };
        let mut bytes = self.matrix.bytes().to_vec();
        for (index, line) in (0..count).flat_map(|index| (0..lines).map(move |line| (index, line)))
        {
            let first = self.place(index, line, 0) * size;
            bytes[first..first + length * size].fill(0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CaseSize;

    #[test]
    fn results_are_poisoned_before_they_are_computed() {
        let mut places = [0, 0];
        for seed in 0..40 {
            let case = Case::new(seed, CaseSize::Small);
            let lines = (case.problem.d_layout().lines(), case.problem.d_layout().line_length());
            let place = (OperandLayout::new(case.problem.d_major, lines.1.max(1)), 0);
            let output = case.config.output_dtype();
            let c = case.stored(2, output, lines, place).unwrap();
            let mut d = case.stored(3, output, lines, place).unwrap();
            case.prepare_output(&mut d, &c);
            places[usize::from(case.in_place)] += 1;
            match case.in_place {
                true => assert_eq!(d.matrix.bytes(), c.matrix.bytes(), "{case}"),
                false => assert!(d.matrix.bytes().iter().all(|&byte| byte == u8::MAX), "{case}"),
            }
        }
        assert!(places.iter().all(|&cases| cases > 0), "{places:?}");
    }
}
