//! Problems of attention, and their solution in binary64.

#[path = "random.rs"]
pub mod random;

use half::bf16;
use persistent_gemm::language::{Element, TensorMapArgument};
use persistent_gemm::program::Arguments;
use pgemm_examples::attention::{Gradients, Of, statistics_grid};

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

    /// The tensor maps of arrays that have the positions of queries, and of those that have the
    /// positions of keys.
    pub fn maps(
        &self,
        arguments: Arguments,
        of_queries: &[(&str, u64)],
        of_keys: &[(&str, u64)],
    ) -> Arguments {
        let sides = [(of_queries, self.heads, self.queries), (of_keys, self.kv_heads, self.keys)];
        sides.into_iter().fold(arguments, |arguments, (arrays, heads, positions)| {
            arrays.iter().fold(arguments, |arguments, &(name, address)| {
                arguments.with(name, self.map(address, heads, positions)).unwrap()
            })
        })
    }

    /// The arguments of the statistics of packed outputs.
    pub fn statistics(&self, arguments: Arguments, addresses: [(&str, u64); 4]) -> Arguments {
        let position = self.head_dim as u64;
        let head = position * self.queries as u64;
        let strides = [
            ("position_stride", position),
            ("head_stride", head),
            ("sequence_stride", head * self.heads as u64),
        ];
        let numbers = addresses.into_iter().chain(strides);
        let arguments = arguments.with("queries", self.queries as u32).unwrap();
        numbers.fold(arguments, |arguments, (name, number)| arguments.with(name, number).unwrap())
    }

    /// The grid of a kernel of gradients.
    pub fn grid_of(&self, kernel: &Gradients) -> [u32; 3] {
        let (rows, heads) = match kernel.of {
            Of::KeysAndValues => (self.keys, self.kv_heads),
            Of::Queries => (self.queries, self.heads),
        };
        kernel.grid(rows as u32, heads as u32, self.sequences as u32)
    }

    /// The grid of their statistics.
    pub fn grid_of_statistics(&self) -> [u32; 3] {
        let [head_dim, queries, heads, sequences] =
            [self.head_dim, self.queries, self.heads, self.sequences].map(|count| count as u32);
        statistics_grid(head_dim, queries, heads, sequences)
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
        score_error = score_error.max(head_dim as f64 * CUT * magnitude);
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
/// What the tensor cores cut off from a sum at each addition, as a part of its largest term.
const CUT: f64 = 1.0 / (1 << 23) as f64;

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

/// What the gradients are computed of. The output and the logarithms are as a kernel has rounded
/// them.
#[derive(Clone, Copy)]
pub struct Inputs<'i> {
    pub q: &'i [bf16],
    pub k: &'i [bf16],
    pub v: &'i [bf16],
    pub o: &'i [bf16],
    pub d_o: &'i [bf16],
    pub lse: &'i [f32],
}

/// Of a query and a key that it sees: the weight, and the gradient of the score. Each has the bound
/// of its error before it is rounded to bf16.
struct Pair {
    weight: [f64; 2],
    slope: [f64; 2],
}

/// The sum of the products of two rows, and that of their magnitudes.
fn product(x: &[bf16], y: &[bf16]) -> [f64; 2] {
    let products = x.iter().zip(y).map(|(x, y)| x.to_f64() * y.to_f64());
    products.fold([0.0; 2], |[sum, size], product| [sum + product, size + product.abs()])
}

/// A gradient: the sum of so many rows with factors that are rounded to bf16.
pub struct Gradient {
    values: Vec<f64>,
    errors: Vec<f64>,
    magnitudes: Vec<f64>,
    terms: f64,
}

impl Gradient {
    fn new(head_dim: usize) -> Self {
        let zeros = || vec![0.0; head_dim];
        Gradient { values: zeros(), errors: zeros(), magnitudes: zeros(), terms: 0.0 }
    }

    fn add(&mut self, [factor, error]: [f64; 2], row: &[bf16]) {
        let rounded = (factor.abs() + error) * (1.0 + HALF_UNIT);
        for (at, element) in row.iter().map(|element| element.to_f64()).enumerate() {
            self.values[at] += factor * element;
            self.errors[at] += (rounded - factor.abs()) * element.abs();
            self.magnitudes[at] += rounded * element.abs();
        }
        self.terms += 1.0;
    }

