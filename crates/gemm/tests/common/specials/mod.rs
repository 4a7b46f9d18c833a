//! What products of NaN, infinities, subnormal numbers and zeros are, and of numbers beyond the
//! range of D: checks for any backend. docs/types.md says it in words.
//!
//! Every product here is exact in the accumulators of tensor cores, so that three loops in binary64
//! know each element of D.

mod case;

use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{Config, Dtype, Operands, Split};

use case::{Case, K, M, N, Zeros, beyond, each, in_f16, power, put, scale, smallest, top};

/// Hands the names of all checks to a macro.
macro_rules! every_check {
    ($tests:ident) => {
        $tests!(
            nan_stays_in_its_row_and_column,
            infinities_are_kept_or_become_nan,
            subnormal_operands_are_kept,
            subnormal_results_are_kept,
            subnormal_sums_are_kept,
            results_beyond_the_range_are_infinite,
            products_beyond_the_range_are_infinite,
            sums_in_f16_overflow,
            zeros_have_the_sign_of_ieee_754,
            sums_of_negative_zeros_are_positive,
            scalars_multiply_whatever_they_meet,
            c_is_not_seen_where_beta_is_zero,
            integers_wrap,
            sums_of_integers_are_scaled,
        );
    };
}
pub(crate) use every_check;

/// NaN in A fills its row of D, NaN in B its column, and no other element.
pub fn nan_stays_in_its_row_and_column(executor: &Executor) {
    each(executor, |mut case| {
        put(&mut case.a, 3, 5, f64::NAN);
        // The last of K: the end of the last stage.
        put(&mut case.b, K - 1, 11, f64::NAN);
        let d = case.check("NaN in A and B", Zeros::Alike);
        for (row, column) in (0..M).flat_map(|row| (0..N).map(move |column| (row, column))) {
            let within = row == 3 || column == 11;
            assert_eq!(d.get(row, column).unwrap().is_nan(), within, "({row}, {column})");
        }
    });
}

/// An infinity is kept with the sign of its product, or becomes D's largest number where that
/// saturates; times zero, or with one of the other sign, it is NaN.
pub fn infinities_are_kept_or_become_nan(executor: &Executor) {
    each(executor, |mut case| {
        // e4m3 has none.
        let [a, b] = case.config.operands();
        if a != Dtype::E4m3 {
            put(&mut case.a, 2, 4, f64::INFINITY);
            put(&mut case.a, M - 1, 4, f64::NEG_INFINITY);
        }
        if b != Dtype::E4m3 {
            put(&mut case.b, 9, 6, f64::NEG_INFINITY);
        }
        if case.is(Dtype::E5m2) || !case.is(Dtype::E4m3) {
            let d = case.check("infinities", Zeros::Alike);
            let any = |kind: &dyn Fn(f64) -> bool| d.to_f64_vec().into_iter().any(kind);
            assert!(
                any(&|value| value == beyond(d.dtype())) && any(&f64::is_nan),
                "{}",
                case.name()
            );
        }
    });
}

/// Subnormal operands are multiplied as they are, not as zeros.
pub fn subnormal_operands_are_kept(executor: &Executor) {
    for of_a in [true, false] {
        each(executor, |mut case| {
            let [a, b] = case.config.operands();
            let (small, large) =
                if of_a { (&mut case.a, &mut case.b) } else { (&mut case.b, &mut case.a) };
            let exponent = smallest(if of_a { a } else { b });
            // One element of each line along k, the n-th smallest number, with n up to 3: below all
            // normal ones.
            small.fill_with(|row, column| {
                let (line, depth) = if of_a { (row, column) } else { (column, row) };
                let there = depth == (line * 7 + 3) % K;
                if there { (line % 3 + 1) as f64 * power(exponent) } else { 0.0 }
            });
            // Results are normal in D.
            let up = if exponent < -100 { 40 } else { 5 };
            scale(large, up);
            let d = case.check("subnormal operands", Zeros::Alike);
            assert!(d.to_f64_vec().into_iter().any(|value| value != 0.0), "{}", case.name());
        });
    }
}

/// Results that are subnormal in D are rounded to its subnormal numbers, not to zero.
pub fn subnormal_results_are_kept(executor: &Executor) {
    each(executor, |case| {
        let exponent = smallest(case.output());
        // Multiples of the smallest number, and where alpha can be so small, of half of it: ties.
        let halves = matches!(case.output(), Dtype::F16 | Dtype::Bf16);
        let d = case.scaled(power(exponent)).check("subnormal results", Zeros::Alike);
        assert!(d.to_f64_vec().into_iter().any(|value| value == power(exponent)));
        if halves {
            let case = Case::new(executor, Config::new(d.dtype()), [M, N, K]);
            case.scaled(power(exponent - 1)).check("halves of the smallest number", Zeros::Alike);
        }
    });
}

