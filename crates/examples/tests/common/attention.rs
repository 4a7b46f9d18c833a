//! Problems of attention, and their solution in binary64.

#[path = "random.rs"]
pub mod random;

use half::bf16;
use persistent_gemm::language::{Element, TensorMapArgument};
use persistent_gemm::program::Arguments;

use self::random::Random;

/// The shapes of a problem. Inputs are stored in the order (sequence, head, position, element).
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    pub head_dim: usize,
    pub causal: bool,
    pub sequences: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub queries: usize,
    pub keys: usize,
}

impl Problem {
    /// Queries, keys and values, which are drawn from the normal distribution.
    pub fn inputs(&self) -> [Vec<bf16>; 3] {
        let mut random = Random::new(1);
        [(self.heads, self.queries), (self.kv_heads, self.keys), (self.kv_heads, self.keys)].map(
            |(heads, positions)| random.normals(self.sequences * heads * positions * self.head_dim),
        )
    }

    /// The factor of the scores.
    pub fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// The tensor map of an input or of the outputs.
    pub fn map(&self, address: u64, heads: usize, positions: usize) -> TensorMapArgument {
        let extents = [self.head_dim, positions, heads, self.sequences].map(|extent| extent as u64);
        TensorMapArgument::packed(address, Element::Bf16, &extents)
    }

    /// The arguments that are numbers.
    pub fn scalars(&self, arguments: Arguments) -> Arguments {
        let arguments = arguments.with("queries", self.queries as u32).unwrap();
        let arguments = arguments.with("keys", self.keys as u32).unwrap();
        let arguments =
            arguments.with("heads_per_kv", (self.heads / self.kv_heads) as u32).unwrap();
        arguments.with("scale", self.scale()).unwrap()
    }
}

/// The output of one query in binary64, with the sum of the absolute values of its terms, and the
/// logarithm of the sum of the exponentials, with a bound of its error.
pub struct Row {
    pub output: Vec<f64>,
    pub magnitudes: Vec<f64>,
    pub log: f64,
    /// Bound of the error of a score times the scale.
    pub score_error: f64,
}

/// The row of the query at this position of this head.
pub fn row(
    problem: &Problem,
    [q, k, v]: [&[bf16]; 3],
    [sequence, head, position]: [usize; 3],
) -> Row {
    let Problem { head_dim, heads, kv_heads, queries, keys, .. } = *problem;
    let query = ((sequence * heads + head) * queries + position) * head_dim;
    let query = &q[query..query + head_dim];
    let kv_head = sequence * kv_heads + head / (heads / kv_heads);
    let of = |values: &[bf16], key: usize| -> Vec<f64> {
        let at = (kv_head * keys + key) * head_dim;
        values[at..at + head_dim].iter().map(|value| value.to_f64()).collect()
    };
    let visible = match problem.causal {
        true => (keys + position + 1).saturating_sub(queries).min(keys),
        false => keys,
    };
    let scale = f64::from(problem.scale());
    let (mut scores, mut score_error) = (vec![], 0.0f64);
    for key in 0..visible {
        let products = query.iter().zip(of(k, key)).map(|(q, k)| q.to_f64() * k);
        let products: Vec<f64> = products.collect();
        scores.push(products.iter().sum::<f64>() * scale);
        let magnitude = products.iter().map(|product| product.abs()).sum::<f64>() * scale;
        // The tensor cores cut each addition off at 2^-23 of the largest term, at the most once for
        // each of the products.
        score_error = score_error.max(head_dim as f64 * 2f64.powi(-23) * magnitude);
    }
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    let (mut output, mut magnitudes) = (vec![0.0; head_dim], vec![0.0; head_dim]);
    for (key, power) in powers.iter().enumerate() {
        for (at, value) in of(v, key).into_iter().enumerate() {
            output[at] += power / sum * value;
            magnitudes[at] += power / sum * value.abs();
        }
    }
    Row { output, magnitudes, log: largest + sum.ln(), score_error }
}

/// The largest relative error of a rounding to bf16, which has eight significant bits.
const HALF_UNIT: f64 = 1.0 / 256.0;

/// Fails unless the output and the logarithm of a row are within the bounds that follow from the
/// roundings: of the exponentials and of the result to bf16, of the scores and of sums in
/// binary32.
#[track_caller]
pub fn check_row(row: &Row, keys: usize, output: &[bf16], log: f32, place: [usize; 3]) {
    // Scores have an error, their exponentials one of two units in the last place, and sums in
    // binary32 have at most one rounding for each key.
    let relative = 2.0 * row.score_error + 2f64.powi(-21) + keys as f64 * 2f64.powi(-23);
    for (at, value) in output.iter().enumerate() {
        let (expected, magnitude) = (row.output[at], row.magnitudes[at]);
        let bound = magnitude * (HALF_UNIT + relative);
        let bound = bound + (expected.abs() + bound) * HALF_UNIT;
        let error = (value.to_f64() - expected).abs();
        assert!(
            error <= bound,
            "{place:?}, element {at}: {value} instead of {expected}, and the bound is {bound}"
        );
    }
    if row.log.is_finite() {
        let (log, bound) = (f64::from(log), relative + row.log.abs() * 2f64.powi(-21));
        assert!(
            (log - row.log).abs() <= bound,
            "{place:?}: logarithm {log} instead of {}",
            row.log
        );
    } else {
        assert_eq!(f64::from(log), row.log, "{place:?}");
    }
}
