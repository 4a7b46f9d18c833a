//! The catalogue: the specs that the planner may pick. CI assembles all of it and runs all of it in the emulator.

mod registers;

use pgemm_ir::{Element, OperandMajor};

use crate::dtype::{Instruction, Product};
use crate::epilogue::EpilogueShape;
use crate::spec::{
    Cluster, MainloopSpec, OutputMajor, Schedule, Spec, Summation, Terms, Tile, WgmmaSpec,
    WorkSource,
};

/// A CTA tile with its ring and warpgroups; the same for every type and layout where it fits.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: u32,
    n: u32,
    /// Depth of a stage in bytes.
    k_bytes: u32,
    consumers: u32,
    schedule: Schedule,
    /// Deepest ring worth having; where memory is short, as many stages as fit.
    stages: u32,
    /// Clusters worth having, CTAs along m and n.
    clusters: Clusters,
    /// Whether it is worth having without a cluster and, of 16-bit operands, with other results than of their type.
    everywhere: bool,
}

type Clusters = &'static [(u32, u32)];

const ALONE: Clusters = &[];
/// Pairs that share the rows of A.
const ROW: Clusters = &[(1, 2)];
/// Pairs that share the columns of B.
const COLUMN: Clusters = &[(2, 1)];
const PAIRS: Clusters = &[(2, 1), (1, 2)];
/// Two by two, which take half the lines of either operand from L2.
const SQUARES: Clusters = &[(2, 2)];
const UP_TO_SQUARES: Clusters = &[(2, 1), (1, 2), (2, 2)];
/// CTAs that share the few rows of a problem with swapped operands.
const COLUMNS: Clusters = &[(2, 1), (4, 1)];

impl Shape {
    /// With stages of two swizzle spans.
    const fn deep(self) -> Shape {
        Shape { k_bytes: 2 * SPAN_BYTES, ..self }
    }

    /// Only in clusters and, of 16-bit operands, with results of their type: a width that fills the last wave of some large
    /// problems.
    const fn paired(self) -> Shape {
        Shape { everywhere: false, ..self }
    }

    /// The spec for operands and results of `element`, contiguous along K, with the fewest stages.
    fn spec(&self, element: Element) -> Spec {
        Spec {
            a: element,
            b: element,
            output: element,
            a_major: OperandMajor::K,
            b_major: OperandMajor::K,
            d_major: OutputMajor::N,
            tile: Tile { m: self.m, n: self.n, k: self.k_bytes / element.bytes() },
            stages: FEWEST_STAGES,
            cluster: Cluster::NONE,
            mainloop: MainloopSpec::Wgmma(self.wgmma()),
            scaled: false,
            epilogue: EpilogueShape::NONE,
            source: WorkSource::Launch,
        }
    }

    fn wgmma(&self) -> WgmmaSpec {
        WgmmaSpec::new(self.consumers, self.schedule)
    }

    /// Whether an MN-major B fills only part of the 128-byte rows of its boxes: memory that a deeper ring could use. A few
    /// columns are worth it.
    fn pads_b(&self) -> bool {
        !self.n.is_multiple_of(64) && self.n > 32
    }
}

/// Warpgroups that share each tile.
const fn shape(m: u32, n: u32, consumers: u32, stages: u32, clusters: Clusters) -> Shape {
    Shape {
        m,
        n,
        k_bytes: SPAN_BYTES,
        consumers,
        schedule: Schedule::Cooperative,
        stages,
        clusters,
        everywhere: true,
    }
}

/// Two warpgroups that take turns.
const fn turns(m: u32, n: u32, stages: u32, clusters: Clusters) -> Shape {
    Shape {
        m,
        n,
        k_bytes: SPAN_BYTES,
        consumers: 2,
        schedule: Schedule::PingPong,
        stages,
        clusters,
        everywhere: true,
    }
}

/// Bytes of a swizzle span: the depth of most stages.
const SPAN_BYTES: u32 = 128;

