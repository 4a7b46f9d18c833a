//! The kernels of the catalogue that compute a problem, each with the terms of its cost model.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{
    DirectSpec, Instruction, Loader, OutputMajor, PRODUCTS, Product, Spec, SpecError, Terms,
    catalogue,
};

use crate::config::Config;
use crate::considered::{Key, Specs, Table, TileSample};
use crate::device::DeviceFacts;
use crate::error::Result;
use crate::heuristic::{RatedSpec, Shape, SpecGroup};
use crate::layout::Major;
use crate::operands::{OperandAlignment, PlannedProblem};
use crate::precision::Precision;
use crate::preferred::PreferredKernels;
use crate::problem::Problem;

/// All combinations of element types of A, B and D that have kernels.
pub fn types() -> impl Iterator<Item = [Element; 3]> {
    PRODUCTS.iter().flat_map(|product| {
        let pairs =
            product.operands.iter().flat_map(|&a| product.operands.iter().map(move |&b| (a, b)));
        pairs.flat_map(|(a, b)| product.outputs.iter().map(move |&output| [a, b, output]))
    })
}

/// The specs of the catalogue for operands of these types (`[A, B]`) and majors, rated. They
/// include specs that swap A and B. The table is built once for each combination. It is empty if
/// the types or majors have no kernel.
pub fn rated(
    operands: [Element; 2],
    output: Element,
    a: OperandMajor,
    b: OperandMajor,
) -> &'static [RatedSpec] {
    type Key = ([Element; 3], OperandMajor, OperandMajor);
    static TABLES: LazyLock<HashMap<Key, OnceLock<Vec<RatedSpec>>>> = LazyLock::new(|| {
        let with_majors = |types| catalogue::MAJORS.map(|(a, b)| ((types, a, b), OnceLock::new()));
        types().flat_map(with_majors).collect()
    });
    let [a_type, b_type] = operands;
    let Some(table) = TABLES.get(&([a_type, b_type, output], a, b)) else { return &[] };
    table.get_or_init(|| {
        let plain = catalogue::specs_for(operands, a, b, OutputMajor::N, output);
        let swapped = catalogue::specs_for([b_type, a_type], b, a, OutputMajor::M, output);
        plain.into_iter().chain(swapped).map(RatedSpec::new).collect()
    })
}

/// The direct kernels for operands of these types and majors that load so many elements of A and of
/// B at once, rated as by [`rated`].
fn rated_direct(
    operands: [Element; 2],
    output: Element,
    majors: (OperandMajor, OperandMajor),
    widths: [u32; 2],
) -> &'static [RatedSpec] {
    type Key = ([Element; 3], (OperandMajor, OperandMajor), [u32; 2]);
    static TABLES: LazyLock<HashMap<Key, OnceLock<Vec<RatedSpec>>>> = LazyLock::new(|| {
        let pairs = DirectSpec::WIDTHS.map(|a| DirectSpec::WIDTHS.map(|b| [a, b]));
        let of_majors = move |types: [Element; 3]| {
            let majors = catalogue::MAJORS.into_iter();
            majors
                .flat_map(move |majors| pairs.concat().into_iter().map(move |w| (types, majors, w)))
        };
        let of_halves = types().filter(|types| DirectSpec::multiplies(types[0]));
        of_halves.flat_map(of_majors).map(|key| (key, OnceLock::new())).collect()
    });
    let [a_type, b_type] = operands;
    let Some(table) = TABLES.get(&([a_type, b_type, output], majors, widths)) else { return &[] };
    table.get_or_init(|| {
        catalogue::direct(operands, majors, widths, output).map(RatedSpec::new).collect()
    })
}

/// The direct kernels that are worth estimating for a problem as its kernel sees it: those with no
/// block of lines too many and the widest loads that its strides allow, and that are preferred, if
/// preferred ones are given.
pub(crate) fn direct_for<'t>(
    PlannedProblem { problem, config, .. }: &PlannedProblem,
    preferred: Option<&'t PreferredKernels>,
) -> impl Iterator<Item = &'t RatedSpec> + use<'t> {
    let (operands, output) = (config.operands(), config.output_dtype());
    let is_preferred = are_preferred(config, preferred);
    let Problem { m, n, k, a, b, batch, .. } = *problem;
    let majors = (operand_major(a.major), operand_major(b.major));
    let widths = [
        DirectSpec::widest(majors.0, (a.leading_dimension | batch.a) as u64),
        DirectSpec::widest(majors.1, (b.leading_dimension | batch.b) as u64),
    ];
    let mma = DirectSpec::mma(operands[0]);
    let steps = [(m, mma.m), (n, mma.n), (k, mma.k)];
    let [m, n, k] = steps.map(|(extent, step)| extent.next_multiple_of(step as usize));
    let all: &'t [RatedSpec] = rated_direct(operands, output, majors, widths);
    all.iter().filter(move |rated| {
        let tile = rated.spec.tile;
        let fits = tile.m as usize <= m && tile.n as usize <= n && tile.k as usize <= k;
        fits && is_preferred(&rated.spec)
    })
}

