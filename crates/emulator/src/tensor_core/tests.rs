//! Sums that are worked out by hand.

use super::*;

fn rules(element: Element, accumulator: Type) -> SumRules {
    SumRules::of(element, element, accumulator).unwrap()
}

/// The sum of some products of the element and the accumulator.
fn sum(rules: &SumRules, products: &[(f32, f32)], c: f32) -> f32 {
    let (a, b): (Vec<f32>, Vec<f32>) = products.iter().copied().unzip();
    rules.dot(&a, &b, c)
}

fn power(exponent: i32) -> f32 {
    2f32.powi(exponent)
}

#[test]
fn terms_keep_25_bits_below_the_largest_exponent() {
    let rules = rules(Element::F16, Type::F32);
    // The large terms cancel, and what remains of the small one is left.
    let small = |exponent| (power(exponent / 2), power(exponent - exponent / 2));
    for sign in [1.0, -1.0] {
        for (exponent, kept) in [(-15, true), (-16, false)] {
            let (x, y) = small(exponent);
            let products = [(32.0, 32.0), (sign * x, y), (-32.0, 32.0)];
            let expected = if kept { sign * power(exponent) } else { 0.0 };
            assert_eq!(sum(&rules, &products, 0.0).to_bits(), expected.to_bits());
            // The accumulator is a term as any other.
            assert_eq!(sum(&rules, &products[..2], -1024.0), expected);
            let products = [(32.0, 32.0), (-32.0, 32.0)];
            assert_eq!(sum(&rules, &products, sign * power(exponent)), expected);
        }
    }
    // A product that reaches 2 aligns as one below 2.
    assert_eq!(sum(&rules, &[(1.5, 1.5), small(-25), (-1.5, 1.5)], 0.0), power(-25));
    let by_leading_bit = SumRules { product_exponent: ProductExponent::OfLeadingBit, ..rules };
    assert_eq!(sum(&by_leading_bit, &[(1.5, 1.5), small(-25), (-1.5, 1.5)], 0.0), 0.0);
    // Down, a small negative term counts as one unit.
    let down = SumRules { terms: Rounding::Down, ..rules };
    assert_eq!(
        sum(&down, &[(32.0, 32.0), (-power(-8), power(-8)), (-32.0, 32.0)], 0.0),
        -power(-15)
    );
}

#[test]
fn sums_in_binary32_are_truncated() {
    let rules = rules(Element::Bf16, Type::F32);
    for sign in [1.0f32, -1.0] {
        let c = sign * (1.0 + power(-23));
        // Three quarters of the last place of a binary32.
        let products = [(sign * power(-24), 1.0), (sign * power(-25), 1.0)];
        assert_eq!(sum(&rules, &products, c), c);
        // Four times a quarter are one.
        assert_eq!(sum(&rules, &[(sign * power(-25), 1.0); 4], c), sign * (1.0 + power(-22)));
    }
    let nearest = SumRules { result: Rounding::NearestEven, ..rules };
    assert_eq!(sum(&nearest, &[(power(-24), 1.0)], 1.0 + power(-23)), 1.0 + power(-22));
    assert_eq!(sum(&nearest, &[(power(-24), 1.0)], 1.0), 1.0);
}

#[test]
fn sums_of_eight_bit_floats_have_14_bits() {
    let rules = SumRules::of(Element::E4m3, Element::E5m2, Type::F32).unwrap();
    assert_eq!(sum(&rules, &[(0.0, 0.0)], 1.0 + power(-13) + power(-14)), 1.0 + power(-13));
    assert_eq!(sum(&rules, &[(1.0, 1.0), (power(-7), power(-6))], 0.0), 1.0 + power(-13));
    assert_eq!(sum(&rules, &[(1.0, 1.0), (power(-7), power(-7))], 0.0), 1.0);
    // A carry moves the last place of the sum, not that of the terms.
    let products = [(1.0, 1.0), (1.0, 1.0), (power(-7), power(-6))];
    assert_eq!(sum(&rules, &products, 0.0), 2.0);
    assert_eq!(
        sum(&rules, &[products[0], products[1], products[2], products[2]], 0.0),
        2.0 + power(-12)
    );
}

#[test]
fn sums_in_f16_are_rounded_to_nearest_even() {
    let rules = rules(Element::F16, Type::B32);
    assert_eq!(sum(&rules, &[(1.0, 1.0)], 2048.0), 2048.0);
    assert_eq!(sum(&rules, &[(1.0, 1.0)], 2050.0), 2052.0);
    assert_eq!(sum(&rules, &[(1.0, 1.0), (0.5, 0.125)], 2048.0), 2050.0);
    assert_eq!(sum(&rules, &[(15.0, 1.0)], 65504.0), 65504.0);
    assert_eq!(sum(&rules, &[(16.0, 1.0)], 65504.0), f32::INFINITY);
    // The smallest subnormal f16, and half of it.
    assert_eq!(sum(&rules, &[(power(-12), power(-12))], 0.0), power(-24));
    assert_eq!(sum(&rules, &[(power(-12), power(-13))], 0.0), 0.0);
}

#[test]
fn blocks_follow_each_other() {
    let rules = rules(Element::Tf32, Type::F32);
    assert_eq!(rules.block, 8);
    let ones = |count: usize| vec![(1.0, power(-14)); count];
    // In the first block the large product cuts off the small ones; the next is without it.
    let large = (power(15), 1.0);
    let products = [vec![large, (-large.0, 1.0)], ones(14)].concat();
    assert_eq!(sum(&rules, &products, 0.0), 8.0 * power(-14));
    let products = [vec![large], ones(7), vec![(-large.0, 1.0)], ones(7)].concat();
    assert_eq!(sum(&rules, &products, 0.0), 0.0);
}