/// Sums that are subnormal before the epilogue.
pub fn subnormal_sums_are_kept(executor: &Executor) {
    each(executor, |mut case| {
        if !case.has_wide_operands() {
            return;
        }
        // Whole sums in units of four of D's smallest numbers, or of a quarter of one, which is
        // rounded.
        let whole = smallest(case.output()) + if case.output() == Dtype::Bf16 { -2 } else { 2 };
        scale(&mut case.a, whole / 2);
        scale(&mut case.b, whole - whole / 2);
        let d = case.check("subnormal sums", Zeros::Alike);
        assert!(d.to_f64_vec().into_iter().any(|value| value != 0.0));
    });
}

/// Results beyond the largest number of D are infinite, from half a unit in the last place beyond
/// it; those of 8 bits saturate.
pub fn results_beyond_the_range_are_infinite(executor: &Executor) {
    each(executor, |case| {
        let alpha = power(top(case.output()));
        let d = case.scaled(alpha).check("large results", Zeros::Alike);
        let infinity = beyond(d.dtype());
        for value in [infinity, -infinity, alpha] {
            assert!(d.to_f64_vec().contains(&value), "{value}");
        }
    });
    each(executor, |mut case| {
        let ends = match case.output() {
            Dtype::F16 => [(65519.0, 65504.0), (65520.0, f64::INFINITY)],
            Dtype::E4m3 => [(432.0, 448.0), (f64::INFINITY, 448.0)],
            Dtype::E5m2 => [(61440.0, 57344.0), (-1e30, -57344.0)],
            _ => return,
        };
        case.a.fill_with(|_, column| if column == 0 { 1.0 } else { 0.0 });
        case.b.fill_with(|_, _| 1.0);
        for (alpha, rounded) in ends {
            case.problem = case.problem.with_alpha(alpha);
            let d = case.check("the end of the range", Zeros::Alike);
            assert_eq!(d.get(M - 1, N - 1), Some(rounded));
        }
    });
}

/// A single product beyond binary32 is infinite in the accumulators, and stays so.
pub fn products_beyond_the_range_are_infinite(executor: &Executor) {
    each(executor, |mut case| {
        if !case.has_wide_operands() {
            return;
        }
        let exponent = if case.is(Dtype::F64) { 600 } else { 100 };
        case.a.fill_with(|row, column| if column == row { power(exponent) } else { 0.0 });
        scale(&mut case.b, exponent);
        let d = case.check("large products", Zeros::Alike);
        assert!(d.to_f64_vec().contains(&f64::NEG_INFINITY));
    });
}

/// Sums in f16 are infinite from half a unit beyond its largest number on, and stay so, whatever D
/// can hold. The CPU has none.
pub fn sums_in_f16_overflow(executor: &Executor) {
    if matches!(executor, Executor::Cpu { .. }) {
        return;
    }
    for output in [Dtype::F16, Dtype::F32] {
        for (last, infinite) in [(15.0, false), (16.0, true), (-16.0, false)] {
            let mut case = Case::new(executor, in_f16(output), [M, N, K]);
            case.config.split = Some(Split::Whole);
            // The largest number, then the last in a step of its own, and what would bring a finite
            // sum back.
            let large = [(0, 65504.0), (40, last), (90, -65504.0)];
            case.a.fill_with(|_, column| {
                large.iter().find(|(at, _)| *at == column).map_or(0.0, |(_, value)| *value)
            });
            case.b.fill_with(|_, _| 1.0);
            let inputs = Operands::new(&case.a, &case.b);
            let d = multiply(executor, &case.config, &case.problem, inputs).unwrap().d;
            let found = d.get(M - 1, N - 1).unwrap();
            assert_eq!(found.is_infinite(), infinite, "65504 + {last} in {output}: {found}");
        }
    }
}

/// Sums that cancel are +0, and alpha decides their sign; results that round to zero keep theirs.
pub fn zeros_have_the_sign_of_ieee_754(executor: &Executor) {
    for alpha in [1.0, -1.0] {
        each(executor, |case| {
            let mut case = case.scaled(alpha);
            case.a.fill_with(|_, column| [3.0, -3.0].get(column).copied().unwrap_or(0.0));
            case.b.fill_with(|_, _| 1.0);
            let d = case.check("cancelled sums", Zeros::Signed);
            let zero = d.get(0, 0).unwrap();
            assert!(zero == 0.0 && zero.is_sign_negative() == (alpha < 0.0), "{}", case.name());
        });
    }
    each(executor, |mut case| {
        if case.output() != Dtype::F16 {
            return;
        }
        case.a.fill_with(|row, _| if row % 2 == 0 { 1.0 } else { -1.0 });
        case.b.fill_with(|_, _| 1.0);
        let d = case.scaled(power(-40)).check("results below the smallest number", Zeros::Signed);
        assert!(d.get(1, 0).is_some_and(|zero| zero == 0.0 && zero.is_sign_negative()));
    });
}

