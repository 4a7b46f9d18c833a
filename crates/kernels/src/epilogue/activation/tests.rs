use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_ir::{Argument, Kernel, KernelBuilder, Launch, Special, WARPGROUP_THREADS};

use super::*;

/// A kernel in which each thread handles one number. Numbers lie one after the other in global
/// memory.
fn kernel(write: impl Fn(&KernelBuilder, Val<'_, ty::U32>)) -> Kernel {
    let b = KernelBuilder::new("activation", 1);
    b.warp_roles(pgemm_ir::Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 128, |_| {
            let thread = b.special(Special::Cta) * WARPGROUP_THREADS + b.special(Special::Thread);
            b.grid_dependency_wait();
            write(&b, thread);
        });
    });
    pgemm_ir::optimise(b.finish().unwrap()).unwrap()
}

fn run(kernel: &Kernel, bytes: &[u8], size: usize) -> Vec<u8> {
    let mut memory = Memory::new();
    let from = memory.upload("x", bytes, Permission::ReadOnly);
    let to = memory.allocate("y", bytes.len());
    let ctas = bytes.len() / size / WARPGROUP_THREADS as usize;
    let arguments = vec![Argument::U64(from), Argument::U64(to)];
    let launch = Launch { grid: [ctas as u32, 1, 1], arguments };
    Emulator::new(kernel, &launch, &mut memory, Options::default()).unwrap().run().unwrap();
    memory.read_raw(to, bytes.len()).unwrap().to_vec()
}

/// Parameters that every activation with parameters takes.
fn parameters(activation: Activation) -> &'static [f64] {
    &[-0.75, 6.5][..activation.parameters().len()]
}

