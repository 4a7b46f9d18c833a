//! The catalogue: all specs that the planner may choose. CI assembles each of them and runs it in
//! the emulator.

mod direct;
mod registers;
mod rule;
mod shapes;

use pgemm_ir::{Element, OperandMajor};

pub use self::direct::direct;
pub use self::rule::{in_clusters, in_widths, rule, rule_rows, with_rings};
use self::shapes::{
    ACROSS, F16_SUMS, F16_SUMS_NARROW, FEWEST_STAGES, FROM_REGISTERS, K_MAJOR, K_MAJOR_NARROW,
    NARROW, NARROWED, NARROWED_NARROW, NARROWED_PROMOTED, PROMOTED, PROMOTED_NARROW, SHAPES,
    SPAN_BYTES, Shape, TERMS, TERMS_NARROW,
};
use crate::dtype::{Instruction, Product};
use crate::epilogue::EpilogueShape;
use crate::spec::{
    Cluster, MainloopSpec, Schedule, Spec, Summation, Terms, Tile, WgmmaSpec, WorkSource,
};
use crate::tiles::staging::OutputMajor;

/// Elements along K after which the catalogue's kernels promote sums of 8-bit floats. They are the
/// depth of four MMAs.
pub const PROMOTION_8: u32 = 128;

/// The element types and terms of operands of several terms. The exponents of f16 need scales.
pub const TERM_TYPES: [(Element, Terms); 4] = [
    (Element::Tf32, Terms::X3),
    (Element::F16, Terms::X3),
    (Element::Bf16, Terms::X6),
    (Element::Bf16, Terms::X9),
];

/// Types of operands that do not have 16 bits, and of their results. The catalogue has every kernel
/// of these types. Kernels of further types differ only in the names of types in an instruction.
const K_MAJOR_TYPES: [([Element; 2], Element); 11] = [
    ([Element::Tf32; 2], Element::F32),
    ([Element::E4m3; 2], Element::Bf16),
    ([Element::E4m3; 2], Element::F32),
    ([Element::E4m3, Element::E5m2], Element::Bf16),
    ([Element::E5m2, Element::E4m3], Element::Bf16),
    ([Element::E5m2; 2], Element::Bf16),
    ([Element::S8; 2], Element::S32),
    ([Element::E4m3; 2], Element::E4m3),
    ([Element::S8; 2], Element::S8),
    ([Element::S8; 2], Element::Bf16),
    ([Element::S8; 2], Element::F32),
];

/// Whether only the reduced list of shapes is available for a D of this type.
fn is_narrowed(operands: [Element; 2], output: Element) -> bool {
    output.bytes() == 1 || operands[0].is_integer() && output != Element::S32
}

/// Minimum number of stages if a stage holds several terms. Such a stage keeps tensor cores busy
/// for longer.
const FEWEST_STAGES_OF_TERMS: u32 = 2;

/// Every spec of these types and majors, with the largest tile first. The list is empty if no
/// kernel has them. `operands` are the types of A and B. Specs with promoted sums of 8-bit floats
/// come last, and so do specs that sum f16 in f16.
pub fn specs_for(
    operands: [Element; 2],
    a_major: OperandMajor,
    b_major: OperandMajor,
    d_major: OutputMajor,
    output: Element,
) -> Vec<Spec> {
    let [a, b] = operands;
    let product = Product::of(a, b).filter(|product| product.outputs.contains(&output));
    match (product.map(|product| product.instruction), d_major) {
        (Some(Instruction::Wgmma), _) => {
            wgmma_specs(operands, a_major, b_major, d_major, output).collect()
        }
        (Some(Instruction::Dmma), OutputMajor::N) => registers::dmma(a_major, b_major).collect(),
        (Some(Instruction::Ffma), OutputMajor::N) => registers::ffma(a_major, b_major).collect(),
        (Some(Instruction::Dmma | Instruction::Ffma), OutputMajor::M) | (None, _) => vec![],
    }
}