/// Sums begin with +0, so that only negative zeros add up to +0.
pub fn sums_of_negative_zeros_are_positive(executor: &Executor) {
    each(executor, |mut case| {
        case.a.fill_with(|_, _| -0.0);
        case.b.fill_with(|_, _| 1.0);
        assert!(case.a.get(0, 0).is_some_and(|zero| zero.is_sign_negative()));
        case.check("negative zeros", Zeros::Signed);
    });
}

/// alpha = 0 multiplies like any other; C adds what it holds where beta is not 0; without depth,
/// alpha does not count.
pub fn scalars_multiply_whatever_they_meet(executor: &Executor) {
    each(executor, |mut case| {
        put(&mut case.a, 3, 5, f64::NAN);
        let d = case.scaled(0.0).check("alpha = 0", Zeros::Alike);
        assert!(d.get(3, 0).unwrap().is_nan() && d.get(4, 0) == Some(0.0));
    });
    for (k, alpha) in [(K, 1.0), (0, f64::INFINITY), (0, f64::NAN)] {
        each(executor, |case| {
            let mut case = Case::new(executor, case.config, [M, N, k]).scaled(alpha).plus(-2.0);
            let c = case.c.as_mut().unwrap();
            for (column, value) in [f64::NAN, f64::INFINITY, -0.0].into_iter().enumerate() {
                c.set(7, column, value).unwrap();
            }
            let d = case.check("C", Zeros::Alike);
            assert_eq!(d.to_f64_vec().into_iter().filter(|value| value.is_nan()).count(), 1);
            assert_eq!(d.get(7, 1), Some(-beyond(d.dtype())));
        });
    }
}

/// If beta is 0, nothing of C or of what D held is seen: D is full of NaN before every product
/// here, and C too.
pub fn c_is_not_seen_where_beta_is_zero(executor: &Executor) {
    each(executor, |case| {
        let mut case = case.plus(0.0);
        case.c.as_mut().unwrap().poison();
        let d = case.check("C full of NaN", Zeros::Alike);
        assert!(d.to_f64_vec().into_iter().all(f64::is_finite));
    });
}

/// Sums of integers as other results: scaled in binary32, rounded to nearest even, in s8 saturated,
/// where NaN is 0.
pub fn sums_of_integers_are_scaled(executor: &Executor) {
    for (a, b) in [(Dtype::S8, Dtype::S8), (Dtype::S8, Dtype::U8)] {
        for output in [Dtype::S8, Dtype::F16, Dtype::Bf16, Dtype::F32] {
            for split in [None, Some(Split::SplitK(2))] {
                let split = split.filter(|_| !matches!(executor, Executor::Cpu { .. }));
                let config = Config::new(a).with_b_dtype(b).with_output(output);
                let mut config = config;
                config.split = split;
                let mut case = Case::new(executor, config, [M, N, 300]);
                // Sums from -12 to 11.
                case.a.fill_with(|row, column| if column == 299 { row as f64 - 12.0 } else { 0.0 });
                case.b.fill_with(|_, _| 1.0);
                for alpha in [0.5, -0.25, 60.0, f64::INFINITY, f64::NAN] {
                    case.problem = case.problem.with_alpha(alpha);
                    case.check("scaled integers", Zeros::Alike);
                }
                let d = case.scaled(12.0).plus(0.5).check("scaled integers and C", Zeros::Alike);
                assert_eq!(d.to_f64_vec().contains(&-128.0), output == Dtype::S8, "{output}");
            }
        }
    }
}

/// Sums of integers wrap in the accumulators, and products with alpha and beta after them.
pub fn integers_wrap(executor: &Executor) {
    for (a, b, sign) in [(Dtype::U8, Dtype::U8, 1.0), (Dtype::S8, Dtype::U8, -1.0)] {
        // Of the magnitudes 65025 or 32640, enough to pass 2^31.
        let depth = if sign > 0.0 { 33_100 } else { 65_800 };
        let mut case = Case::new(executor, Config::new(a).with_b_dtype(b), [8, 8, depth]);
        let largest = if a == Dtype::S8 { -128.0 } else { 255.0 };
        case.a.fill_with(|_, _| largest);
        case.b.fill_with(|_, _| 255.0);
        let sum = largest as i64 * 255 * depth as i64;
        assert!(sum.abs() > 1 << 31);
        for (alpha, beta) in [(1, 0), (-77_777, 3)] {
            case = case.scaled(alpha as f64).plus(f64::from(beta));
            case.c.as_mut().unwrap().fill_with(|_, _| f64::from(i32::MAX));
            let inputs = Operands::new(&case.a, &case.b).c(case.c.as_ref());
            let d = multiply(executor, &case.config, &case.problem, inputs).unwrap().d;
            let whole =
                i128::from(alpha) * i128::from(sum) + i128::from(beta) * i128::from(i32::MAX);
            let wrapped = f64::from(whole as i32);
            assert!(d.to_f64_vec().into_iter().all(|value| value == wrapped), "{alpha} {beta}");
        }
    }
}
