//! [`PlanError`]: the error type of this crate. Each variant says what was requested, what the
//! limit is and what to do.

use pgemm_ir::Element;
use pgemm_kernels::{Cluster, Epilogue, EpilogueShape, LEAST_BYTES_FOR_THREADS, Spec, SpecError};

use crate::layout::{Major, MatrixLayout};
use crate::precision::Precision;
use crate::split::Split;

/// The result type of this crate.
pub type Result<T, E = PlanError> = std::result::Result<T, E>;

/// Why a problem, a configuration or the two together cannot be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    // ---- problems ----
    /// The matrix has no dimension of that name.
    #[error(
        "{operand} cannot be {major}-major: it has the dimensions {dimensions}; use one of them"
    )]
    NoSuchMajor {
        /// `A`, `B` or `D`.
        operand: &'static str,
        /// The requested major.
        major: Major,
        /// The dimensions that the matrix has.
        dimensions: &'static str,
    },

    /// The lines of a matrix would overlap.
    #[error(
        "the leading dimension of {matrix} is {requested}, and its contiguous dimension has \
         {extent} elements: it must be at least {least}"
    )]
    LeadingDimension {
        /// `A`, `B`, `C` or `D`, or `the matrix`.
        matrix: &'static str,
        /// The requested leading dimension, in elements.
        requested: usize,
        /// Elements along the contiguous dimension.
        extent: usize,
        /// The smallest leading dimension that works, in elements.
        least: usize,
    },

    /// The number of operations does not fit into 64 bits.
    #[error("2 × {m} × {n} × {k}{} operations exceed 2^64: split the problem", times(*batch))]
    TooManyOperations {
        /// Rows of A and D.
        m: usize,
        /// Columns of B and D.
        n: usize,
        /// Columns of A, rows of B.
        k: usize,
        /// Products of the batch.
        batch: usize,
    },

    /// A matrix does not fit into an address space.
    #[error(
        "{lines} lines of {leading_dimension} elements of {element_bytes} byte(s) or more exceed \
         the {} bytes that one allocation may have: split the problem",
        isize::MAX
    )]
    TooManyBytes {
        /// Rows of a row-major matrix, columns of a column-major one.
        lines: usize,
        /// Elements from one line to the next.
        leading_dimension: usize,
        /// Bytes per element.
        element_bytes: u32,
    },

    /// The matrices of a batch do not fit into an address space.
    #[error(
        "{count} matrices {matrix}, {stride} elements apart, exceed the {} bytes that one \
         allocation may have: split the batch",
        isize::MAX
    )]
    TooManyMatrices {
        /// `A`, `B`, `C` or `D`.
        matrix: &'static str,
        /// Number of matrices.
        count: usize,
        /// Elements from one matrix to the next.
        stride: usize,
    },

    /// The results of a batch would overlap.
    #[error(
        "the matrices D of a batch lie {requested} elements apart and would overlap: the batch \
         stride must be at least {least}, so that they lie one behind the other, or at least \
         {length}, with all {count} between two lines, which are {leading_dimension} elements apart"
    )]
    BatchOverlap {
        /// The requested batch stride, in elements.
        requested: usize,
        /// The smallest stride that puts the matrices one after another.
        least: usize,
        /// Elements of a line.
        length: usize,
        /// Number of matrices.
        count: usize,
        /// Elements from one line to the next.
        leading_dimension: usize,
    },

    /// The inner dimensions of A and B differ.
    #[error(
        "A is {a_rows}×{a_columns} and B is {b_rows}×{b_columns}: the columns of A must equal the \
         rows of B. Transpose or slice one of them"
    )]
    InnerDimensions {
        /// Rows of A.
        a_rows: usize,
        /// Columns of A.
        a_columns: usize,
        /// Rows of B.
        b_rows: usize,
        /// Columns of B.
        b_columns: usize,
    },

    /// The layout of a matrix is not the one that the problem states.
    #[error("{matrix} is {found}, and the problem needs {needed}")]
    LayoutMismatch {
        /// `A`, `B`, `C`, `D` or `the bias`.
        matrix: &'static str,
        /// The layout of the matrix.
        found: MatrixLayout,
        /// The layout that the problem states.
        needed: MatrixLayout,
    },

    /// The epilogue adds a bias, and none is given.
    #[error(
        "the epilogue {epilogue} adds a bias of {length} elements, and none is given: give it, or \
         leave the bias out"
    )]
    MissingBias {
        /// The epilogue.
        epilogue: Epilogue,
        /// Elements of the bias.
        length: usize,
    },

    /// A scalar of an integer product is not an integer.
    #[error(
        "{scalar} is {value}, and products of integers with a D of s32 take integers from \
         -2147483648 to 2147483647: round it, or have a D of f32, f16, bf16 or s8"
    )]
    FractionalScalar {
        /// `alpha` or `beta`.
        scalar: &'static str,
        /// The requested value.
        value: f64,
    },

    /// A scalar is outside of the range of binary32.
    #[error(
        "{scalar} is {value:e}, and products that are not of f64 take a binary32, from 1.2e-38 to \
         3.4e38: scale A, B or C, or use f64"
    )]
    ScalarRange {
        /// `alpha` or `beta`.
        scalar: &'static str,
        /// The requested value.
        value: f64,
    },

    /// The config asks for more SMs than there are, or for none.
    #[error(
        "the knob sms asks for {requested} SMs, and the device has {limit}: ask for 1 to {limit}, \
         or leave the knob out, which takes all"
    )]
    Sms {
        /// The requested number.
        requested: u32,
        /// SMs of the device.
        limit: u32,
    },

    /// A cluster has more CTAs than run at once.
    #[error(
        "the CTAs of a cluster run at once, and {spec} has {} in a cluster: {sms} {} there, or \
         allowed. Choose a kernel with a smaller cluster, or leave the choice to the planner",
        spec.cluster.size(),
        if *sms == 1 { "SM is" } else { "SMs are" }
    )]
    ClusterBeyondSms {
        /// The kernel.
        spec: Box<Spec>,
        /// SMs of the device, or to which the launch is limited.
        sms: u32,
    },

    /// A batch was given too few or too many matrices.
    #[error(
        "{found} matrices {matrix} were given, and the batch needs {needed}: one for each product, \
         or where its batch stride is 0 one for all"
    )]
    MatrixCount {
        /// `A`, `B` or `C`.
        matrix: &'static str,
        /// Number of matrices given.
        found: usize,
        /// Number of matrices needed.
        needed: usize,
    },

    /// beta is not zero, and no C is given.
    #[error("beta is {beta} and no C was given: give C, or set beta to 0")]
    MissingC {
        /// The requested beta.
        beta: f64,
    },

    /// A size exceeds the integers that kernels count in.
    #[error("{what} is too large: it must not exceed {limit}. Split the problem")]
    Overflow {
        /// What is too large, such as `m`.
        what: &'static str,
        /// The largest value that works.
        limit: u64,
    },

    // ---- configurations ----
    /// The macro-tile cannot be decomposed into CTA tiles.
    #[error(
        "tile_m, tile_n = {m}x{n} is not possible: a macro-tile must halve down to a CTA tile that \
         fits, and here {reason}. The nearest macro-tile that halves is {}x{}",
        nearest[0],
        nearest[1]
    )]
    MacroTile {
        /// Requested rows.
        m: u32,
        /// Requested columns.
        n: u32,
        /// What is wrong with the smallest CTA tile.
        reason: Box<SpecError>,
        /// Rows and columns that work.
        nearest: [u32; 2],
    },

    /// No kernel has this number of warps.
    #[error(
        "warps_per_block = {requested} is not possible: {limit}. The nearest legal value is \
         {nearest}"
    )]
    WarpsPerBlock {
        /// Requested warps of a CTA.
        requested: u32,
        /// Which numbers are possible.
        limit: &'static str,
        /// A number that works.
        nearest: u32,
    },

    /// Kernels of this type have no clusters.
    #[error(
        "cluster = {}x{} is not possible: kernels of {output} have no clusters. The nearest legal \
         value is 1x1",
        cluster.m,
        cluster.n
    )]
    NoClusters {
        /// The requested cluster.
        cluster: Cluster,
        /// Element type of D.
        output: Element,
    },

    /// The kernel splits no tiles.
    #[error(
        "split = {split} is not possible: each warp of {spec} computes whole tiles. The nearest legal \
         value is whole"
    )]
    NoSplit {
        /// The kernel.
        spec: Spec,
        /// The requested split.
        split: Split,
    },

    /// Kernels of this type have no ping-pong schedule.
    #[error(
        "schedule = ping-pong is not possible: the warps of {output} kernels share each tile. The \
         nearest legal value is cooperative"
    )]
    NoPingPong {
        /// Element type of D.
        output: Element,
    },

    /// Kernels of this type do not swap A and B.
    #[error(
        "swapped = {requested} is not possible: kernels of {output} take A and B of any majors as \
         they are. The nearest legal value is false"
    )]
    NotSwapped {
        /// The requested value.
        requested: bool,
        /// Element type of D.
        output: Element,
    },

    /// The precision is for operands of another type.
    #[error(
        "precision = {precision} is not possible: it is for products of {operands}, not of \
         {found}. The nearest legal value is full"
    )]
    PrecisionOperands {
        /// The requested precision.
        precision: Precision,
        /// The type that it is for.
        operands: Element,
        /// The type of A or B.
        found: Element,
    },

    /// The precision is for results of another type.
    #[error(
        "precision = {precision} is not possible: its D is f32, not {found}. The nearest legal \
         value is full"
    )]
    PrecisionOutput {
        /// The requested precision.
        precision: Precision,
        /// The type of D.
        found: Element,
    },

    /// The named kernel has another precision.
    #[error(
        "precision = {precision} is not possible: the kernel {spec} has the precision {own}. The \
         nearest legal value is {own}"
    )]
    PrecisionOfSpec {
        /// The requested precision.
        precision: Precision,
        /// The named kernel.
        spec: Spec,
        /// Its precision.
        own: Precision,
    },

    /// The named kernel multiplies its sums by scales that no operand brings.
    #[error(
        "the kernel {spec} is not possible here: it needs scales, which this library makes for \
         terms only. Name the kernel without `-scaled`"
    )]
    ScaledSpec {
        /// The named kernel.
        spec: Spec,
    },

    /// Results of this type have no epilogue.
    #[error(
        "epilogue = {epilogue} is not possible: it is for results in floating point, and D is of \
         {output}. The nearest legal value is none, or an output of f32, f16 or bf16"
    )]
    EpilogueOutput {
        /// The requested epilogue.
        epilogue: Epilogue,
        /// The type of D.
        output: Element,
    },

    /// The named kernel has another epilogue.
    #[error(
        "epilogue = {epilogue} is not possible: the kernel {spec} has the epilogue {own}. The \
         nearest legal value is {own}"
    )]
    EpilogueOfSpec {
        /// The requested epilogue.
        epilogue: Epilogue,
        /// The named kernel.
        spec: Spec,
        /// Its epilogue.
        own: EpilogueShape,
    },

    /// The activation has parameters, and they are not given.
    #[error(
        "epilogue = {epilogue} is not possible: the numbers in the parentheses are not given, and a kernel's name does \
         not have them. Give the epilogue with numbers in their places"
    )]
    MissingParameters {
        /// The epilogue.
        epilogue: Epilogue,
    },

    /// A bias is given, and the epilogue adds none.
    #[error(
        "epilogue = {epilogue} is not possible: a bias is given, and this adds none. The nearest \
         legal value is bias_n or bias_m"
    )]
    UnusedBias {
        /// The epilogue.
        epilogue: Epilogue,
    },

    /// The named kernel is for another kind of problem.
    #[error(
        "the kernel {spec} does not compute this problem: its types, its majors or the loaders of \
         its operands do not fit (threads load operands of at least {LEAST_BYTES_FOR_THREADS} \
         bytes, with steps of 1). Leave the spec out, or take one from `pgemm kernel list` that \
         has the problem's types and majors"
    )]
    SpecMismatch {
        /// The named kernel.
        spec: Spec,
    },

    /// No kernel can be built from the spec, or there is none for these types.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl PlanError {
    /// The field of [`Config`](crate::Config) that cannot be satisfied; `None` for errors of other
    /// kinds.
    pub fn knob(&self) -> Option<&'static str> {
        match self {
            PlanError::MacroTile { .. } => Some("tile_m, tile_n"),
            PlanError::WarpsPerBlock { .. } => Some("warps_per_block"),
            PlanError::NoClusters { .. } => Some("cluster"),
            PlanError::NoPingPong { .. } => Some("schedule"),
            PlanError::NoSplit { .. } => Some("split"),
            PlanError::NotSwapped { .. } => Some("swapped"),
            PlanError::PrecisionOperands { .. }
            | PlanError::PrecisionOutput { .. }
            | PlanError::PrecisionOfSpec { .. }
            | PlanError::ScaledSpec { .. } => Some("precision"),
            PlanError::EpilogueOutput { .. }
            | PlanError::EpilogueOfSpec { .. }
            | PlanError::MissingParameters { .. }
            | PlanError::UnusedBias { .. } => Some("epilogue"),
            _ => None,
        }
    }

    /// Whether no kernel does what was requested: an impossible knob, types without a kernel, a
    /// named kernel that does not fit. All other errors are about the problem or its matrices.
    pub fn is_unsupported(&self) -> bool {
        self.knob().is_some() || matches!(self, PlanError::SpecMismatch { .. } | PlanError::Spec(_))
    }
}

/// A further factor, where there is a batch.
fn times(batch: usize) -> String {
    if batch == 1 { String::new() } else { format!(" × {batch}") }
}