fn wgmma_specs(
    operands: [Element; 2],
    a_major: OperandMajor,
    b_major: OperandMajor,
    d_major: OutputMajor,
    output: Element,
) -> impl Iterator<Item = Spec> {
    // If an MN-major B beside a K-major A would be padded, it is better to swap the operands and
    // make it the M side.
    let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
    let narrowed = is_narrowed(operands, output);
    let shapes: Vec<&Shape> = match (d_major, a_major, b_major) {
        (OutputMajor::N, ..) if narrowed => NARROWED.iter().collect(),
        (OutputMajor::M, ..) if narrowed => NARROWED_NARROW.iter().collect(),
        (d, a, _) if (operands[0], a) == (Element::Tf32, mn) => {
            let narrow = if d == OutputMajor::M { &K_MAJOR_NARROW[..] } else { &[] };
            narrow.iter().chain(&FROM_REGISTERS).collect()
        }
        (OutputMajor::N, ..) if operands[0].bytes() != 2 => K_MAJOR.iter().collect(),
        (OutputMajor::M, ..) if operands[0].bytes() != 2 => K_MAJOR_NARROW.iter().collect(),
        (OutputMajor::N, a, b) if (a, b) == (k, mn) => {
            SHAPES.iter().filter(|shape| !shape.pads_b()).collect()
        }
        (OutputMajor::N, ..) => SHAPES.iter().collect(),
        (OutputMajor::M, a, b) if (a, b) == (mn, k) => NARROW
            .iter()
            .chain(&ACROSS)
            .chain(SHAPES.iter().filter(|shape| shape.pads_b()))
            .collect(),
        (OutputMajor::M, ..) => NARROW.iter().collect(),
    };
    // To bound the catalogue, clusters of four are used only with results in the operands' type,
    // and not if both operands are MN-major.
    let mn_major = (OperandMajor::Mn, OperandMajor::Mn);
    let same_type = [output; 2] == operands;
    let most_ctas = if same_type && (a_major, b_major) != mn_major { 4 } else { 2 };
    let paired = same_type || operands[0].bytes() != 2;
    let plain = shapes.into_iter().map(|shape| (shape, Summation::TensorCore));
    let promoted = Summation::Promoted { interval: PROMOTION_8 };
    let is_float8 = operands[0].bytes() == 1 && operands[0].is_float();
    let (others, summation): (&[Shape], _) = match (operands[0], d_major) {
        (_, OutputMajor::N) if is_float8 && narrowed => (&NARROWED_PROMOTED, promoted),
        (_, OutputMajor::N) if is_float8 => (&PROMOTED, promoted),
        (_, OutputMajor::M) if is_float8 => (&PROMOTED_NARROW, promoted),
        (Element::F16, OutputMajor::N) => (&F16_SUMS, Summation::F16),
        (Element::F16, OutputMajor::M) => (&F16_SUMS_NARROW, Summation::F16),
        _ => (&[], Summation::TensorCore),
    };
    let others = others.iter().map(move |shape| (shape, summation));
    let worth = move |&(shape, _): &(&Shape, Summation)| shape.everywhere || paired;
    plain.chain(others).filter(worth).flat_map(move |(shape, summation)| {
        let clusters = shape.clusters.iter().map(|&(m, n)| Cluster { m, n });
        let clusters = clusters.filter(move |cluster| cluster.size() <= most_ctas);
        let none = shape.everywhere.then_some(Cluster::NONE);
        none.into_iter().chain(clusters).filter_map(move |cluster| {
            let spec = Spec {
                a: operands[0],
                b: operands[1],
                output,
                a_major,
                b_major,
                d_major,
                cluster,
                mainloop: MainloopSpec::Wgmma(WgmmaSpec { summation, ..shape.wgmma() }),
                ..shape.spec(operands[0])
            };
            with_ring(spec, shape, FEWEST_STAGES)
        })
    })
}

/// Every spec for operands of several terms, with the largest tile first. The list is empty if no
/// kernel has them. Sums are promoted in every stage. Operands of f16 have scales.
pub fn specs_of_terms(
    element: Element,
    terms: Terms,
    d_major: OutputMajor,
) -> impl Iterator<Item = Spec> {
    let shapes: &[Shape] = match d_major {
        _ if !TERM_TYPES.contains(&(element, terms)) => &[],
        OutputMajor::N => &TERMS,
        OutputMajor::M => &TERMS_NARROW,
    };
    shapes.iter().filter_map(move |shape| {
        let spec = Spec { output: Element::F32, d_major, ..shape.spec(element) };
        let summation = Summation::Promoted { interval: spec.tile.k };
        let wgmma = WgmmaSpec { summation, terms: Some(terms), ..shape.wgmma() };
        let scaled = element == Element::F16;
        let spec = Spec { mainloop: MainloopSpec::Wgmma(wgmma), scaled, ..spec };
        with_ring(spec, shape, FEWEST_STAGES_OF_TERMS)
    })
}

