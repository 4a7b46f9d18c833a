use pgemm_ir::Element;
use pgemm_kernels::{Activation, BiasAlong};
use pgemm_plan::{Config, Major};

use super::*;
use crate::host::{self, BackendKind};
use crate::numerics::{Accumulation, ErrorModel, Reference};
use crate::operands::Operands;

/// The CPU is within the bound of the reference, which is three loops.
#[test]
fn the_cpu_and_the_reference_agree_with_three_loops() {
    let executor = BackendKind::Cpu.find(0).unwrap();
    for (index, (text, input, d_major)) in [
        ("bias_n|silu", Element::Bf16, Major::N),
        ("bias_m|gelu", Element::F32, Major::N),
        ("bias_n|relu", Element::F64, Major::M),
        ("gelu", Element::F64, Major::M),
        ("bias_n", Element::E4m3, Major::N),
        ("bias_m|clamp(-0.3,1.7)", Element::F16, Major::M),
        ("clamp(-0.1,inf)", Element::F64, Major::N),
    ]
    .into_iter()
    .enumerate()
    {
        let epilogue: Epilogue = text.parse().unwrap();
        let config = Config::new(input).with_epilogue(epilogue);
        let problem = Problem::new(9, 13, 40, Major::K, Major::N).with_d_major(d_major);
        let problem = problem.with_alpha(0.3).with_beta(-0.5);
        let seed = index as u64;
        let random = |layout, element, seed| {
            let mut matrix = HostMatrix::zeros(layout, element).unwrap();
            matrix.fill_normal(seed);
            matrix
        };
        let [a, b, c] = [
            random(problem.a_layout(), input, seed),
            random(problem.b_layout(), input, seed + 10),
            random(problem.c_layout(), config.output_dtype(), seed + 20),
        ];
        let row = MatrixLayout::row_major(1, epilogue.bias_length(9, 13));
        let bias = random(row, config.bias_dtype(), seed + 30);
        let bias = Some(&bias).filter(|_| epilogue.bias().is_some());
        let inputs = Operands::new(&a, &b).c(&c).bias(bias);
        let d = host::multiply(&executor, &config, &problem, inputs).unwrap().d;
        let of = (&a, &b, Some(&c));
        let reference = Reference::with_epilogue(&problem, of, epilogue, bias).unwrap();
        for (row, column) in (0..9).flat_map(|row| (0..13).map(move |column| (row, column))) {
            let products = (0..40).map(|i| a.get(row, i).unwrap() * b.get(i, column).unwrap());
            let sum = 0.3 * products.sum::<f64>() - 0.5 * c.get(row, column).unwrap();
            let added = match epilogue.bias() {
                None => 0.0,
                Some(BiasAlong::N) => bias.unwrap().get(0, column).unwrap(),
                Some(BiasAlong::M) => bias.unwrap().get(0, row).unwrap(),
            };
            let value = epilogue.for_output(config.output_dtype()).activate(sum + added);
            let found = reference.values()[row * 13 + column];
            assert!((found - value).abs() <= 1e-13, "{text} {found} {value}");
        }
        let model = ErrorModel::new(Accumulation::Nearest, input);
        let comparison = reference.compare(&d, &model).unwrap();
        assert!(comparison.passed, "{text} {input}: {comparison}");
        if input == Element::Bf16 {
            assert!(comparison.worst.unwrap().ratio > 0.5);
        }
        // Without it they differ.
        let plain = Reference::new(&problem, &a, &b, Some(&c)).unwrap();
        assert!(!plain.compare(&d, &model).unwrap().passed, "{text}");
    }
}

/// Results are exact if the bounds are integers. Other bounds and missing ones are refused.
#[test]
fn integers_within_bounds_that_are_integers_are_exact() {
    let executor = BackendKind::Cpu.find(0).unwrap();
    let problem = Problem::new(9, 13, 40, Major::K, Major::N);
    let integers = |layout, seed| {
        let mut matrix = HostMatrix::zeros(layout, Element::Bf16).unwrap();
        matrix.fill_integers(seed, 3);
        matrix
    };
    let (a, b) = (integers(problem.a_layout(), 1), integers(problem.b_layout(), 2));
    for (text, is_exact) in [
        ("clamp(-7,12)", true),
        ("clamp(-inf,0)", true),
        ("clamp(-0.5,12)", false),
        ("clamp(0,0.1)", false),
    ] {
        let epilogue: Epilogue = text.parse().unwrap();
        let config = Config::new(Element::Bf16).with_epilogue(epilogue);
        let d = host::multiply(&executor, &config, &problem, Operands::new(&a, &b)).unwrap().d;
        let of = (&a, &b, None);
        let reference = Reference::with_epilogue(&problem, of, epilogue, None).unwrap();
        match reference.compare_exact(&d) {
            Ok(comparison) => assert!(is_exact && comparison.passed, "{text}: {comparison}"),
            Err(error) => assert!(!is_exact && error.to_string().contains("a fraction")),
        }
        let model = ErrorModel::new(Accumulation::Nearest, Element::Bf16);
        assert!(reference.compare(&d, &model).unwrap().passed, "{text}");
        let [lower, upper] = epilogue.for_output(Element::Bf16).parameters();
        let inside = |value: &f64| (lower..=upper).contains(value);
        assert!(reference.values().iter().all(inside), "{text}");
    }
    let open = Epilogue::NONE.with_activation(Activation::Clamp);
    let error = Reference::with_epilogue(&problem, (&a, &b, None), open, None).unwrap_err();
    assert!(error.to_string().contains("clamp(lower,upper)"), "{error}");
}

#[test]
fn a_bias_that_is_missing_or_no_row_of_its_type_is_refused() {
    let executor = BackendKind::Cpu.find(0).unwrap();
    let config = Config::new(Element::Bf16).with_epilogue("bias_n".parse().unwrap());
    let problem = Problem::new(2, 3, 4, Major::K, Major::K);
    let zeros = |layout, element| HostMatrix::zeros(layout, element).unwrap();
    let a = zeros(problem.a_layout(), Element::Bf16);
    let b = zeros(problem.b_layout(), Element::Bf16);
    let refused = |bias: Option<&HostMatrix>| {
        let inputs = Operands::new(&a, &b).bias(bias);
        host::multiply(&executor, &config, &problem, inputs).err().unwrap().to_string()
    };
    assert!(refused(None).contains("a bias of 3 elements"));
    let short = zeros(MatrixLayout::row_major(1, 2), Element::Bf16);
    assert!(refused(Some(&short)).contains("the bias is"), "{}", refused(Some(&short)));
    let wide = zeros(MatrixLayout::row_major(1, 3), Element::F32);
    assert!(refused(Some(&wide)).contains("the bias is of f32"));
}