#[test]
fn subnormal_numbers_are_exact() {
    let bf16 = rules(Element::Bf16, Type::F32);
    assert_eq!(sum(&bf16, &[(power(-70), power(-70))], 0.0), power(-140));
    assert_eq!(sum(&bf16, &[(power(-133), power(100))], 0.0), power(-33));
    // Places below the last one of binary32 are kept until the sum is rounded.
    assert_eq!(sum(&bf16, &[(power(-75), power(-76)); 4], 0.0), power(-149));
    assert_eq!(sum(&bf16, &[(power(-76), power(-77)); 16], 0.0), power(-149));
    assert_eq!(sum(&bf16, &[(power(-76), power(-77)); 15], 0.0), 0.0);
    assert_eq!(sum(&bf16, &[(0.0, 0.0)], f32::from_bits(3)), f32::from_bits(3));
    // The smallest subnormal f16 times 2^15 aligns by the exponents −14 and 15.
    let f16 = rules(Element::F16, Type::F32);
    let large = (power(-24), power(15));
    assert_eq!(sum(&f16, &[large, (power(-12), power(-13)), (-large.0, large.1)], 0.0), 0.0);
    assert_eq!(sum(&f16, &[large, (power(-12), power(-12)), (-large.0, large.1)], 0.0), power(-24));
    // Zero aligns nothing.
    assert_eq!(sum(&f16, &[(0.0, power(15)), (power(-12), power(-13))], 0.0), power(-25));
}

/// Sums of products that are so small that their exponents do not count. An H200 has computed them.
#[test]
fn very_small_products_are_aligned_as_on_the_hardware() {
    let tf32 = rules(Element::Tf32, Type::F32);
    let words = |words: [u32; 8]| words.map(f32::from_bits);
    let a = words([
        0x22e8_6000,
        0x15ca_6000,
        0x1ee8_e000,
        0x1d00_e000,
        0x1fc3_0000,
        0x1a76_6000,
        0x9d16_6000,
        0xa3f7_c000,
    ]);
    let b = words([
        0x966f_4000,
        0x1c96_c000,
        0x9541_2000,
        0x19b2_8000,
        0x1c9a_c000,
        0x9524_8000,
        0x19fb_8000,
        0x9693_2000,
    ]);
    assert_eq!(tf32.dot(&a, &b, 0.0).to_bits(), 0xfa19);
}

#[test]
fn special_values() {
    let rules = rules(Element::Bf16, Type::F32);
    let of = |products: &[(f32, f32)], c| sum(&rules, products, c).to_bits();
    let infinity = f32::INFINITY;
    assert_eq!(of(&[(infinity, -2.0)], 1.0), f32::NEG_INFINITY.to_bits());
    for (products, c) in [
        ([(infinity, 0.0), (1.0, 1.0)], 0.0),
        ([(infinity, 1.0), (infinity, -1.0)], 0.0),
        ([(infinity, 1.0), (1.0, 1.0)], -infinity),
        ([(f32::NAN, 1.0), (1.0, 1.0)], 0.0),
        ([(1.0, 1.0), (1.0, 1.0)], f32::NAN),
    ] {
        assert_eq!(of(&products, c), 0x7fff_ffff);
    }
    // Large products are not infinite, but sums of 2^128 are.
    let large = power(100);
    assert_eq!(of(&[(large, large), (large, -large)], 0.0), 0);
    assert_eq!(of(&[(power(127), 1.0), (power(127), 1.0)], 0.0), infinity.to_bits());
    assert_eq!(
        of(&[(power(127), 1.0), (power(103), 1.0)], power(127) - power(103)),
        infinity.to_bits()
    );
}

#[test]
fn zeros_are_positive() {
    let of = |rules: &SumRules, products: &[(f32, f32)], c| sum(rules, products, c).to_bits();
    let single = rules(Element::F16, Type::F32);
    assert_eq!(of(&single, &[(-0.0, 1.0)], -0.0), 0);
    assert_eq!(of(&single, &[(-1.0, 1.0)], 1.0), 0);
    // Half of the smallest f16, which is rounded to even.
    let half = rules(Element::F16, Type::B32);
    assert_eq!(of(&half, &[(power(-12), -power(-13))], 0.0), 0);
}

#[test]
fn f64_is_a_chain_of_fused_multiply_adds() {
    let step = 2f64.powi(-53);
    assert_eq!(dot_f64(&[1.0, 1.0], &[step, step], 1.0), 1.0);
    assert_eq!(dot_f64(&[1.0, 1.0], &[step, 1.0], step), 1.0 + 2.0 * step);
    // The square of 1 + 2^-30 is not rounded before the addition.
    let x = 1.0 + 2f64.powi(-30);
    assert_eq!(dot_f64(&[x], &[x], -(1.0 + 2f64.powi(-29))), 2f64.powi(-60));
}

#[test]
fn only_floats_that_wgmma_multiplies_have_rules() {
    assert_eq!(SumRules::of(Element::S8, Element::S8, Type::S32), None);
    assert_eq!(SumRules::of(Element::F16, Element::Bf16, Type::F32), None);
    assert_eq!(SumRules::of(Element::Bf16, Element::Bf16, Type::B32), None);
    assert_eq!(read(Element::E4m3, &[0x38, 0xc0]), [1.0, -2.0]);
}
