//! [`Problem`] is the view that the roles of a kernel have of an item's problem. A launched kernel
//! has it in its parameters, and a resident kernel in the record of a job.

pub(crate) mod scales;

use pgemm_ir::{KernelBuilder, TensorMapSpec, Val, ty};

use self::scales::Scales;
use crate::compute::Compute;
use crate::epilogue::BiasAlong;
use crate::operands::{BatchMap, MemoryMatrix, OperandMatrix};
use crate::params::Params;
use crate::quantity::{Matrix, Quantity, Side};
use crate::scheduler::Scheduler;
use crate::spec::{Loader, Spec};
use crate::tiles::operand::StageTile;

/// The TMA boxes of a kernel's matrices.
pub(crate) struct Boxes {
    /// The boxes of the operands. Kernels whose operands TMA never loads have none.
    pub(crate) operands: Vec<TensorMapSpec>,
    /// The box of C and D. `None` if TMA does not move them.
    pub(crate) output: Option<TensorMapSpec>,
}

impl Boxes {
    /// The boxes of the operands' tiles, and the box of C and D.
    pub(crate) fn new(tiles: &[StageTile], output: Option<TensorMapSpec>) -> Self {
        Boxes { operands: tiles.iter().map(|tile| tile.tensor_map.clone()).collect(), output }
    }
}

/// C or D in global memory.
#[derive(Clone)]
pub(crate) struct OutputMatrix<'k> {
    /// The tensor map, if TMA may move the matrix.
    pub(crate) map: Option<BatchMap<'k>>,
    /// Address of element (0, 0) of the first product's matrix.
    pub(crate) address: Val<'k, ty::U64>,
    /// Bytes from one line to the next. A line is a row or a column.
    pub(crate) stride: Val<'k, ty::U64>,
    /// Bytes from the matrix of one product to the matrix of the next.
    pub(crate) batch_stride: Val<'k, ty::U64>,
}

impl<'k> OutputMatrix<'k> {
    /// Declares the parameters of C or D. They include a tensor map if the box is given.
    pub(crate) fn declare(
        params: &Params<'k, Quantity>,
        matrix: Matrix,
        boxes: Option<TensorMapSpec>,
    ) -> Self {
        OutputMatrix {
            map: boxes.map(|boxes| BatchMap::declare(params, matrix, boxes)),
            address: params.scalar(Quantity::Address(matrix)),
            stride: params.scalar(Quantity::Stride(matrix)),
            batch_stride: params.scalar(Quantity::BatchStride(matrix)),
        }
    }

    /// A matrix that only TMA moves.
    pub(crate) fn by_map(b: &'k KernelBuilder, map: Option<BatchMap<'k>>) -> Self {
        let null = b.constant(0u64);
        OutputMatrix { map, address: null, stride: null, batch_stride: null }
    }

    /// Address of element (0, 0) of the matrix of product `batch`.
    pub(crate) fn start(&self, batch: Val<'k, ty::U32>) -> Val<'k, ty::U64> {
        self.address + batch.to_u64() * self.batch_stride
    }
}

/// A vector of one element for each row or column of D.
#[derive(Clone, Copy)]
pub(crate) struct Vector<'k> {
    pub(crate) address: Val<'k, ty::U64>,
    /// Number of elements.
    pub(crate) length: Val<'k, ty::U32>,
}