/// The specs of the catalogue for f32 operands split into these terms, rated as by [`rated`].
pub fn rated_terms(element: Element, terms: Terms) -> &'static [RatedSpec] {
    static TABLES: [OnceLock<Vec<RatedSpec>>; catalogue::TERM_TYPES.len()] =
        [const { OnceLock::new() }; catalogue::TERM_TYPES.len()];
    let types = catalogue::TERM_TYPES;
    let Some(kind) = types.iter().position(|known| *known == (element, terms)) else { return &[] };
    TABLES[kind].get_or_init(|| {
        let majors = [OutputMajor::N, OutputMajor::M].into_iter();
        let specs = majors.flat_map(|d| catalogue::specs_of_terms(element, terms, d));
        specs.map(RatedSpec::new).collect()
    })
}

/// Every wgmma spec of the rule for a problem as its kernel sees it, whether the catalogue lists it
/// or not, with these loaders of A and B. They include specs that swap A and B.
pub fn rule_for(
    problem: &Problem,
    operands: [Element; 2],
    output: Element,
    precision: Precision,
    loaders: [Loader; 2],
) -> impl Iterator<Item = Spec> + use<> {
    let (a, b) = (operand_major(problem.a.major), operand_major(problem.b.major));
    let ([a_type, b_type], [of_a, of_b]) = (operands, loaders);
    let plain = catalogue::rule(operands, (a, b), loaders, OutputMajor::N, output);
    let swapped = [b_type, a_type];
    let swapped = catalogue::rule(swapped, (b, a), [of_b, of_a], OutputMajor::M, output);
    plain.chain(swapped).filter(move |spec| Precision::of(spec) == precision)
}

/// The rated specs for a problem as its kernel sees it. They include specs that swap A and B,
/// unless `swapped` says which ones are wanted.
pub(crate) fn rated_for(
    problem: &Problem,
    operands: [Element; 2],
    output: Element,
    precision: Precision,
    swapped: Option<bool>,
) -> impl Iterator<Item = &'static RatedSpec> + use<> {
    let (a, b) = (operand_major(problem.a.major), operand_major(problem.b.major));
    let rated = match precision.terms() {
        None => rated(operands, output, a, b),
        Some((element, terms)) => rated_terms(element, terms),
    };
    rated.iter().filter(move |rated| {
        let spec = rated.spec;
        Precision::of(&spec) == precision
            && swapped.is_none_or(|swapped| swapped == (spec.d_major == OutputMajor::M))
    })
}

/// The rated specs that are worth estimating for a problem as its kernel sees it: those of the
/// rule, or all that the catalogue lists if the rule has none of these types. They include specs
/// that swap A and B, unless the config says which ones are wanted. Of all these, only the
/// preferred ones are returned if such are given.
pub(crate) fn considered_for<'t>(
    planned: &PlannedProblem,
    shape: Shape,
    device: DeviceFacts,
    preferred: Option<&'t PreferredFor<'t>>,
) -> Vec<SpecGroup<Specs<'t>>> {
    let PlannedProblem { problem, config, .. } = planned;
    let Config { swapped, split, .. } = *config;
    let Some(key) = key_of(planned) else {
        let (operands, output) = (config.operands(), config.output_dtype());
        let specs = rated_for(problem, operands, output, config.precision(), swapped);
        let is_preferred = are_preferred(config, preferred.map(|preferred| preferred.kernels));
        let specs = specs.map(|rated| -> &'t RatedSpec { rated });
        let specs = Box::new(specs.filter(move |rated| is_preferred(&rated.spec)));
        return vec![SpecGroup { specs, least: None }];
    };
    let table = match preferred {
        None => Some(Table::of(key)),
        Some(preferred) => preferred.tables.get(&key).map(|table| &**table),
    };
    table.map(|table| table.considered(shape, device, swapped, split)).unwrap_or_default()
}

