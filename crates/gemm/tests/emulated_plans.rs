//! Ways to compute a problem, in the emulator: operands in each other's place, tiles split along k,
//! sums in any order.

use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::{
    Accumulation, Config, Dtype, ErrorModel, HostMatrix, Major, MatrixLayout, Operands, Precision,
    Problem, Reference, Split,
};

/// Small integers: every sum is exact.
fn matrix(layout: MatrixLayout, dtype: Dtype, seed: u64) -> HostMatrix {
    let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
    matrix.fill_integers(seed, 3);
    matrix
}

fn check(config: &Config, problem: &Problem) {
    check_on(&Executor::Emulator, config, problem);
}

fn check_on(executor: &Executor, config: &Config, problem: &Problem) {
    let batch = problem.batch;
    let matrices = |layout, dtype, stride, seed: u64| -> Vec<HostMatrix> {
        let seeds = seed..seed + batch.matrices(stride) as u64;
        seeds.map(|seed| matrix(layout, dtype, seed)).collect()
    };
    let a = matrices(problem.a_layout(), config.dtype, batch.a, 100);
    let b = matrices(problem.b_layout(), config.b_dtype(), batch.b, 200);
    let c = matrices(problem.c_layout(), config.output_dtype(), batch.c, 300);
    let c = if problem.beta == 0.0 { &[][..] } else { &c };
    let inputs = Operands::new(&a, &b).c(c);
    let products = multiply(executor, config, problem, inputs)
        .unwrap_or_else(|error| panic!("{config:?} {problem:?}: {error}"));
    assert_eq!(products.d.len(), batch.count);
    for (index, d) in products.d.iter().enumerate() {
        let Operands { a, b, c, .. } = inputs.of(index);
        let reference = Reference::new(&problem.one(), a, b, c).unwrap();
        let comparison = reference.compare_exact(d).unwrap();
        assert!(comparison.passed, "{config:?} {problem:?}: {index}\n{comparison}");
    }
    let Some(plan) = products.plan else { return };
    if let Some(swapped) = config.swapped {
        assert_eq!(plan.swapped(), swapped, "{plan:?}");
    }
    let splits = config.split.is_some_and(|split| split != Split::Whole);
    assert_eq!(plan.split_tiles > 0, splits && problem.k > 0, "{plan:?}");
}

