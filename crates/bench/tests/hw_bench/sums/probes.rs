//! Probing inputs. Each is made so that rules of sums, right or wrong, give it different results.

use pgemm_ir::Type;

use super::kinds::{Kind, bits_of, format_of};
use super::record::Record;

/// Distances over which alignment is swept.
const DISTANCES: i32 = 64;

/// All probing inputs of a kind.
pub fn all(kind: &Kind) -> Vec<Record> {
    let write = Writer { kind };
    [write.pairs(), write.alignment(), write.rounding(), write.single(), write.specials()].concat()
}

/// What the results show, in few lines.
pub fn summary(kind: &Kind, records: &[Record], found: &[u64]) -> Vec<String> {
    let write = Writer { kind };
    let named: Vec<(&str, u64)> =
        records.iter().map(|record| record.label.as_str()).zip(found.iter().copied()).collect();
    vec![write.pairs_shown(&named), write.kept(&named), write.rounded(&named)]
}

/// A sum that is being written.
struct Sum {
    a: Vec<f64>,
    b: Vec<f64>,
    c: f64,
}

struct Writer<'k> {
    kind: &'k Kind,
}

impl Writer<'_> {
    fn is_f64(&self) -> bool {
        self.kind.accumulator == Type::F64
    }

    /// The exponent of large terms, which both a product and an accumulator can have.
    fn high(&self) -> i32 {
        let largest = |bits: i32| (1 << (bits - 1)) - 1;
        let [a, b] = [self.kind.a, self.kind.b]
            .map(|element| largest(format_of(element).exponent_bits as i32).min(40));
        let high = if format_of(self.kind.a).infinities { a } else { a + 1 } + b;
        if self.kind.accumulator == Type::B32 {
            15
        } else {
            high.min(if self.is_f64() { 100 } else { 30 })
        }
    }

    fn zeros(&self) -> Sum {
        let k = self.kind.k();
        Sum { a: vec![0.0; k], b: vec![0.0; k], c: 0.0 }
    }

    /// Factors whose product is `sign`·2^`exponent`: normal ones if there are any.
    fn factors(&self, sign: f64, exponent: i32) -> Option<(f64, f64)> {
        let mut splits: Vec<i32> = (-300..300).collect();
        splits.sort_by_key(|split: &i32| split.abs());
        splits.into_iter().find_map(|split| {
            let a = exponent.div_euclid(2) + split;
            let (a, b) = (2f64.powi(a), 2f64.powi(exponent - a));
            bits_of(self.kind.a, a).and(bits_of(self.kind.b, b)).map(|_| (sign * a, b))
        })
    }

    /// The record of a sum, if the types can represent it.
    fn record(&self, label: String, sum: &Sum) -> Option<Record> {
        let kind = self.kind;
        let bits = |element, values: &[f64]| -> Option<Vec<u64>> {
            values.iter().map(|&value| bits_of(element, value)).collect()
        };
        bits_of(kind.sum(), sum.c)?;
        let (a, b) = (bits(kind.a, &sum.a)?, bits(kind.b, &sum.b)?);
        Some(Record { label, a, b, c: kind.sum_bits(sum.c) })
    }

    /// A large number at one place, its negative at another, and small ones at all others. Those
    /// that are added after the large ones have cancelled are left. The last place is C.
    fn pairs(&self) -> Vec<Record> {
        let k = self.kind.k();
        let high = self.high();
        let small = high - self.far();
        let mut records = Vec::new();
        for (i, j) in (0..=k).flat_map(|i| (i + 1..=k).map(move |j| (i, j))) {
            let mut sum = self.zeros();
            for place in 0..=k {
                let sign = if place == j { -1.0 } else { 1.0 };
                let exponent = if place == i || place == j { high } else { small };
                match self.factors(sign, exponent) {
                    Some(_) if place == k => sum.c = sign * 2f64.powi(exponent),
                    Some((a, b)) => (sum.a[place], sum.b[place]) = (a, b),
                    None => return records,
                }
            }
            records.extend(self.record(format!("pair {i} {j}"), &sum));
        }
        records
    }

    /// How far the small numbers of pairs are below the large ones.
    fn far(&self) -> i32 {
        match self.kind.rules {
            None => 100,
            Some(rules) => rules.fraction_bits as i32 + 3,
        }
    }

    fn pairs_shown(&self, found: &[(&str, u64)]) -> String {
        let small = 2f64.powi(self.high() - self.far());
        let counts: Vec<(&str, f64)> = found
            .iter()
            .filter_map(|&(label, bits)| {
                Some((label.strip_prefix("pair ")?, self.kind.sum_value(bits) / small))
            })
            .collect();
        let mut distinct: Vec<f64> = counts.iter().map(|&(_, count)| count).collect();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        if let [all] = distinct[..] {
            return format!("pairs: {all} small terms are left of {} pairs", counts.len());
        }
        // The neighbours, and all partners of the first.
        let shown = counts.iter().filter(|(label, _)| {
            let places: Vec<usize> = label.split(' ').map(|place| place.parse().unwrap()).collect();
            places[0] == 0 || places[1] == places[0] + 1
        });
        let shown: Vec<String> =
            shown.map(|(label, count)| format!("{}:{count}", label.replace(' ', "-"))).collect();
        format!("pairs: left {}", shown.join(" "))
    }

    /// A small term beside two large ones that cancel, at growing distances.
    fn alignment(&self) -> Vec<Record> {
        let high = self.high();
        let mut records = Vec::new();
        for distance in 0..DISTANCES {
            for sign in [1.0, -1.0] {
                let mut write =
                    |name: &str, large: [Option<(f64, f64)>; 2], small: i32, c: [f64; 2]| {
                        let mut sum = self.zeros();
                        let [Some(first), Some(second)] = large else { return };
                        (sum.a[0], sum.b[0]) = first;
                        (sum.a[1], sum.b[1]) = second;
                        sum.c = c[0] + c[1] * sign * 2f64.powi(small);
                        if c[1] == 0.0 {
                            let Some(product) = self.factors(sign, small) else { return };
                            (sum.a[2], sum.b[2]) = product;
                        }
                        let sign = if sign > 0.0 { '+' } else { '-' };
                        records.extend(self.record(format!("{name}{sign} {distance}"), &sum));
                    };
                let (large, negative) = (self.factors(1.0, high), self.factors(-1.0, high));
                let small = high - distance;
                write("product", [large, negative], small, [0.0; 2]);
                write("c", [large, negative], small, [0.0, 1.0]);
                write("beside-c", [negative, Some((0.0, 0.0))], small, [2f64.powi(high), 0.0]);
                // 1.5 times 1.5 reaches 2, and the factors' exponents do not show it.
                let square =
                    |sign: f64| self.factors(sign, high - 2).map(|(a, b)| (1.5 * a, 1.5 * b));
                write("square", [square(1.0), square(-1.0)], high - 2 - distance, [0.0; 2]);
                // The smallest subnormal number times the largest power of two.
                let format = format_of(self.kind.a);
                let least = 2f64.powi(format.least_exponent() - format.mantissa_bits as i32);
                let power = self.high().min(format_of(self.kind.b).least_exponent().abs());
                let product = |sign: f64| Some((sign * least, 2f64.powi(power)));
                let exponent = format.least_exponent() + power;
                write("subnormal", [product(1.0), product(-1.0)], exponent - distance, [0.0; 2]);
                // A product of zero beside a small one: whether it counts as its factors.
                let zero = Some((0.0, 2f64.powi(power)));
                write("zero", [zero, zero], exponent - distance, [0.0; 2]);
            }
        }
        records
    }

    /// The largest distance at which each small term is left, positive and negative, and what the
    /// negative one is in the end.
    fn kept(&self, found: &[(&str, u64)]) -> String {
        let mut text = "kept to:".to_owned();
        for name in ["product", "c", "beside-c", "square", "subnormal", "zero"] {
            for sign in ["+", "-"] {
                let prefix = format!("{name}{sign} ");
                let swept: Vec<(i32, u64)> = found
                    .iter()
                    .filter_map(|(label, bits)| {
                        Some((label.strip_prefix(&prefix)?.parse().ok()?, *bits))
                    })
                    .collect();
                let left = |bits: u64| self.kind.sum_value(bits) != 0.0;
                let last = swept.iter().rfind(|&&(_, bits)| left(bits));
                let shown = last.map_or("none".to_owned(), |(distance, _)| distance.to_string());
                // All distances were kept that the types have.
                let all = last.is_some() && last == swept.last();
                let gap = swept
                    .iter()
                    .zip(swept.iter().skip(1))
                    .any(|(&(_, one), &(_, next))| !left(one) && left(next));
                let marks = format!("{}{}", if all { "≥" } else { "" }, if gap { "?" } else { "" });
                text.push_str(&format!(" {name}{sign} {marks}{shown}"));
            }
        }
        text
    }

    /// Quarters of the last place beside numbers that are odd or even there, and beside a sum that
    /// carries to 2.
    fn rounding(&self) -> Vec<Record> {
        let last = self.last_place();
        let mut records = Vec::new();
        for (name, ones, odd) in [("even", 1, 0.0), ("odd", 1, 1.0), ("carried", 2, 0.0)] {
            for sign in [1.0, -1.0] {
                for quarters in 1..8 {
                    let mut sum = self.zeros();
                    sum.c = sign * (1.0 + odd * 2f64.powi(last));
                    if ones == 2 {
                        (sum.a[3], sum.b[3]) = (sign, 1.0);
                    }
                    for bit in 0..3 {
                        if quarters >> bit & 1 == 0 {
                            continue;
                        }
                        let exponent = last - 3 + ones + bit;
                        let Some(product) = self.factors(sign, exponent) else { continue };
                        (sum.a[bit as usize], sum.b[bit as usize]) = product;
                    }
                    let sign = if sign > 0.0 { '+' } else { '-' };
                    let label = format!("round {name}{sign} {quarters}");
                    records.extend(self.record(label, &sum));
                }
            }
        }
        records
    }

    /// The exponent of the last place of a sum from 1 to 2.
    fn last_place(&self) -> i32 {
        -self.kind.rules.map_or(52, |rules| rules.result_bits as i32)
    }

    /// By quarters added, the last places that the sum has grown.
    fn rounded(&self, found: &[(&str, u64)]) -> String {
        let last = 2f64.powi(self.last_place());
        let mut text = "rounded:".to_owned();
        let mut shown = String::new();
        for (label, bits) in found {
            let Some(label) = label.strip_prefix("round ") else { continue };
            let Some((name, _)) = label.split_once(' ') else { continue };
            if name != shown {
                text.push_str(&format!(" {name} "));
                name.clone_into(&mut shown);
            }
            let base = match name.trim_end_matches(['+', '-']) {
                "odd" => 1.0 + last,
                "carried" => 2.0,
                _ => 1.0,
            };
            text.push_str(&((self.kind.sum_value(*bits).abs() - base) / last).to_string());
        }
        text
    }

    /// C alone, with bits that sums may not have, and its smallest and largest numbers.
    fn single(&self) -> Vec<Record> {
        let kind = self.kind;
        let format = format_of(kind.sum());
        let (one, places) = (format.bias() as u64, format.mantissa_bits);
        let patterns = [
            ("c-all", ((one + 1) << places) - 1),
            ("c-least", 1),
            ("c-subnormal", (1 << places) - 1),
            ("c-most", format.largest_bits()),
            ("c-quiet", format.largest_bits() + 1 + (1 << (places - 1))),
            ("c-signalling", format.largest_bits() + 2),
        ];
        let zeros = vec![0; kind.k()];
        let sign = 1 << (kind.sum().bits() - 1);
        let both = patterns
            .into_iter()
            .flat_map(|(name, bits)| [(name.to_owned(), bits), (format!("-{name}"), bits | sign)]);
        let record = |(label, bits): (String, u64)| {
            let c = match kind.accumulator {
                Type::B32 => half::f16::from_bits(bits as u16).to_f32().to_bits().into(),
                _ => bits,
            };
            Record { label, a: zeros.clone(), b: zeros.clone(), c }
        };
        both.map(record).collect()
    }

    /// Infinities, NaN, signs of zeros, overflow and underflow.
    fn specials(&self) -> Vec<Record> {
        let (a, b) = (format_of(self.kind.a), format_of(self.kind.b));
        let k = self.kind.k();
        let mut records = Vec::new();
        // Products, whether the first fills all places, and C.
        let mut write = |name: &str, products: &[(f64, f64)], fills: bool, c: f64| {
            let mut sum = Sum { c, ..self.zeros() };
            let filled = products.iter().cycle().take(if fills { k } else { products.len() });
            for (place, &(a, b)) in filled.enumerate() {
                (sum.a[place], sum.b[place]) = (a, b);
            }
            records.extend(self.special_record(name.to_owned(), &sum));
        };
        let (infinity, nan) = (f64::INFINITY, f64::NAN);
        write("zeros", &[(0.0, 1.0)], true, 0.0);
        write("-0+-0", &[(-0.0, 1.0)], true, -0.0);
        write("0+-0", &[(0.0, 1.0)], true, -0.0);
        write("-0+0", &[(-0.0, 1.0)], true, 0.0);
        write("1-1", &[(-1.0, 1.0)], false, 1.0);
        write("nan", &[(nan, 1.0)], false, 0.0);
        write("-nan", &[(-nan, 1.0)], false, 0.0);
        write("inf", &[(infinity, 1.0)], false, 1.0);
        write("-inf", &[(infinity, -1.0)], false, 1.0);
        write("inf·0", &[(infinity, 0.0)], false, 1.0);
        write("inf-inf", &[(infinity, 1.0), (infinity, -1.0)], false, 0.0);
        write("inf-c", &[(infinity, 1.0)], false, -infinity);
        write("c-inf", &[(1.0, 1.0)], false, -infinity);
        let most = |format: pgemm_ir::FloatFormat| 2f64.powi(format.bias());
        write("most²", &[(most(a), most(b))], true, 0.0);
        write("most²-most²", &[(most(a), most(b)), (-most(a), most(b)), (1.0, 1.0)], false, 0.0);
        let c = format_of(self.kind.sum());
        let half = c.bias() / 2;
        let large = (2f64.powi(half), 2f64.powi(c.bias() - half));
        write("overflow", &[large, large], false, 0.0);
        write("overflow-back", &[large, large, (-large.0, large.1)], false, 0.0);
        write("c-overflow", &[large], false, most(c));
        // Quarters of the smallest subnormal sum, down to sixteenths.
        let least = c.least_exponent() - c.mantissa_bits as i32;
        for part in 0..5 {
            let Some(product) = self.factors(1.0, least - part) else { continue };
            write(&format!("least/{}", 1 << part), &[product], false, 0.0);
            write(&format!("all-least/{}", 1 << part), &[product], true, 0.0);
            write(&format!("-least/{}", 1 << part), &[(-product.0, product.1)], false, 0.0);
        }
        if let (Some(product), Some(next)) =
            (self.factors(1.0, c.least_exponent() + 2), self.factors(-1.0, least + 1))
        {
            write("to-subnormal", &[product, next], false, 0.0);
        }
        records
    }

    /// As [`record`](Self::record), with infinities and NaN where the types have them.
    fn special_record(&self, label: String, sum: &Sum) -> Option<Record> {
        let kind = self.kind;
        let bits = |element: pgemm_ir::Element, value: f64| {
            let format = format_of(element);
            let unused = super::kinds::unused_bits(element);
            let sign = u64::from(value.is_sign_negative()) << (element.bits() - 1);
            match value {
                value if value.is_nan() => {
                    let ones = (1 << (format.exponent_bits + format.mantissa_bits)) - 1;
                    Some(ones << unused | sign)
                }
                value if value.is_infinite() => {
                    format.infinities.then(|| (format.largest_bits() + 1) << unused | sign)
                }
                value => bits_of(element, value),
            }
        };
        let all = |element, values: &[f64]| -> Option<Vec<u64>> {
            values.iter().map(|&value| bits(element, value)).collect()
        };
        bits(kind.sum(), sum.c)?;
        let (a, b) = (all(kind.a, &sum.a)?, all(kind.b, &sum.b)?);
        Some(Record { label, a, b, c: kind.sum_bits(sum.c) })
    }
}
