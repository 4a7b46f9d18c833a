//! Warp-level MMA: the fragments of all lanes are gathered to matrices by their layouts,
//! multiplied, and scattered again.

use pgemm_cute::TvLayout;
use pgemm_ir::{Element, Fragments, Type, WarpMma};

use crate::mma::Scalar;
use crate::program::{Fragment, Program, Slot, WarpMmaStep};
use crate::state::Warp;
use crate::tensor_core::{SumRules, dot_f64};

impl WarpMmaStep {
    /// An MMA of these operands and results, which have the signature of the operation.
    pub(crate) fn new(mma: &WarpMma, args: &[Slot], results: &[Slot]) -> WarpMmaStep {
        let Some(Fragments { a, b, c }) = mma.fragments() else {
            unreachable!("the verifier refuses {mma}")
        };
        let (a_args, rest) = args.split_at(mma.a_values() as usize);
        let (b_args, c_args) = rest.split_at(mma.b_values() as usize);
        WarpMmaStep {
            mma: *mma,
            a: Fragment::new(a_args, &a),
            b: Fragment::new(b_args, &b),
            c: Fragment::new(c_args, &c),
            d: results.into(),
        }
    }

    /// Adds products in the order of k, with one rounding each. In binary32, that can be by the
    /// rules of tensor cores instead.
    pub(crate) fn run(&self, program: &Program, warp: &mut Warp, tensor_core_sums: bool) {
        let WarpMma { operand, accumulator, .. } = self.mma;
        match accumulator {
            Type::F64 => {
                return self.run_with(program, warp, f64::from_bits, f64::to_bits, dot_f64);
            }
            Type::S32 => {
                let to_bits = |sum: i32| u64::from(sum as u32);
                let dot = |a: &[i32], b: &[i32], c: i32| {
                    a.iter().zip(b).fold(c, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)))
                };
                return self.run_with(program, warp, |bits| bits as i32, to_bits, dot);
            }
            _ => {}
        }
        let rules = tensor_core_sums.then(|| SumRules::of(operand, operand, accumulator)).flatten();
        let dot = |a: &[f32], b: &[f32], c: f32| match rules {
            Some(rules) => rules.dot(a, b, c),
            None => a.iter().zip(b).fold(c, |sum, (a, b)| a.mul_add(*b, sum)),
        };
        let from_bits = |bits: u64| f32::from_bits(bits as u32);
        self.run_with(program, warp, from_bits, |sum| sum.to_bits().into(), dot);
    }

    fn run_with<T: Copy + Default>(
        &self,
        program: &Program,
        warp: &mut Warp,
        from_bits: impl Fn(u64) -> T,
        to_bits: impl Fn(T) -> u64,
        dot: impl Fn(&[T], &[T], T) -> T,
    ) {
        let WarpMma { m, n, k, operand, .. } = self.mma;
        let [m, n, k] = [m, n, k].map(|extent| extent as usize);
        let operands = |bits: u64| elements(operand, bits).into_iter().map(&from_bits).collect();
        let a = self.a.gather(program, warp, m * k, operands);
        let b = self.b.gather(program, warp, n * k, operands);
        let mut sums = self.c.gather(program, warp, m * n, |bits| vec![from_bits(bits)]);
        let line = |matrix: &[T], at: usize, lines: usize| -> Vec<T> {
            (0..k).map(|i| matrix[at + i * lines]).collect()
        };
        let rows: Vec<_> = (0..m).map(|row| line(&a, row, m)).collect();
        let columns: Vec<_> = (0..n).map(|column| line(&b, column, n)).collect();
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum = dot(&rows[at % m], &columns[at / m], *sum);
        }
        for (&slot, positions) in self.d.iter().zip(&self.c.positions) {
            for (lane, &position) in positions.iter().enumerate() {
                warp.set(slot, lane, to_bits(sums[position as usize]));
            }
        }
    }
}

/// The elements in the bits of an operand's value, in the bits of the type in which they are
/// summed.
fn elements(operand: Element, bits: u64) -> Vec<u64> {
    if operand == Element::F64 {
        return vec![bits];
    }
    let bytes = (bits as u32).to_le_bytes();
    if operand.is_integer() {
        let mut all: Vec<i32> = vec![];
        Scalar::decode(operand, &bytes, &mut all);
        return all.into_iter().map(|element| u64::from(element as u32)).collect();
    }
    let mut all: Vec<f32> = vec![];
    Scalar::decode(operand, &bytes, &mut all);
    all.into_iter().map(|element| element.to_bits().into()).collect()
}

impl Fragment {
    fn new(values: &[Slot], layout: &TvLayout) -> Fragment {
        let position = |element: usize, lane: usize| {
            let index = layout.index(lane as i64, element as i64);
            index.expect("a fragment has a place for each element of each lane") as u32
        };
        let elements = layout.values() as usize;
        Fragment {
            values: values.into(),
            positions: (0..elements)
                .map(|element| std::array::from_fn(|lane| position(element, lane)))
                .collect(),
        }
    }

    /// The matrix, column-major. `elements` has those in the bits of a value.
    fn gather<T: Copy + Default>(
        &self,
        program: &Program,
        warp: &Warp,
        count: usize,
        elements: impl Fn(u64) -> Vec<T>,
    ) -> Vec<T> {
        let mut matrix = vec![T::default(); count];
        let of_value = self.positions.len() / self.values.len().max(1);
        for (&slot, positions) in self.values.iter().zip(self.positions.chunks(of_value)) {
            for (lane, value) in warp.all(program, slot).iter().enumerate() {
                for (element, positions) in elements(*value).into_iter().zip(positions) {
                    matrix[positions[lane] as usize] = element;
                }
            }
        }
        matrix
    }
}