/// A problem: D = alpha·A·B + beta·C, computed in type `R`.
#[derive(Clone)]
pub(crate) struct Problem<'k, R> {
    /// The operands, in the order of the stage.
    pub(crate) operands: Vec<OperandMatrix<'k>>,
    /// C.
    pub(crate) c: OutputMatrix<'k>,
    /// D.
    pub(crate) d: OutputMatrix<'k>,
    /// Rows and columns of D.
    pub(crate) extents: [Val<'k, ty::U32>; 2],
    /// Alpha and beta. C is not read if beta is 0.
    pub(crate) factors: [Val<'k, R>; 2],
    /// The parameters of the epilogue's activation.
    pub(crate) parameters: Vec<Val<'k, R>>,
    /// The bias, if the epilogue has one.
    pub(crate) bias: Option<Vector<'k>>,
    /// Whether threads move C and D instead of TMA.
    pub(crate) by_threads: Val<'k, ty::Bool>,
}

impl<'k, R: Compute> Problem<'k, R> {
    /// Declares the parameters of a problem whose kernel has an output of its own. It has no C and
    /// no D.
    pub(crate) fn of_operands(params: &Params<'k, Quantity>, spec: &Spec, boxes: &Boxes) -> Self {
        let b = params.b;
        let maps = with_policies(params, spec, operand_maps(params, spec, boxes));
        let extents = [Quantity::Rows, Quantity::Columns].map(|extent| params.scalar(extent));
        Problem {
            operands: operands(params, spec, maps, extents),
            c: OutputMatrix::by_map(b, None),
            d: OutputMatrix::by_map(b, None),
            extents,
            factors: [R::zero(b); 2],
            parameters: vec![],
            bias: None,
            by_threads: b.constant(false),
        }
    }

    /// Declares the parameters of C, D and the epilogue for a problem that has none yet, and
    /// returns the whole problem with its scales.
    pub(crate) fn with_output(
        self,
        params: &Params<'k, Quantity>,
        spec: &Spec,
        boxes: TensorMapSpec,
    ) -> (Self, Option<Scales<'k>>) {
        let output = |matrix| OutputMatrix::declare(params, matrix, Some(boxes.clone()));
        let (c, mut d) = (output(Matrix::C), output(Matrix::D));
        d.map = d.map.map(|map| map.with_policy(policy(params, Matrix::D)));
        let by_threads = flag(params, Quantity::StoredByThreads);
        let EpilogueParameters { factors, scales, bias, parameters } =
            EpilogueParameters::declare(params, spec, self.extents, &self.operands);
        (Problem { c, d, factors, parameters, bias, by_threads, ..self }, scales)
    }

    /// Whether C is read.
    pub(crate) fn reads_c(&self, b: &'k KernelBuilder) -> Val<'k, ty::Bool> {
        self.factors[1].ne(R::zero(b))
    }
}

/// Declares the tensor maps of the operands that TMA loads.
fn operand_maps<'k>(
    params: &Params<'k, Quantity>,
    spec: &Spec,
    boxes: &Boxes,
) -> Vec<Option<BatchMap<'k>>> {
    let map = |(index, (matrix, side)): (usize, (Matrix, Side))| {
        let by_tma = spec.loader(side) == Loader::Tma;
        let boxes = boxes.operands.get(index).filter(|_| by_tma)?;
        Some(BatchMap::declare(params, matrix, boxes.clone()))
    };
    spec.stage_operands().into_iter().enumerate().map(map).collect()
}

/// Declares the L2 policy of a matrix.
fn policy<'k>(params: &Params<'k, Quantity>, matrix: Matrix) -> Val<'k, ty::U64> {
    params.scalar(Quantity::Policy(matrix))
}

/// Declares the L2 policies of the operands that TMA loads.
fn with_policies<'k>(
    params: &Params<'k, Quantity>,
    spec: &Spec,
    maps: Vec<Option<BatchMap<'k>>>,
) -> Vec<Option<BatchMap<'k>>> {
    let with_policy = |(map, (matrix, _)): (Option<BatchMap<'k>>, (Matrix, Side))| {
        map.map(|map| map.with_policy(policy(params, matrix)))
    };
    maps.into_iter().zip(spec.stage_operands()).map(with_policy).collect()
}

