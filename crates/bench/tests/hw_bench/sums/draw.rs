//! Random tiles of several distributions, and their comparison with the model.

use pgemm_ir::{Element, Type};
use pgemm_kernels::SumProbe;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use super::kinds::{Kind, format_of, nearest_bits, unused_bits};
use super::record::Record;

/// A distribution of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// N(0, 1), and C as large as a sum.
    Normal,
    /// From 1 to 2, so that sums carry.
    Positive,
    /// N(0, 1) times powers of two.
    Wide,
    /// The second half of A cancels the first half, but for some last bits of B.
    Cancelling,
    /// Subnormal numbers, and numbers whose products are subnormal.
    Small,
    /// All finite bit patterns.
    Bits,
    /// N(0, 1), with infinities, NaN, zeros and the largest numbers among them.
    Special,
}

impl Draw {
    pub const ALL: [Draw; 7] = [
        Draw::Normal,
        Draw::Positive,
        Draw::Wide,
        Draw::Cancelling,
        Draw::Small,
        Draw::Bits,
        Draw::Special,
    ];

    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Tiles of a distribution.
pub struct Drawn {
    draw: Draw,
    a: Vec<u64>,
    b: Vec<u64>,
    c: Vec<u64>,
    n: usize,
    depth: usize,
}

const M: usize = SumProbe::M as usize;

impl Drawn {
    pub fn new(kind: &Kind, probe: &SumProbe, draw: Draw, tiles: u32) -> Drawn {
        let (tiles, n, depth) =
            (tiles as usize, probe.instruction.n() as usize, probe.depth() as usize);
        let mut source = Source(StdRng::seed_from_u64(seed() << 32 | draw as u64));
        let mut a: Vec<u64> =
            (0..tiles * M * depth).map(|_| source.element(draw, kind.a, true)).collect();
        let mut b: Vec<u64> =
            (0..tiles * n * depth).map(|_| source.element(draw, kind.b, false)).collect();
        if draw == Draw::Cancelling {
            let sign = 1 << (kind.a.bits() - 1);
            for line in a.chunks_exact_mut(depth) {
                let (first, second) = line.split_at_mut(depth / 2);
                for (first, second) in first.iter().zip(second) {
                    *second = first ^ sign;
                }
            }
            for line in b.chunks_exact_mut(depth) {
                let (first, second) = line.split_at_mut(depth / 2);
                for (first, second) in first.iter().zip(second) {
                    *second = first ^ u64::from(source.below(4) == 0) << unused_bits(kind.b);
                }
            }
        }
        let c = (0..tiles * M * n).map(|_| source.sum(draw, kind, depth)).collect();
        Drawn { draw, a, b, c, n, depth }
    }

    pub fn operands(&self) -> [&[u64]; 3] {
        [&self.a, &self.b, &self.c]
    }

    /// The operands of a sum.
    fn lines(&self, at: usize, accumulate: bool) -> (&[u64], &[u64], u64) {
        let (tile, row, column) = (at / (M * self.n), at / self.n % M, at % self.n);
        let line = |line: usize| line * self.depth..(line + 1) * self.depth;
        let a = &self.a[line(tile * M + row)];
        let b = &self.b[line(tile * self.n + column)];
        (a, b, if accumulate { self.c[at] } else { 0 })
    }

    /// A sum.
    pub fn record(&self, at: usize, accumulate: bool) -> Record {
        let (a, b, c) = self.lines(at, accumulate);
        Record { label: format!("{} {at}", self.draw.name()), a: a.to_vec(), b: b.to_vec(), c }
    }

    /// The sums that differ from the model, with what it says.
    pub fn wrong(&self, kind: &Kind, found: &[u64], accumulate: bool) -> Vec<(usize, u64)> {
        let compared = found.par_iter().enumerate().filter_map(|(at, &found)| {
            let (a, b, c) = self.lines(at, accumulate);
            let expected = kind.expected(a, b, c);
            (!kind.same(found, expected)).then_some((at, expected))
        });
        compared.collect()
    }
}

/// A source of random numbers.
struct Source(StdRng);

impl Source {
    fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0.random_range(0.0..1.0)
    }

    /// About N(0, 1).
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// 2^U, U an integer up to `range` from zero.
    fn power(&mut self, range: u64) -> f64 {
        2f64.powi(self.below(2 * range + 1) as i32 - range as i32)
    }