/// Kernels with a row-major D, largest first. The large ones save traffic from L2, the small ones fill the device on small
/// problems.
const SHAPES: [Shape; 47] = [
    shape(256, 192, 2, 3, ALONE),
    shape(128, 256, 2, 3, ALONE),
    shape(128, 256, 2, 4, UP_TO_SQUARES),
    shape(256, 160, 2, 4, ALONE),
    shape(256, 128, 2, 3, ALONE),
    shape(256, 128, 2, 4, UP_TO_SQUARES),
    shape(192, 192, 3, 4, ALONE),
    shape(192, 176, 3, 4, ALONE),
    shape(192, 128, 3, 5, ALONE),
    shape(128, 224, 2, 4, ALONE),
    shape(128, 192, 2, 5, ALONE),
    shape(128, 160, 2, 5, ALONE),
    shape(192, 96, 3, 5, COLUMN),
    shape(128, 144, 2, 5, ALONE),
    shape(128, 128, 2, 6, UP_TO_SQUARES),
    shape(128, 112, 2, 7, COLUMN),
    shape(128, 96, 2, 7, PAIRS),
    shape(128, 80, 2, 7, COLUMN).paired(),
    shape(64, 256, 1, 5, ALONE),
    shape(64, 128, 1, 8, &[(2, 1), (4, 1), (2, 2)]),
    shape(128, 64, 2, 8, &[(2, 1), (2, 2)]),
    shape(64, 112, 1, 10, PAIRS),
    shape(64, 96, 1, 11, COLUMN),
    shape(128, 48, 2, 10, ALONE),
    shape(64, 64, 1, 10, ALONE),
    shape(64, 80, 1, 6, &[(1, 2), (1, 4)]).deep(),
    shape(64, 64, 1, 5, UP_TO_SQUARES).deep(),
    shape(64, 48, 1, 8, &[(1, 2), (1, 4)]).deep(),
    shape(128, 32, 2, 5, ALONE).deep(),
    shape(64, 32, 1, 7, ALONE).deep(),
    shape(64, 16, 1, 8, ALONE).deep(),
    shape(64, 16, 1, 5, ALONE).deep(),
    shape(64, 8, 1, 8, ALONE).deep(),
    turns(128, 208, 4, COLUMN).paired(),
    turns(128, 200, 5, COLUMN).paired(),
    turns(128, 192, 4, COLUMN),
    turns(128, 176, 4, COLUMN),
    turns(128, 168, 5, COLUMN).paired(),
    turns(128, 160, 5, COLUMN).paired(),
    turns(128, 144, 5, COLUMN).paired(),
    turns(192, 128, 4, ROW),
    turns(128, 128, 6, PAIRS),
    turns(128, 112, 6, COLUMN).paired(),
    turns(128, 96, 7, COLUMN).paired(),
    turns(128, 72, 7, SQUARES).paired(),
    turns(64, 256, 4, ALONE),
    turns(64, 128, 8, ALONE),
];

/// Kernels with a column-major D, for few rows: operands change places, so that these rows are a narrow tile's columns. Of
/// those with the shallower ring an SM holds two.
const NARROW: [Shape; 15] = [
    shape(64, 8, 1, 5, ALONE).deep(),
    shape(64, 8, 1, 8, COLUMNS).deep(),
    shape(64, 16, 1, 10, ALONE),
    shape(64, 16, 1, 5, ALONE).deep(),
    shape(64, 16, 1, 8, COLUMNS).deep(),
    shape(64, 32, 1, 8, ALONE),
    shape(64, 32, 1, 7, COLUMNS).deep(),
    shape(64, 64, 1, 6, &[(2, 1), (4, 1), (1, 2)]).deep(),
    shape(64, 128, 1, 4, ALONE),
    shape(64, 128, 1, 8, &[(2, 1), (4, 1), (1, 2), (2, 2)]),
    shape(128, 16, 2, 10, ALONE),
    shape(128, 32, 2, 8, ALONE),
    shape(128, 64, 2, 8, COLUMNS),
    shape(128, 128, 2, 6, COLUMNS),
    shape(256, 16, 2, 6, ALONE),
];

/// With a column-major D, an M-major A and a K-major B: what stores its columns faster where both warpgroups do.
const ACROSS: [Shape; 1] = [shape(128, 72, 2, 8, SQUARES).paired()];