#[test]
fn operands_change_places_in_all_majors() {
    for (a_major, b_major) in
        [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
    {
        for (output, swapped) in [(Dtype::Bf16, true), (Dtype::F32, true), (Dtype::Bf16, false)] {
            let config = Config::new(Dtype::Bf16).with_swapped(swapped);
            let problem = Problem::new(24, 200, 136, a_major, b_major).with_alpha(2.0);
            check(&config.clone().with_output(output), &problem);
            check(&config.with_output(output), &problem.with_beta(-1.0));
        }
    }
}

/// What neither TMA nor wgmma takes as it lies: lines of any length, any major of every type, a
/// column-major D.
#[test]
fn matrices_are_multiplied_however_they_lie() {
    use Dtype::{Bf16, E4m3, F16, F32, F64, S8, Tf32};
    for (index, (a_major, b_major)) in
        [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
            .into_iter()
            .enumerate()
    {
        for (dtype, output) in
            [(Bf16, None), (F16, Some(F32)), (Tf32, None), (E4m3, None), (S8, None), (F64, None)]
                .into_iter()
                .chain([(E4m3, Some(E4m3)), (S8, Some(S8)), (S8, Some(F16))])
        {
            let mut config = Config::new(dtype);
            config.output = output;
            let problem = Problem::new(45, 67, 91, a_major, b_major);
            let wide = problem.with_a_leading_dimension(101).with_b_leading_dimension(103);
            check(&config, &wide.with_d_leading_dimension(69));
            let other = problem.with_d_major(Major::M).with_d_leading_dimension(48 + index);
            check(&config, &other.with_c_leading_dimension(50).with_beta(-1.0));
        }
        let split = Config::new(Bf16).with_split(Split::SplitK(3));
        check(&split, &Problem::new(33, 71, 601, a_major, b_major).with_beta(2.0));
    }
}

/// Every pair of types that is read along k only, with each type of D, as the operands are and in
/// each other's place.
#[test]
fn operands_of_all_types_are_multiplied() {
    use Dtype::{Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let floats = [F32, F16, Bf16, E4m3, E5m2].as_slice();
    let integers = [S32, F32, F16, Bf16, S8].as_slice();
    for (a, b, outputs) in [
        (Tf32, Tf32, [F32].as_slice()),
        (E4m3, E4m3, floats),
        (E4m3, E5m2, &[F32, F16, Bf16, E5m2]),
        (E5m2, E4m3, &[F32, F16, Bf16, E4m3]),
        (E5m2, E5m2, &[F32, F16, Bf16, E4m3]),
        (S8, S8, integers),
        (S8, U8, &[S32, Bf16]),
        (U8, S8, &[S32, S8]),
        (U8, U8, &[S32, F32]),
    ] {
        for (&output, swapped) in outputs.iter().flat_map(|d| [(d, false), (d, true)]) {
            let config = Config::new(a).with_b_dtype(b).with_output(output);
            let config = config.with_swapped(swapped);
            let problem = Problem::new(24, 200, 336, Major::K, Major::K).with_alpha(2.0);
            check(&config, &problem);
            check(&config.with_split(Split::SplitK(2)), &problem.with_beta(-1.0));
        }
    }
}

#[test]
fn floats_of_32_and_64_bits_are_multiplied_in_all_majors() {
    let majors =
        [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)];
    for (dtype, (a_major, b_major)) in
        [Dtype::F32, Dtype::F64].into_iter().flat_map(|dtype| majors.map(|majors| (dtype, majors)))
    {
        let config = Config::new(dtype);
        let problem = Problem::new(75, 203, 37, a_major, b_major).with_alpha(-3.0);
        check(&config, &problem);
        check(&config, &problem.with_beta(-2.0));
        for split in
            [Split::SplitK(2), Split::SplitK(3)].into_iter().filter(|_| dtype == Dtype::F64)
        {
            check(&config.clone().with_split(split), &problem.with_beta(1.0));
        }
        let problem = Problem::new(5, 9, 0, a_major, b_major).with_beta(2.0);
        check(&config, &problem);
    }
}

/// Results of one byte of any values, in the range and beyond, and sums of integers by a factor:
/// within their bounds, with TMA and without, in one part and in several.
#[test]
fn results_are_rounded_and_saturate() {
    use Dtype::{Bf16, E4m3, E5m2, F32, S8, U8};
    for (a_type, b_type, output, alpha) in [
        (E4m3, E4m3, E4m3, 8.0),
        (E5m2, E4m3, E5m2, 2000.0),
        (S8, S8, S8, 1e-3),
        (U8, S8, Bf16, -0.3),
        (S8, U8, F32, 1e-5),
    ] {
        let types = Config::new(a_type).with_b_dtype(b_type).with_output(output);
        for (case, split) in
            [Split::Whole, Split::SplitK(2), Split::SplitK(9)].into_iter().enumerate()
        {
            let config = types.clone().with_split(split).with_swapped(case == 1);
            let columns = if case == 2 { 80 } else { 77 };
            let problem = Problem::new(45, columns, 1300, Major::K, Major::K);
            let problem = problem.with_alpha(alpha).with_beta(if case == 0 { 0.0 } else { 0.7 });
            let fill = |layout, dtype, seed| {
                let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
                matrix.fill_random(seed);
                matrix
            };
            let a = fill(problem.a_layout(), a_type, 1);
            let b = fill(problem.b_layout(), b_type, 2);
            let c = fill(problem.c_layout(), output, 3);
            let inputs = Operands::new(&a, &b).c((problem.beta != 0.0).then_some(&c));
            let product = multiply(&Executor::Emulator, &config, &problem, inputs).unwrap();
            let reference = Reference::new(&problem, &a, &b, inputs.c).unwrap();
            let accumulation = Accumulation::of(&product.plan.unwrap().spec).of_random_signs();
            let model = ErrorModel { accumulation, a: a_type, b: b_type };
            let comparison = reference.compare(&product.d, &model).unwrap();
            assert!(comparison.passed, "{config:?}\n{comparison}");
            let values = product.d.to_f64_vec();
            let ends = [(E4m3, 448.0), (E5m2, 57344.0), (S8, 127.0)];
            if let Some((_, end)) = ends.into_iter().find(|(dtype, _)| *dtype == output) {
                assert!(
                    values.contains(&end) && values.iter().any(|value| value.abs() < end / 2.0)
                );
            }
        }
    }
}

/// As many tiles in all as SMs or more, split ones among them, with an operand that all products
/// share.
#[test]
fn batches_are_one_list_of_tiles() {
    use Dtype::{Bf16, E4m3, F32, F64};
    let problem = Problem::new(40, 72, 264, Major::K, Major::K).with_alpha(2.0);
    for (dtype, split) in [
        (Bf16, Split::Whole),
        (Bf16, Split::SplitK(2)),
        (E4m3, Split::SplitK(2)),
        (F64, Split::SplitK(3)),
        (F32, Split::Whole),
    ] {
        let config = Config::new(dtype).with_split(split);
        check(&config, &problem.with_batch(3).with_b_batch_stride(0));
        check(&config, &problem.with_beta(-1.0).with_batch(2).with_a_batch_stride(40 * 264 + 3));
    }
    let tiles = Config::new(Bf16).with_tile_m(64).with_tile_n(64);
    let stream = tiles.clone().with_split(Split::StreamK);
    check(&stream, &problem.with_batch(3));
    for swapped in [false, true] {
        let config = tiles.clone().with_swapped(swapped);
        check(&config, &problem.with_d_major(Major::M).with_batch(5).with_a_batch_stride(0));
    }
    let cpu = Executor::Cpu { because: None };
    check_on(&cpu, &tiles, &problem.with_beta(1.0).with_batch(3).with_c_batch_stride(0));
}

#[test]
fn a_batch_of_nothing_and_one_without_its_matrices() {
    let problem = Problem::new(4, 4, 8, Major::K, Major::K).with_batch(3);
    let config = Config::new(Dtype::Bf16);
    for executor in [Executor::Emulator, Executor::Cpu { because: None }] {
        check_on(&executor, &config, &problem.with_batch(0));
        let a = matrix(problem.a_layout(), Dtype::Bf16, 1);
        let b = [2, 3, 4].map(|seed| matrix(problem.b_layout(), Dtype::Bf16, seed));
        let inputs = Operands::new(std::slice::from_ref(&a), &b);
        let error = multiply(&executor, &config, &problem, inputs).err().unwrap();
        assert!(error.to_string().contains("1 matrices A were given"), "{error}");
        let inputs = Operands::new(&a, &b[0]);
        let error = multiply(&executor, &config, &problem, inputs).err().unwrap();
        assert!(error.to_string().contains("the batch needs 3"), "{error}");
        // Matrices that are not slices are those of one product, even where all products share
        // them.
        for count in [0, 3] {
            let shared = problem.with_batch(count).with_a_batch_stride(0).with_b_batch_stride(0);
            let refused = multiply(&executor, &config, &shared, inputs).err().unwrap().to_string();
            assert!(refused.contains(&format!("the batch needs {count}")), "{refused}");
        }
        let overlapping = problem.with_a_batch_stride(0).with_d_batch_stride(15);
        let inputs = Operands::new(std::slice::from_ref(&a), &b);
        let error = multiply(&executor, &config, &overlapping, inputs).err().unwrap();
        assert!(error.to_string().contains("would overlap"), "{error}");
    }
}

/// The bounds of an activation are arguments of a launch and not part of a kernel's name. They
/// reach kernels whose D is transposed or not, whose operands change places or not, and whose tiles
/// are whole or split along k.
#[test]
fn bounds_are_arguments_of_a_launch() {
    for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F64] {
        let mut specs = vec![];
        for (text, [lower, upper]) in [
            ("clamp(-2,5)", [-2.0, 5.0]),
            ("clamp(-inf,0.1)", [f64::NEG_INFINITY, 0.1]),
            ("clamp(0.7,1e300)", [0.7, 1e300]),
        ] {
            let config = Config::new(dtype).with_epilogue(text.parse().unwrap());
            for (split, d_major) in [(Split::Whole, Major::N), (Split::SplitK(2), Major::M)] {
                let config = config.clone().with_split(split);
                let problem = Problem::new(40, 56, 136, Major::K, Major::K).with_d_major(d_major);
                let a = matrix(problem.a_layout(), dtype, 1);
                let b = matrix(problem.b_layout(), dtype, 2);
                let inputs = Operands::new(&a, &b);
                let product = multiply(&Executor::Emulator, &config, &problem, inputs).unwrap();
                let plan = product.plan.unwrap();
                if d_major == Major::N {
                    specs.push(plan.spec);
                }
                let of = (&a, &b, None);
                let reference =
                    Reference::with_epilogue(&problem, of, config.epilogue, None).unwrap();
                let model = ErrorModel::new(Accumulation::of(&plan.spec), dtype);
                let comparison = reference.compare(&product.d, &model).unwrap();
                assert!(comparison.passed, "{} {text}: {comparison}", plan.spec);
                // Elements beyond a bound are the bound, rounded to D's type.
                let rounded = |bound: f64| match dtype {
                    Dtype::F64 => bound,
                    Dtype::F32 => f64::from(bound as f32),
                    _ => half::bf16::from_f32(bound as f32).to_f64(),
                };
                let d = product.d.to_f64_vec();
                let inside = |value: &f64| (rounded(lower)..=rounded(upper)).contains(value);
                assert!(d.iter().all(inside), "{} {text}", plan.spec);
                let at_bound = [lower, upper].map(rounded);
                assert!(d.iter().any(|value| at_bound.contains(value)), "{} {text}", plan.spec);
            }
        }
        assert!(specs.iter().all(|spec| *spec == specs[0]), "{specs:?}");
    }
}

/// Integers beyond 2^31, in the epilogue and in split sums: all wrap.
#[test]
fn integers_wrap() {
    for (split, swapped) in [(Split::Whole, false), (Split::SplitK(2), true)] {
        let config = Config::new(Dtype::U8).with_split(split).with_swapped(swapped);
        let problem = Problem::new(40, 56, 700, Major::K, Major::K).with_alpha(1e6).with_beta(-3.0);
        let fill = |layout, dtype, seed| {
            let mut matrix = HostMatrix::zeros(layout, dtype).unwrap();
            matrix.fill_random(seed);
            matrix
        };
        let a = fill(problem.a_layout(), Dtype::U8, 1);
        let b = fill(problem.b_layout(), Dtype::U8, 2);
        let c = fill(problem.c_layout(), Dtype::S32, 3);
        let inputs = Operands::new(&a, &b).c(&c);
        let product = multiply(&Executor::Emulator, &config, &problem, inputs).unwrap();
        let reference = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
        assert!(reference.values().iter().all(|value| *value > 2f64.powi(33)));
        let comparison = reference.compare_exact(&product.d).unwrap();
        assert!(comparison.passed, "{comparison}");
    }
}

/// binary32 values that are no tf32 are rounded to the nearest one, as TMA loads them, including
/// for registers or for shared memory.
#[test]
fn tf32_is_rounded_as_it_is_loaded() {
    for (a_major, b_major) in
        [(Major::K, Major::K), (Major::M, Major::K), (Major::K, Major::N), (Major::M, Major::N)]
    {
        let problem = Problem::new(40, 56, 72, a_major, b_major);
        let single = |layout, seed| {
            let mut matrix = HostMatrix::zeros(layout, Dtype::F32).unwrap();
            matrix.fill_normal(seed);
            matrix
        };
        let (a, b) = (single(problem.a_layout(), 1), single(problem.b_layout(), 2));
        let as_they_lie = |matrix: &HostMatrix| {
            HostMatrix::from_bytes(matrix.layout(), Dtype::Tf32, matrix.bytes()).unwrap()
        };
        let (raw_a, raw_b) = (as_they_lie(&a), as_they_lie(&b));
        let reference = Reference::new(&problem, &a, &b, None).unwrap();
        let model = ErrorModel::new(Accumulation::Nearest, Dtype::Tf32);
        for executor in [Executor::Emulator, Executor::Cpu { because: None }] {
            let inputs = Operands::new(&raw_a, &raw_b);
            let product = multiply(&executor, &Config::new(Dtype::Tf32), &problem, inputs).unwrap();
            let comparison = reference.compare(&product.d, &model).unwrap();
            assert!(comparison.passed, "{executor}: {comparison}");
            // The very product of the rounded matrices.
            let (a, b) = (a.convert(Dtype::Tf32).unwrap(), b.convert(Dtype::Tf32).unwrap());
            let reference = Reference::new(&problem, &a, &b, None).unwrap();
            let comparison = reference.compare(&product.d, &model).unwrap();
            assert!(comparison.passed, "{executor}: {comparison}");
        }
    }
}

#[test]
fn tiles_are_split_and_added_up() {
    // Six tiles either way, on the emulator's four SMs.
    let tiles = Config::new(Dtype::Bf16).with_tile_m(128).with_tile_n(64);
    let problem = Problem::new(72, 328, 600, Major::K, Major::N);
    for split in [Split::Whole, Split::SplitK(3), Split::StreamK] {
        for (swapped, unordered) in [(false, false), (false, true), (true, false), (true, true)] {
            let config =
                tiles.clone().with_split(split).with_swapped(swapped).with_unordered(unordered);
            check(&config, &problem);
            check(&config, &problem.with_alpha(3.0).with_beta(1.0));
        }
    }
}

#[test]
fn no_depth_is_never_split() {
    for split in [Split::SplitK(3), Split::StreamK] {
        let config = Config::new(Dtype::Bf16).with_split(split);
        for beta in [0.0, 2.0] {
            let problem = Problem::new(40, 72, 0, Major::K, Major::K).with_beta(beta);
            check(&config, &problem);
            check(&config, &problem.with_batch(3).with_c_batch_stride(0));
        }
    }
}

/// The tensor core keeps some 14 bits of 8-bit floats; promoted sums keep those of binary32.
#[test]
fn promoted_sums_are_more_accurate() {
    let problem = Problem::new(64, 48, 2048, Major::K, Major::K);
    let normal = |layout, seed| {
        let mut matrix = HostMatrix::zeros(layout, Dtype::E4m3).unwrap();
        matrix.fill_normal(seed);
        matrix
    };
    let (a, b) = (normal(problem.a_layout(), 1), normal(problem.b_layout(), 2));
    let reference = Reference::new(&problem, &a, &b, None).unwrap();
    let compare = |precision, split| {
        let config = Config::new(Dtype::E4m3).with_output(Dtype::F32).with_precision(precision);
        let config = config.with_split(split);
        let inputs = Operands::new(&a, &b);
        let product = multiply(&Executor::Emulator, &config, &problem, inputs).unwrap();
        let spec = product.plan.unwrap().spec;
        assert_eq!(Precision::of(&spec), precision, "{spec}");
        let model = ErrorModel::new(Accumulation::of(&spec).of_random_signs(), Dtype::E4m3);
        let comparison = reference.compare(&product.d, &model).unwrap();
        assert!(comparison.passed, "{spec}: {comparison}");
        comparison.relative_frobenius
    };
    let fast = compare(Precision::Fast, Split::Whole);
    for split in [Split::Whole, Split::SplitK(3)] {
        let full = compare(Precision::Full, split);
        assert!(full < fast / 3.0, "{split}: {full} beside {fast}");
    }
}
