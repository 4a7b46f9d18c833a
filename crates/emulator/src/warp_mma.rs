//! Warp-level MMA: the fragments of all lanes are gathered to matrices by their layouts,
//! multiplied, and scattered again.

use pgemm_cute::TvLayout;
use pgemm_ir::{Fragments, WarpMma};

use crate::program::{Fragment, Program, Slot, WarpMmaStep};
use crate::state::Warp;

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

    /// Adds products in the order of k, with one rounding each. The order of the hardware is not
    /// documented.
    pub(crate) fn run(&self, program: &Program, warp: &mut Warp) {
        let WarpMma { m, n, k, .. } = self.mma;
        let [m, n, k] = [m, n, k].map(|extent| extent as usize);
        let a = self.a.gather(program, warp, m * k);
        let b = self.b.gather(program, warp, n * k);
        let mut sums = self.c.gather(program, warp, m * n);
        for (at, sum) in sums.iter_mut().enumerate() {
            let (row, column) = (at % m, at / m);
            for i in 0..k {
                *sum = a[row + i * m].mul_add(b[column + i * n], *sum);
            }
        }
        for (&slot, positions) in self.d.iter().zip(&self.c.positions) {
            for (lane, &position) in positions.iter().enumerate() {
                warp.set(slot, lane, sums[position as usize].to_bits());
            }
        }
    }
}

impl Fragment {
    fn new(values: &[Slot], layout: &TvLayout) -> Fragment {
        let position = |value: usize, lane: usize| {
            let index = layout.index(lane as i64, value as i64);
            index.expect("a fragment has a place for each value of each lane") as u32
        };
        Fragment {
            values: values.into(),
            positions: (0..values.len())
                .map(|value| std::array::from_fn(|lane| position(value, lane)))
                .collect(),
        }
    }

    /// The matrix, column-major.
    fn gather(&self, program: &Program, warp: &Warp, elements: usize) -> Vec<f64> {
        let mut matrix = vec![0.0; elements];
        for (&slot, positions) in self.values.iter().zip(&self.positions) {
            for (value, &position) in warp.all(program, slot).iter().zip(positions) {
                matrix[position as usize] = f64::from_bits(*value);
            }
        }
        matrix
    }
}