fn in_binary32(activation: Activation, output: Element, x: &[f32]) -> Vec<f32> {
    let kernel = kernel(|b, thread| {
        let parameters: Vec<_> =
            parameters(activation).iter().map(|value| b.constant(*value as f32)).collect();
        let [from, to] = ["from", "to"].map(|name| b.param::<ty::U64>(name));
        let [x] = b.load_global(from.byte_offset(thread * 4));
        b.store_global(
            to.byte_offset(thread * 4),
            [activation.in_binary32(x, &parameters, output)],
        );
    });
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let found = run(&kernel, &bytes, 4);
    found.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn in_binary64(activation: Activation, x: &[f64]) -> Vec<f64> {
    let kernel = kernel(|b, thread| {
        let parameters: Vec<_> =
            parameters(activation).iter().map(|value| b.constant(*value)).collect();
        let [from, to] = ["from", "to"].map(|name| b.param::<ty::U64>(name));
        let [x] = b.load_global(from.byte_offset(thread * 8));
        b.store_global(to.byte_offset(thread * 8), [activation.in_binary64(x, &parameters)]);
    });
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let found = run(&kernel, &bytes, 8);
    found.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

/// 1024 numbers of each binade and sign, a fine grid around zero, and the largest numbers.
fn numbers() -> Vec<f32> {
    let finite = (0..=255u32 << 10).map(|high| f32::from_bits(high << 13));
    let finite = finite.filter(|x| x.is_finite()).flat_map(|x| [x, -x]);
    let fine = (-200_000..200_000).map(|i| i as f32 * 1.0e-4);
    let mut all: Vec<f32> = finite.chain(fine).chain([f32::MAX, f32::MIN]).collect();
    all.resize(all.len().next_multiple_of(WARPGROUP_THREADS as usize), 1.0);
    all
}

#[test]
fn binary32_is_within_its_bound() {
    let x = numbers();
    for activation in Activation::ALL {
        for output in [Element::Bf16, Element::F32] {
            let [relative, absolute] = activation.error(output);
            // The hardware's ex2 and reciprocal may be off by three units in the last place more
            // than the emulator's.
            let hardware = 3.0 * 2f64.powi(-23);
            let found = in_binary32(activation, output, &x);
            let mut most: f64 = 0.0;
            for (x, found) in x.iter().zip(found) {
                let exact = activation.reference(f64::from(*x), parameters(activation));
                let error = (f64::from(found) - exact).abs();
                let bound = (relative - hardware).max(0.0) * exact.abs() + absolute;
                assert!(error <= bound, "{activation}({x}) = {found}, not {exact}: {output}");
                most = most.max(if bound == 0.0 { 0.0 } else { error / bound });
            }
            let is_exact = activation.error(output) == [0.0; 2];
            let needed = is_exact || most > 0.2;
            assert!(needed, "{activation} {output}: {most} of its bound");
        }
    }
}

#[test]
fn binary64_is_within_its_bound() {
    let coarse = (-80_000..80_000).map(|i| f64::from(i) * 0.01);
    let mut x: Vec<f64> = coarse.chain((-9_000..9_000).map(|i| f64::from(i) * 1e-3)).collect();
    x.extend([1e300, -1e300, 1e-300, f64::MIN_POSITIVE, -1e-310]);
    x.resize(x.len().next_multiple_of(WARPGROUP_THREADS as usize), 1.0);
    for activation in Activation::ALL {
        let [relative, absolute] = activation.error(Element::F64);
        for (x, found) in x.iter().zip(in_binary64(activation, &x)) {
            let exact = activation.reference(*x, parameters(activation));
            let bound = relative * exact.abs() + absolute;
            assert!((found - exact).abs() <= bound, "{activation}({x}) = {found}, not {exact}");
        }
    }
}

#[test]
fn specials_are_kept() {
    let mut x = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MIN, f32::MAX];
    x.resize(WARPGROUP_THREADS as usize, 1.0);
    let doubles: Vec<f64> = x.iter().copied().map(f64::from).collect();
    for activation in Activation::ALL {
        let results = [Element::Bf16, Element::F32, Element::F64].map(|output| {
            let found: Vec<f64> = match output {
                Element::F64 => in_binary64(activation, &doubles),
                _ => in_binary32(activation, output, &x).into_iter().map(f64::from).collect(),
            };
            (output, found)
        });
        for (output, found) in results {
            assert!(found[0].is_nan(), "{activation} {output}");
            let [relative, absolute] = activation.error(output);
            for (x, found) in doubles.iter().zip(found).skip(1).take(6) {
                let exact = activation.reference(*x, parameters(activation));
                let close = (found - exact).abs() <= relative * exact.abs() + absolute;
                assert!(found == exact || close, "{activation}({x}) = {found}: {output}");
                // relu of a negative number is a zero of either sign.
                let signed = exact == 0.0 && activation != Activation::Relu;
                if signed && found == 0.0 {
                    let same = found.is_sign_negative() == exact.is_sign_negative();
                    assert!(same, "{activation}({x}) = {found}: {output}");
                }
            }
        }
    }
}

#[test]
fn references_are_right_at_known_places_and_at_the_ends() {
    let near = |found: f64, value: f64| (found - value).abs() <= 4e-15 * value.abs();
    // Φ(1) = 0.8413447460685429, Φ(−3) = 0.0013498980316300946, 1/(1 + e) = 0.2689414213699951,
    // tanh(1) = 0.7615941559557649. gelu by tanh of 1 is 0.8411919906082768.
    for (activation, x, value) in [
        (Activation::Gelu, 1.0, 0.841_344_746_068_542_9),
        (Activation::Gelu, -3.0, -3.0 * 0.001_349_898_031_630_094_6),
        (Activation::Silu, -1.0, -0.268_941_421_369_995_1),
        (Activation::Tanh, 1.0, 0.761_594_155_955_764_9),
        (Activation::Sigmoid, -1.0, 0.268_941_421_369_995_1),
        (Activation::GeluTanh, 1.0, 0.841_191_990_608_276_8),
        (Activation::Relu, 3.0, 3.0),
        (Activation::Relu, -3.0, 0.0),
        (Activation::Clamp, -3.0, -0.75),
        (Activation::Clamp, -0.5, -0.5),
        (Activation::Clamp, 30.0, 6.5),
    ] {
        assert!(near(activation.reference(x, parameters(activation)), value), "{activation}({x})");
    }
    let infinity = f64::INFINITY;
    for activation in Activation::ALL {
        let of = |x| activation.reference(x, parameters(activation));
        assert!(of(f64::NAN).is_nan(), "{activation}");
        let ends = (of(infinity), of(1e300), of(-1e300), of(-infinity), of(0.0));
        let expected = match activation {
            Activation::Tanh => (1.0, 1.0, -1.0, -1.0, 0.0),
            Activation::Sigmoid => (1.0, 1.0, 0.0, 0.0, 0.5),
            Activation::Clamp => (6.5, 6.5, -0.75, -0.75, 0.0),
            _ => (infinity, 1e300, 0.0, 0.0, 0.0),
        };
        assert_eq!(ends, expected, "{activation}");
        let keeps_sign = !matches!(activation, Activation::Relu | Activation::Sigmoid);
        assert_eq!(of(-0.0).is_sign_negative(), keeps_sign, "{activation}");
    }
}

#[test]
fn bounds_of_a_clamp_are_in_order() {
    use crate::epilogue::{Epilogue, ParameterError};

    let of = |text: &str| text.parse::<Epilogue>();
    for (text, bounds) in [
        ("bias_n|clamp(0,6)", [0.0, 6.0]),
        (" clamp ( -1.5e-3 , inf ) ", [-1.5e-3, f64::INFINITY]),
        ("clamp(-inf,-inf)", [f64::NEG_INFINITY; 2]),
        ("clamp(2,2)", [2.0, 2.0]),
    ] {
        assert_eq!(of(text).unwrap().parameters(), bounds);
    }
    // One kernel serves all bounds.
    let (six, one) = (of("bias_n|clamp(0,6)").unwrap(), of("bias_n|clamp(-1,1)").unwrap());
    assert!(six != one && six.shape() == one.shape());
    assert_eq!(six.shape().suffix(), "-ebias_n.clamp");
    assert_eq!(six.shape().to_string(), "bias_n|clamp(lower,upper)");
    assert_eq!(six.to_string(), "bias_n|clamp(0,6)");
    for (text, place, part) in [
        ("clamp", 1, "needs 2 parameters and has 0: write clamp(lower,upper)"),
        ("bias_m|clamp(1)", 2, "needs 2 parameters and has 1: write bias_m|clamp(lower,upper)"),
        ("clamp(1,2,3)", 1, "needs 2 parameters and has 3"),
        ("clamp(0,six)", 1, "has 'six' as parameter 2: write a number"),
        ("clamp(6,0)", 1, "has lower = 6 and upper = 0, which clamp does not take: lower must be"),
        ("clamp(NaN,0)", 1, "has lower = NaN"),
        ("clamp(0,nan)", 1, "upper = NaN"),
        ("clamp(0,6)|bias_n", 2, "comes after an activation"),
    ] {
        let error = of(text).unwrap_err();
        assert!(error.place == place && error.to_string().contains(part), "{error}");
    }
    let open = Epilogue::NONE.with_activation(Activation::Clamp);
    assert!(open.lacks_parameters());
    assert_eq!(open.with_parameters(&[0.0, 6.0]), of("clamp(0,6)").map_err(|_| unreachable!()));
    assert!(matches!(
        open.with_parameters(&[1.0, 0.0]),
        Err(ParameterError::Values { activation: Activation::Clamp, .. })
    ));
    // The parameters are those that kernels have.
    let tenth = of("clamp(0.1,1e300)").unwrap();
    assert_eq!(tenth.for_output(Element::F64), tenth);
    let single = tenth.for_output(Element::Bf16).parameters();
    assert_eq!(single, [f64::from(0.1f32), f64::INFINITY]);
}