    /// Fails unless `scale` times the sum is within its bound.
    #[track_caller]
    pub fn check(&self, scale: f64, found: &[bf16], what: &str, place: [usize; 3]) {
        for (at, found) in found.iter().enumerate() {
            let expected = scale * self.values[at];
            let bound = scale * (self.errors[at] + self.terms * CUT * self.magnitudes[at]);
            let bound = bound + (expected.abs() + bound) * HALF_UNIT;
            let error = (found.to_f64() - expected).abs();
            assert!(
                error <= bound,
                "{what} {place:?}, element {at}: {found} instead of {expected}, and the bound is \
                 {bound}"
            );
        }
    }
}

impl Problem {
    fn query_row<'i>(&self, rows: &'i [bf16], [sequence, head, at]: [usize; 3]) -> &'i [bf16] {
        let row = (sequence * self.heads + head) * self.queries + at;
        &rows[row * self.head_dim..][..self.head_dim]
    }

    fn key_row<'i>(&self, rows: &'i [bf16], [sequence, head, at]: [usize; 3]) -> &'i [bf16] {
        let row = (sequence * self.kv_heads + head) * self.keys + at;
        &rows[row * self.head_dim..][..self.head_dim]
    }

    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    fn pair(&self, inputs: &Inputs<'_>, query: [usize; 3], key: [usize; 3]) -> Option<Pair> {
        if self.causal && key[2] + self.queries > self.keys + query[2] {
            return None;
        }
        let lse = inputs.lse[(query[0] * self.heads + query[1]) * self.queries + query[2]];
        let (lse, scale) = (f64::from(lse), f64::from(self.scale()));
        let d_o = self.query_row(inputs.d_o, query);
        let (q, k) = (self.query_row(inputs.q, query), self.key_row(inputs.k, key));
        let [score, size] = product(q, k);
        let (depth, unit) = (self.head_dim as f64, 2f64.powi(-23));
        // The score, its factor, the logarithm, their difference and the power of two.
        let error = depth * CUT * scale * size + 2.0 * unit * (lse.abs() + score.abs() * scale);
        let weight = (score * scale - lse).exp();
        let weight_error = weight * (error + 2.0 * unit).exp_m1();
        let [slope, slope_size] = product(d_o, self.key_row(inputs.v, key));
        let [delta, delta_size] = product(d_o, self.query_row(inputs.o, query));
        let slope_error = depth * (CUT * slope_size + unit * delta_size);
        let difference = (slope - delta).abs() + slope_error;
        let error = weight_error * difference
            + weight * (slope_error + 2.0 * unit * difference)
            + weight_error * unit * difference;
        Some(Pair { weight: [weight, weight_error], slope: [weight * (slope - delta), error] })
    }

    /// The gradients of the key and of the value at this position of this head. The first one lacks
    /// the factor of the scores.
    pub fn gradients_of_key(&self, inputs: &Inputs<'_>, key: [usize; 3]) -> [Gradient; 2] {
        let [mut of_key, mut of_value] = [(); 2].map(|()| Gradient::new(self.head_dim));
        let [sequence, kv_head, _] = key;
        for head in kv_head * self.group()..(kv_head + 1) * self.group() {
            for query in (0..self.queries).map(|at| [sequence, head, at]) {
                if let Some(pair) = self.pair(inputs, query, key) {
                    of_key.add(pair.slope, self.query_row(inputs.q, query));
                    of_value.add(pair.weight, self.query_row(inputs.d_o, query));
                }
            }
        }
        [of_key, of_value]
    }

    /// The gradient of the query at this position of this head, without the factor of the scores.
    pub fn gradient_of_query(&self, inputs: &Inputs<'_>, query: [usize; 3]) -> Gradient {
        let mut gradient = Gradient::new(self.head_dim);
        let [sequence, head, _] = query;
        for key in (0..self.keys).map(|at| [sequence, head / self.group(), at]) {
            if let Some(pair) = self.pair(inputs, query, key) {
                gradient.add(pair.slope, self.key_row(inputs.k, key));
            }
        }
        gradient
    }
}