/// Kernels for operands that are not of 16 bits, all of them K-major, with a row-major D: enough for problems large and small.
const K_MAJOR: [Shape; 9] = [
    shape(128, 256, 2, 4, PAIRS),
    shape(256, 128, 2, 4, ROW),
    turns(128, 192, 4, COLUMN),
    turns(128, 144, 6, COLUMN).paired(),
    turns(128, 128, 6, COLUMN),
    turns(128, 112, 7, COLUMN).paired(),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 128, 1, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// The same with a column-major D, for few rows.
const K_MAJOR_NARROW: [Shape; 5] = [
    shape(64, 8, 1, 8, ALONE).deep(),
    shape(64, 16, 1, 8, COLUMN).deep(),
    shape(64, 32, 1, 7, ALONE).deep(),
    shape(64, 64, 1, 6, ALONE).deep(),
    shape(128, 16, 2, 10, ALONE),
];

/// Kernels for tf32 whose M-major A goes through registers, with a row-major D and, behind those for few rows, with a column-major
/// one: all problems whose B is row-major are computed so.
const FROM_REGISTERS: [Shape; 8] = [
    shape(128, 256, 2, 4, PAIRS),
    shape(256, 128, 2, 4, ROW),
    shape(128, 192, 2, 5, COLUMN),
    turns(128, 128, 6, COLUMN),
    turns(128, 112, 7, COLUMN).paired(),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 128, 1, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Kernels for 8-bit floats whose sums are promoted, with a row-major D. Two warpgroups at least keep the tensor core busy, with up to
/// 128 columns three do. The first two have registers for results of 16 bits only.
const PROMOTED: [Shape; 7] = [
    shape(128, 208, 2, 4, ALONE),
    shape(192, 128, 3, 4, ALONE),
    shape(128, 192, 2, 4, ALONE),
    shape(128, 176, 2, 4, ROW),
    shape(128, 128, 2, 6, ALONE),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// The same with a column-major D, for few rows.
const PROMOTED_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, ALONE).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// Kernels that add up f16 in f16, with a row-major D. Their sums take half the registers of others, so tiles may be larger.
const F16_SUMS: [Shape; 4] = [
    turns(128, 256, 4, COLUMN),
    turns(128, 128, 6, COLUMN),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// The same with a column-major D, for few rows.
const F16_SUMS_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, COLUMN).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// Kernels with a row-major D that is rarer with 8-bit operands: of 8-bit floats, or of what integers are scaled to.
const NARROWED: [Shape; 4] = [
    shape(128, 256, 2, 4, COLUMN),
    turns(128, 128, 6, COLUMN),
    shape(128, 64, 2, 8, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// The same with a column-major D, for few rows.
const NARROWED_NARROW: [Shape; 2] =
    [shape(64, 16, 1, 8, ALONE).deep(), shape(64, 64, 1, 6, ALONE).deep()];

/// The same with a row-major D and sums that are promoted.
const NARROWED_PROMOTED: [Shape; 4] = [
    shape(128, 192, 2, 4, ALONE),
    shape(128, 176, 2, 4, ROW),
    shape(128, 128, 2, 6, ALONE),
    shape(64, 64, 1, 5, ALONE).deep(),
];

/// Elements of k after which the catalogue's kernels promote 8-bit floats: four MMAs.
pub const PROMOTION_8: u32 = 128;

/// Kernels for operands of several terms, with a row-major D and with a column-major one.
const TERMS: [Shape; 3] =
    [shape(256, 128, 2, 3, ALONE), shape(128, 128, 2, 4, ALONE), shape(64, 64, 1, 6, ALONE)];
const TERMS_NARROW: [Shape; 1] = [shape(64, 16, 1, 8, ALONE)];

/// What operands of several terms consist of. The exponents of f16 need scales.
pub const TERM_TYPES: [(Element, Terms); 4] = [
    (Element::Tf32, Terms::X3),
    (Element::F16, Terms::X3),
    (Element::Bf16, Terms::X6),
    (Element::Bf16, Terms::X9),
];

/// Operands that are not of 16 bits, and their results, of which the catalogue has every kernel. Those of other types differ
/// in nothing but the types' names in an instruction.
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

/// Whether a D is of a type that fewer kernels store.
fn is_narrowed(operands: [Element; 2], output: Element) -> bool {
    output.bytes() == 1 || operands[0].is_integer() && output != Element::S32
}

/// Fewest stages that hide the latency of a load (two reach three quarters of the speed of three).
const FEWEST_STAGES: u32 = 3;

/// The same where a stage has several terms, and keeps tensor cores busy as much longer.
const FEWEST_STAGES_OF_TERMS: u32 = 2;

/// Every spec of these types and majors, the largest tile first; none where there is no kernel for
/// them. `operands` are the types of A and B. Of 8-bit floats those whose sums are promoted come
/// behind the others, and so do those that sum f16 in f16.
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
    // An MN-major B beside a K-major A is better the M side of transposed operands where it would be padded.
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
    // To bound the catalogue, clusters of four only with results in the operands' type, and not where both operands are
    // MN-major.
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

/// Every spec for operands that are sums of such terms, the largest tile first; none where there is no kernel for them. They
/// are promoted in every stage; f16's have scales.
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

/// The deepest ring of a shape that fits; None where that is too shallow, or the spec impossible.
fn with_ring(spec: Spec, shape: &Shape, fewest: u32) -> Option<Spec> {
    let spec = Spec { stages: fewest, ..spec };
    let spec = Spec { stages: shape.stages.min(spec.most_stages()), ..spec };
    (spec.stages >= fewest && spec.validate().is_ok()).then_some(spec)
}

/// Every spec of a kernel of warpgroups.
pub fn specs() -> impl Iterator<Item = Spec> {
    let halves = [Element::Bf16, Element::F16].into_iter().flat_map(|operand| {
        [operand, Element::F32].into_iter().flat_map(move |output| {
            MAJORS.into_iter().map(move |majors| ([operand; 2], output, majors))
        })
    });
    let k_major = (OperandMajor::K, OperandMajor::K);
    let others =
        K_MAJOR_TYPES.into_iter().map(move |(operands, output)| (operands, output, k_major));
    let of_registers = (OperandMajor::Mn, OperandMajor::K);
    let others = others.chain([([Element::Tf32; 2], Element::F32, of_registers)]);
    let majors = [OutputMajor::N, OutputMajor::M];
    let stored = halves.chain(others).flat_map(move |(operands, output, (a, b))| {
        majors.into_iter().flat_map(move |d| wgmma_specs(operands, a, b, d, output))
    });
    let terms = TERM_TYPES.into_iter().flat_map(move |(element, terms)| {
        majors.into_iter().flat_map(move |d| specs_of_terms(element, terms, d))
    });
    stored.chain(terms)
}

/// The resident kernel of these types and majors for many or large jobs, or for few small ones, with
/// as deep a ring as fits.
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
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_type_and_layout_has_large_and_small_tiles_and_no_name_twice() {
        let all: Vec<_> = specs().collect();
        assert!((200..=1880).contains(&all.len()), "{}", all.len());
        let names: HashSet<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len());
        for (a, b) in MAJORS {
            for output in [Element::Bf16, Element::F32] {
                let specs: Vec<_> = specs_for([Element::Bf16; 2], a, b, OutputMajor::N, output);
                assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n >= 256 * 192));
                assert!(specs.iter().any(|spec| spec.tile.m * spec.tile.n <= 64 * 64));
            }
        }
    }

    #[test]
    fn f16_is_added_up_in_f16_by_large_and_small_tiles_of_every_layout() {
        let of = |operand: Element, output, (a, b), d| -> Vec<Spec> {
            let specs = specs_for([operand; 2], a, b, d, output);
            let in_f16 =
                |spec: &Spec| spec.wgmma().is_some_and(|wgmma| wgmma.summation == Summation::F16);
            specs.into_iter().filter(in_f16).collect()
        };
        for majors in MAJORS {
            for output in [Element::F16, Element::F32] {
                let rows = of(Element::F16, output, majors, OutputMajor::N);
                for area in [128 * 256, 128 * 128, 64 * 64] {
                    assert!(rows.iter().any(|spec| spec.tile.m * spec.tile.n == area), "{area}");
                }
                let few_rows = of(Element::F16, output, majors, OutputMajor::M);
                assert!(few_rows.iter().any(|spec| spec.tile.n == 16));
            }
            assert_eq!(of(Element::Bf16, Element::Bf16, majors, OutputMajor::N), []);
        }
    }

    #[test]
    fn every_spec_of_f64_and_f32_is_legal_and_none_is_there_twice() {
        let all: Vec<_> = all().filter(|spec| spec.wgmma().is_none()).collect();
        for (index, spec) in all.iter().enumerate() {
            assert_eq!(spec.validate(), Ok(()), "{spec}");
            assert!(!all[..index].contains(spec), "{spec}");
        }
        for ends in ["k8", "w2x4"] {
            assert!(all.iter().any(|spec| spec.to_string().ends_with(ends)), "{ends}");
        }
    }

    #[test]
    fn operands_that_are_not_of_16_bits_have_a_kernel_of_each_shape_where_they_are_k_major() {
        let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
        let others = [
            ([Element::E5m2; 2], Element::F16),
            ([Element::U8, Element::S8], Element::S32),
            ([Element::U8; 2], Element::S32),
            ([Element::E5m2, Element::E4m3], Element::E5m2),
            ([Element::U8, Element::S8], Element::F16),
        ];
        for (operands, output) in K_MAJOR_TYPES.into_iter().chain(others) {
            let narrowed = is_narrowed(operands, output);
            let [of_n, of_m, promoted_n] = match narrowed {
                false => [&K_MAJOR[..], &K_MAJOR_NARROW, &PROMOTED],
                true => [&NARROWED[..], &NARROWED_NARROW, &NARROWED_PROMOTED],
            };
            for (d, shapes) in [(OutputMajor::N, of_n), (OutputMajor::M, of_m)] {
                let specs = specs_for(operands, k, k, d, output);
                let count = |shapes: &[Shape]| -> usize {
                    shapes
                        .iter()
                        .map(|shape| usize::from(shape.everywhere) + shape.clusters.len())
                        .sum()
                };
                let promoted_n = if output == Element::F32 { &promoted_n[2..] } else { promoted_n };
                let (promoted, plain): (Vec<_>, Vec<_>) = specs.into_iter().partition(|spec| {
                    spec.wgmma().is_some_and(|wgmma| wgmma.promotion().is_some())
                });
                assert_eq!(plain.len(), count(shapes), "{operands:?} {output}");
                let float = matches!(operands[0], Element::E4m3 | Element::E5m2);
                let expected = match d {
                    OutputMajor::N => count(promoted_n),
                    OutputMajor::M => count(&PROMOTED_NARROW),
                };
                let expected = if float { expected } else { 0 };
                assert_eq!(promoted.len(), expected, "{operands:?} {output}");
                assert!(specs_for(operands, k, mn, d, output).is_empty());
            }
        }
        for (element, terms) in TERM_TYPES {
            for (d, least) in [(OutputMajor::N, 2), (OutputMajor::M, 1)] {
                assert!(specs_of_terms(element, terms, d).count() >= least, "{element} {terms:?}");
            }
        }
        assert_eq!(specs_of_terms(Element::E4m3, Terms::X3, OutputMajor::N).count(), 0);
        let of_s8 = |output| specs_for([Element::S8; 2], k, k, OutputMajor::N, output).len();
        assert_eq!([Element::U8, Element::E4m3].map(of_s8), [0; 2]);
    }

    #[test]
    fn an_m_major_a_of_tf32_has_a_kernel_of_each_shape_beside_a_k_major_b() {
        let (k, mn) = (OperandMajor::K, OperandMajor::Mn);
        let count = |a, b, d| specs_for([Element::Tf32; 2], a, b, d, Element::F32).len();
        let all = |shapes: &[Shape]| -> usize {
            let of = |shape: &Shape| usize::from(shape.everywhere) + shape.clusters.len();
            shapes.iter().map(of).sum()
        };
        let large = all(&FROM_REGISTERS);
        assert_eq!(count(mn, k, OutputMajor::N), large);
        assert_eq!(count(mn, k, OutputMajor::M), large + all(&K_MAJOR_NARROW));
        for d in [OutputMajor::N, OutputMajor::M] {
            assert_eq!([count(k, mn, d), count(mn, mn, d)], [0; 2]);
        }
    }
}