/// The preferred kernels for a problem.
pub(crate) struct PreferredFor<'t> {
    pub(crate) kernels: &'t PreferredKernels,
    /// Those of the rule, for each way to access the operands.
    tables: HashMap<Key, Arc<Table>>,
}

impl<'t> PreferredFor<'t> {
    /// The kernels for a problem with these ways to access its operands.
    pub(crate) fn new(
        kernels: &'t PreferredKernels,
        accesses: &[PlannedProblem],
    ) -> PreferredFor<'t> {
        let table = |planned: &PlannedProblem| {
            let key = key_of(planned)?;
            Some((key, kernels.table(key, planned.config.epilogue.shape())?))
        };
        PreferredFor { kernels, tables: accesses.iter().filter_map(table).collect() }
    }
}

/// Whether the kernel of a spec without its epilogue is a preferred one with it, or whether none
/// are given.
fn are_preferred<'t>(
    config: &Config,
    preferred: Option<&'t PreferredKernels>,
) -> impl Fn(&Spec) -> bool + use<'t> {
    let epilogue = config.epilogue.shape();
    move |spec| preferred.is_none_or(|preferred| preferred.contains(&Spec { epilogue, ..*spec }))
}

/// More rated specs than [`considered_for`] returns, most of which are not worth estimating for a
/// plan.
pub(crate) fn many_for(
    planned: &PlannedProblem,
    shape: Shape,
    device: DeviceFacts,
) -> Vec<SpecGroup<Specs<'static>>> {
    match key_of(planned) {
        Some(key) => Table::of(key).many(shape, device),
        None => considered_for(planned, shape, device, None),
    }
}

/// The key of the table of the rule's kernels for a problem as its kernel sees it. `None` if the
/// rule has none of these types.
fn key_of(planned: &PlannedProblem) -> Option<Key> {
    let PlannedProblem { problem, config, accesses, .. } = planned;
    let ([a, b], output, precision) =
        (config.operands(), config.output_dtype(), config.precision());
    let instruction = Product::of(a, b).map(|product| product.instruction);
    if instruction != Some(Instruction::Wgmma) || precision.terms().is_some() {
        return None;
    }
    let majors = [problem.a.major, problem.b.major].map(operand_major);
    Some(([a, b, output], precision, majors, accesses.loaders()))
}

/// The tiles with the least bounds for a problem, for each way to access its operands. Nothing is
/// returned for types without wgmma kernels in the rule. `scripts/fit-corrections.py` fits the
/// trees that correct the bounds to such samples.
pub fn tile_samples(
    problem: &Problem,
    config: &Config,
    device: impl Into<DeviceFacts>,
) -> Vec<Vec<TileSample>> {
    let device = device.into();
    let accesses = PlannedProblem::candidates(problem, config, OperandAlignment::ALIGNED);
    let samples = |planned: &PlannedProblem| {
        let table = Table::of(key_of(planned)?);
        Some(table.samples(Shape::of_planned(planned), planned.repack_cycles(), device))
    };
    accesses.iter().filter_map(samples).collect()
}

/// The specs for a problem as its kernel sees it. They include specs that swap A and B, unless
/// `swapped` says which ones are wanted.
pub fn specs_for(
    problem: &Problem,
    operands: [Element; 2],
    output: Element,
    precision: Precision,
    swapped: Option<bool>,
) -> impl Iterator<Item = Spec> + use<> {
    rated_for(problem, operands, output, precision, swapped).map(|rated| rated.spec)
}

/// Checks that there are kernels for operands of these types and majors, and that they take the
/// problem's scalars.
///
/// # Errors
/// [`SpecError::Types`], [`SpecError::Major`], or a scalar that the kernels do not take.
pub(crate) fn check_types(
    problem: &Problem,
    operands: [Element; 2],
    output: Element,
) -> Result<()> {
    let ([a, b], k) = (operands, OperandMajor::K);
    let majors = (operand_major(problem.a.major), operand_major(problem.b.major));
    if rated(operands, output, majors.0, majors.1).is_empty() {
        let other_majors = !rated(operands, output, k, k).is_empty();
        return Err(match majors {
            (OperandMajor::Mn, _) if other_majors => SpecError::Major { operand: "A", element: a },
            (_, OperandMajor::Mn) if other_majors => SpecError::Major { operand: "B", element: b },
            _ => SpecError::Types { a, b, output },
        }
        .into());
    }
    problem.check_scalars(output)
}

/// The major as the kernels name it.
fn operand_major(major: Major) -> OperandMajor {
    match major {
        Major::K => OperandMajor::K,
        Major::M | Major::N => OperandMajor::Mn,
    }
}