    fn element(&mut self, draw: Draw, element: Element, is_a: bool) -> u64 {
        let range = match format_of(element).exponent_bits {
            4 => 6,
            5 => 12,
            8 => 25,
            _ => 40,
        };
        match draw {
            Draw::Normal | Draw::Cancelling => nearest_bits(element, self.normal()),
            Draw::Positive => nearest_bits(element, 1.0 + self.unit()),
            Draw::Wide => nearest_bits(element, self.normal() * self.power(range)),
            Draw::Small => self.small(element, is_a),
            Draw::Bits => self.finite(element),
            Draw::Special if self.below(24) == 0 => self.special(element),
            Draw::Special => nearest_bits(element, self.normal()),
        }
    }

    /// A number that is subnormal, or of which the product with another is.
    fn small(&mut self, element: Element, is_a: bool) -> u64 {
        let format = format_of(element);
        let stored = match (format.exponent_bits, is_a) {
            (8, true) if self.below(8) == 0 => self.below(3),
            (8, false) if self.below(8) == 0 => 100 + self.below(30),
            (8, _) => 40 + self.below(35),
            (11, false) => 960 + self.below(64),
            (_, true) => self.below(3),
            (bits, false) => self.below((1 << bits) - 1),
        };
        let sign_and_mantissa = self.below(2 << format.mantissa_bits);
        let mantissa = sign_and_mantissa >> 1;
        let sign = (sign_and_mantissa & 1) << (format.exponent_bits + format.mantissa_bits);
        (sign | stored << format.mantissa_bits | mantissa) << unused_bits(element)
    }

    /// A finite bit pattern, which is a number of the element in all of its bits.
    fn finite(&mut self, element: Element) -> u64 {
        let sign = 1 << (element.bits() - 1);
        loop {
            let bits = self.0.random_range(0..=u64::MAX) >> (64 - element.bits());
            if (bits & !sign) >> unused_bits(element) <= format_of(element).largest_bits() {
                return bits;
            }
        }
    }

    fn special(&mut self, element: Element) -> u64 {
        let format = format_of(element);
        let largest = format.largest_bits();
        let infinity = if format.infinities { largest + 1 } else { largest };
        let nan = (1 << (format.exponent_bits + format.mantissa_bits)) - 1;
        let magnitude = [infinity, nan, 0, largest, 1][self.below(5) as usize];
        let sign = self.below(2) << (format.exponent_bits + format.mantissa_bits);
        (sign | magnitude) << unused_bits(element)
    }

    /// An element of C.
    fn sum(&mut self, draw: Draw, kind: &Kind, depth: usize) -> u64 {
        let element = kind.sum();
        let bits = match draw {
            Draw::Normal => nearest_bits(element, self.normal() * (depth as f64).sqrt()),
            Draw::Positive => nearest_bits(element, self.unit() * 4.0 * depth as f64),
            Draw::Cancelling => nearest_bits(element, self.normal() * self.power(12)),
            Draw::Small if format_of(kind.a).exponent_bits >= 8 => self.small_sum(element),
            Draw::Bits if self.below(2) == 0 => self.finite(element),
            Draw::Special if self.below(8) == 0 => self.special(element),
            Draw::Special => nearest_bits(element, self.normal()),
            Draw::Wide | Draw::Small | Draw::Bits => {
                nearest_bits(element, self.normal() * self.power(24))
            }
        };
        if kind.accumulator != Type::B32 {
            return bits;
        }
        half::f16::from_bits(bits as u16).to_f32().to_bits().into()
    }

    /// A binary32 or binary64 with one of the smallest exponents.
    fn small_sum(&mut self, element: Element) -> u64 {
        let format = format_of(element);
        let stored = self.below(40) << format.mantissa_bits;
        let sign = self.below(2) << (element.bits() - 1);
        sign | stored | self.below(1 << format.mantissa_bits)
    }
}

/// Numbers the draws: `PGEMM_SEED`, or 0. The model's facts were found with the draws of seed 0, so
/// a claim about the model takes another one.
fn seed() -> u64 {
    std::env::var("PGEMM_SEED").ok().map_or(0, |seed| {
        seed.parse::<u32>()
            .unwrap_or_else(|_| panic!("PGEMM_SEED={seed}: it takes a number"))
            .into()
    })
}