/// Declares the operands that threads load, and returns all operands.
fn operands<'k>(
    params: &Params<'k, Quantity>,
    spec: &Spec,
    maps: Vec<Option<BatchMap<'k>>>,
    extents: [Val<'k, ty::U32>; 2],
) -> Vec<OperandMatrix<'k>> {
    let depth = maps.iter().any(Option::is_none).then(|| params.scalar(Quantity::Depth));
    let mut list = vec![];
    for (map, (matrix, side)) in maps.into_iter().zip(spec.stage_operands()) {
        list.extend(map.map(OperandMatrix::Map).or_else(|| {
            let (extent, major) = match side {
                Side::M => (extents[0], spec.a_major),
                Side::N => (extents[1], spec.b_major),
            };
            let matrix = MemoryMatrix::declare(params, matrix, major, [extent, depth?]);
            Some(OperandMatrix::Memory(matrix))
        }));
    }
    list
}

/// The numbers and vectors of a launched kernel's epilogue.
struct EpilogueParameters<'k, R> {
    factors: [Val<'k, R>; 2],
    scales: Option<Scales<'k>>,
    bias: Option<Vector<'k>>,
    parameters: Vec<Val<'k, R>>,
}

impl<'k, R: Compute> EpilogueParameters<'k, R> {
    fn declare(
        params: &Params<'k, Quantity>,
        spec: &Spec,
        extents: [Val<'k, ty::U32>; 2],
        operands: &[OperandMatrix<'k>],
    ) -> Self {
        let factors = [Quantity::Alpha, Quantity::Beta].map(|factor| R::factor(params, factor));
        let scales = spec.scaled.then(|| Scales::declare(params, extents, operands));
        let bias = spec.epilogue.bias().map(|along| Vector {
            address: params.scalar(Quantity::Bias),
            length: if along == BiasAlong::N { extents[1] } else { extents[0] },
        });
        let parameters = spec.epilogue.parameters().len();
        let parameter = |place| R::factor(params, Quantity::Parameter(place));
        let parameters = (0..parameters).map(parameter).collect();
        EpilogueParameters { factors, scales, bias, parameters }
    }
}

/// Whether a flag among the parameters is set.
fn flag<'k>(params: &Params<'k, Quantity>, quantity: Quantity) -> Val<'k, ty::Bool> {
    params.scalar::<ty::U32>(quantity).ne(0)
}

/// The parameters of a launched kernel.
pub(crate) struct LaunchParameters<'k, R> {
    pub(crate) problem: Problem<'k, R>,
    pub(crate) scheduler: Scheduler<'k>,
    /// Address of the workspace for partial sums.
    pub(crate) workspace: Val<'k, ty::U64>,
    /// Whether partial sums are added in the order of arrival. A kernel that stores D from
    /// registers ignores this and adds them in the order of K.
    pub(crate) unordered: Val<'k, ty::Bool>,
    /// The scales of rows and columns, if the spec has them.
    pub(crate) scales: Option<Scales<'k>>,
}

impl<'k, R: Compute> LaunchParameters<'k, R> {
    /// Declares the parameters.
    pub(crate) fn declare(params: &Params<'k, Quantity>, spec: &Spec, boxes: &Boxes) -> Self {
        let b = params.b;
        let maps = operand_maps(params, spec, boxes);
        let output = |matrix| OutputMatrix::declare(params, matrix, boxes.output.clone());
        let (c, mut d) = (output(Matrix::C), output(Matrix::D));
        let maps = with_policies(params, spec, maps);
        d.map = d.map.map(|map| map.with_policy(policy(params, Matrix::D)));
        let extents = [Quantity::Rows, Quantity::Columns].map(|extent| params.scalar(extent));
        let operands = operands(params, spec, maps, extents);
        let scheduler = Scheduler::declare(params, spec);
        let workspace = params.scalar(Quantity::Workspace);
        let (unordered, by_threads) = match boxes.output {
            Some(_) => (flag(params, Quantity::Unordered), flag(params, Quantity::StoredByThreads)),
            None => (b.constant(false), b.constant(false)),
        };
        let EpilogueParameters { factors, scales, bias, parameters } =
            EpilogueParameters::declare(params, spec, extents, &operands);
        let problem = Problem { operands, c, d, extents, factors, parameters, bias, by_threads };
        LaunchParameters { problem, scheduler, workspace, unordered, scales }
    }
}