/// The spec with the deepest ring of a shape that fits. `None` if that ring is too shallow, or the
/// spec is impossible.
fn with_ring(spec: Spec, shape: &Shape, fewest: u32) -> Option<Spec> {
    let spec = Spec { stages: fewest, ..spec };
    let spec = Spec { stages: shape.stages.min(spec.most_stages()), ..spec };
    (spec.stages >= fewest && spec.validate().is_ok()).then_some(spec)
}

/// Every spec of a wgmma kernel.
pub fn specs() -> impl Iterator<Item = Spec> {
    let halves = [Element::Bf16, Element::F16].into_iter().flat_map(|operand| {
        [operand, Element::F32].into_iter().flat_map(move |output| {
            MAJORS.into_iter().map(move |majors| ([operand; 2], output, majors))
        })
    });
    let k_major = (OperandMajor::K, OperandMajor::K);
    let others =
        K_MAJOR_TYPES.into_iter().map(move |(operands, output)| (operands, output, k_major));
    let register_majors = (OperandMajor::Mn, OperandMajor::K);
    let others = others.chain([([Element::Tf32; 2], Element::F32, register_majors)]);
    let majors = [OutputMajor::N, OutputMajor::M];
    let stored = halves.chain(others).flat_map(move |(operands, output, (a, b))| {
        majors.into_iter().flat_map(move |d| wgmma_specs(operands, a, b, d, output))
    });
    let terms = TERM_TYPES.into_iter().flat_map(move |(element, terms)| {
        majors.into_iter().flat_map(move |d| specs_of_terms(element, terms, d))
    });
    stored.chain(terms)
}

/// The resident kernel of these types and majors, with the deepest ring that fits. It is either for
/// many or large jobs, or for few small jobs.
pub fn resident(
    [a, b]: [Element; 2],
    output: Element,
    [a_major, b_major]: [OperandMajor; 2],
    summation: Summation,
    small: bool,
) -> Spec {
    const STAGES: u32 = 8;
    let (extent, consumers, schedule) = match (small, summation) {
        (true, _) => (64, 1, Schedule::Cooperative),
        (false, Summation::Promoted { .. }) => (128, 2, Schedule::Cooperative),
        (false, _) => (128, 2, Schedule::PingPong),
    };
    let wgmma = WgmmaSpec { summation, ..WgmmaSpec::new(consumers, schedule) };
    let spec = Spec {
        a,
        b,
        output,
        a_major,
        b_major,
        d_major: OutputMajor::N,
        tile: Tile { m: extent, n: extent, k: SPAN_BYTES / a.bytes() },
        stages: STAGES,
        cluster: Cluster::NONE,
        mainloop: MainloopSpec::Wgmma(wgmma),
        scaled: false,
        epilogue: EpilogueShape::NONE,
        source: WorkSource::Queue,
    };
    Spec { stages: STAGES.min(spec.most_stages()), ..spec }
}

/// Every spec of every instruction.
pub fn all() -> impl Iterator<Item = Spec> {
    let of_f64 = MAJORS.into_iter().flat_map(|(a, b)| registers::dmma(a, b));
    let of_f32 = MAJORS.into_iter().flat_map(|(a, b)| registers::ffma(a, b));
    specs().chain(of_f64).chain(of_f32)
}

/// The four combinations of operand majors.
pub const MAJORS: [(OperandMajor, OperandMajor); 4] = [
    (OperandMajor::K, OperandMajor::K),
    (OperandMajor::K, OperandMajor::Mn),
    (OperandMajor::Mn, OperandMajor::K),
    (OperandMajor::Mn, OperandMajor::Mn),
];

#[cfg(test)]
mod tests;
