//! Orders and roundings of additions, as hardware or software may choose them, and products that
//! are added up so.

use super::*;

/// `x + y` truncated to binary32.
pub(super) fn add_truncating(x: f32, y: f32) -> f32 {
    let (x, y) = (f64::from(x), f64::from(y));
    let sum = x + y;
    // Knuth's two-sum: what the double lost.
    let shifted = sum - x;
    let lost = (x - (sum - shifted)) + (y - shifted);
    truncate(sum, lost)
}

/// `value + lost` truncated to binary32, where `lost` is below the last bit of `value`.
pub(super) fn truncate(value: f64, lost: f64) -> f32 {
    let nearest = value as f32;
    let widened = f64::from(nearest);
    let beyond =
        widened.abs() > value.abs() || widened == value && lost != 0.0 && lost * value < 0.0;
    if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// A block of products and the accumulator, aligned to the largest of them with `extra` bits below
/// binary32's last.
pub(super) fn add_block(accumulator: f32, products: &[f64], extra: i32) -> f32 {
    let terms = || products.iter().copied().chain([f64::from(accumulator)]);
    let largest = terms().fold(0.0f64, |largest, term| largest.max(term.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let exponent = ((largest.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let quantum = 2f64.powi((exponent - 23 - extra).max(-149));
    truncate(terms().map(|term| (term / quantum).trunc() * quantum).sum(), 0.0)
}

/// The same as tensor cores do it with 8-bit floats: with 13 bits of fraction.
pub(super) fn add_block_8(accumulator: f32, products: &[f64]) -> f32 {
    let quantum_of = |value: f64| {
        let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        2f64.powi((exponent - 13).max(-149))
    };
    let cut = |value: f64, quantum: f64| (value / quantum).trunc() * quantum;
    let terms = || products.iter().copied().chain([f64::from(accumulator)]);
    let largest = terms().fold(0.0f64, |largest, term| largest.max(term.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let sum: f64 = terms().map(|term| cut(term, quantum_of(largest))).sum();
    cut(sum, quantum_of(sum.abs())) as f32
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Forward,
    Shuffled,
    Tree,
    Truncated,
    TruncatedShuffled,
    TruncatedTree,
    Blocks {
        length: usize,
        extra: i32,
    },
    SplitBlocks {
        slices: usize,
    },
    Blocks8 {
        length: usize,
    },
    /// Blocks of 32 8-bit floats, so many products at a time, and these sums to the nearest.
    Promoted8 {
        interval: usize,
    },
    /// Blocks of 16, so many products at a time, and these sums to the nearest.
    Promoted {
        interval: usize,
    },
    /// Blocks whose sums with the accumulator are rounded to f16, so many products at a time, and
    /// these sums to the nearest.
    F16 {
        length: usize,
        toward_zero: bool,
        interval: usize,
    },
}

impl Order {
    pub(super) fn accumulation(self) -> Accumulation {
        match self {
            Order::Forward | Order::Shuffled | Order::Tree => Accumulation::Nearest,
            Order::Blocks8 { .. } => Accumulation::TensorCore8,
            Order::Promoted8 { interval } => Accumulation::Promoted8(interval as u32),
            Order::Promoted { interval } => Accumulation::Promoted(interval as u32),
            Order::F16 { .. } => Accumulation::TensorCore16,
            _ => Accumulation::TensorCore,
        }
    }

    pub(super) fn sum(self, products: &[f64], rng: &mut StdRng) -> f32 {
        let mut terms: Vec<f32> = products.iter().map(|p| *p as f32).collect();
        let nearest = |x: f32, y: f32| x + y;
        match self {
            Order::Forward => terms.into_iter().fold(0.0, nearest),
            Order::Shuffled => {
                terms.shuffle(rng);
                terms.into_iter().fold(0.0, nearest)
            }
            Order::Tree => tree(terms, nearest, rng),
            Order::Truncated => terms.into_iter().fold(0.0, add_truncating),
            Order::TruncatedShuffled => {
                terms.shuffle(rng);
                terms.into_iter().fold(0.0, add_truncating)
            }
            Order::TruncatedTree => tree(terms, add_truncating, rng),
            Order::Blocks { length, extra } => {
                products.chunks(length).fold(0.0, |sum, block| add_block(sum, block, extra))
            }
            Order::Blocks8 { length } => products.chunks(length).fold(0.0, add_block_8),
            Order::Promoted8 { interval } => products
                .chunks(interval)
                .map(|group| group.chunks(32).fold(0.0, add_block_8))
                .fold(0.0, nearest),
            Order::Promoted { interval } => products
                .chunks(interval)
                .map(|group| group.chunks(16).fold(0.0, |sum, block| add_block(sum, block, 2)))
                .fold(0.0, nearest),
            Order::F16 { length, toward_zero, interval } => products
                .chunks(interval)
                .map(|part| {
                    part.chunks(length).fold(0.0, |sum, block| f16::add(sum, block, toward_zero))
                })
                .fold(0.0, nearest),
            Order::SplitBlocks { slices } => {
                let depth = products.len().div_ceil(slices).next_multiple_of(16).max(16);
                products
                    .chunks(depth)
                    .map(|slice| slice.chunks(16).fold(0.0, |sum, block| add_block(sum, block, 2)))
                    .fold(0.0, nearest)
            }
        }
    }
}

/// Adds random pairs until one number is left.
pub(super) fn tree(mut terms: Vec<f32>, add: impl Fn(f32, f32) -> f32, rng: &mut StdRng) -> f32 {
    while terms.len() > 1 {
        let x = terms.swap_remove(rng.random_range(0..terms.len()));
        let y = terms.swap_remove(rng.random_range(0..terms.len()));
        terms.push(add(x, y));
    }
    terms.pop().unwrap_or(0.0)
}

pub(super) fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::Forward),
        Just(Order::Shuffled),
        Just(Order::Tree),
        Just(Order::Truncated),
        Just(Order::TruncatedShuffled),
        Just(Order::TruncatedTree),
        (prop::sample::select(vec![2usize, 4, 8, 16, 32]), 1..3i32)
            .prop_map(|(length, extra)| Order::Blocks { length, extra }),
        (2..6usize).prop_map(|slices| Order::SplitBlocks { slices }),
        prop::sample::select(vec![32usize, 64]).prop_map(|interval| Order::Promoted { interval }),
    ]
}

pub(super) fn scalars() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), Just(-1.0), -3.0..3.0, Just(1e-20)]
}

pub(super) fn input() -> impl Strategy<Value = Element> {
    prop::sample::select(vec![Element::F16, Element::Bf16, Element::Tf32])
}

pub(super) fn input_8() -> impl Strategy<Value = Element> {
    prop::sample::select(vec![Element::E4m3, Element::E5m2])
}

pub(super) fn output() -> impl Strategy<Value = Element> {
    prop::sample::select(vec![Element::F16, Element::Bf16, Element::F32])
}

/// Computes D with the given order of additions; `a`, `b` and `c` are already in the input type.
pub(super) fn emulate(
    problem: &Problem,
    (a, b, c): (&HostMatrix, &HostMatrix, &HostMatrix),
    output: Element,
    order: Order,
    rng: &mut StdRng,
) -> HostMatrix {
    let mut d = HostMatrix::zeros(problem.d_layout(), output).unwrap();
    let fused: bool = rng.random();
    for row in 0..problem.m {
        for column in 0..problem.n {
            let products: Vec<f64> = (0..problem.k)
                .map(|depth| a.get(row, depth).unwrap() * b.get(depth, column).unwrap())
                .collect();
            let [alpha, beta] = problem.single_scalars().unwrap();
            let product = alpha * order.sum(&products, rng);
            let value = if problem.beta == 0.0 {
                product
            } else {
                let c = c.get(row, column).unwrap() as f32;
                if fused { beta.mul_add(c, product) } else { product + beta * c }
            };
            d.set(row, column, f64::from(value)).unwrap();
        }
    }
    d
}

/// Normal samples times a power of two, some of them far apart, so that additions lose bits.
pub(super) fn fill(matrix: &mut HostMatrix, seed: u64, exponent: i32) {
    matrix.fill_normal(seed);
    let values = matrix.to_f64_vec();
    let columns = matrix.columns();
    matrix.fill_with(|row, column| {
        let spread = ((row * 7 + column * 13) % 5) as i32 - 2;
        values[row * columns + column] * 2f64.powi(exponent + 3 * spread)
    });
}
