//! The arguments of a kernel for a problem: addresses, extents, strides and scalars, in the
//! kernel's order of operands.

use pgemm_kernels::{Epilogue, L2Policies, MatrixArgument, Spec, Work};
use pgemm_plan::{Plan, Problem};

/// Device addresses of the matrices of a problem, or of the first product of a batch. They must be
/// multiples of the size of an element. Multiples of 16 bytes, as all allocations are, are the
/// fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointers {
    /// A, in the config's type. One of tf32 is binary32, rounded to the nearest tf32 as it is
    /// loaded.
    pub a: u64,
    /// B, in the config's type, as A.
    pub b: u64,
    /// C, in the output type; not looked at where beta is 0. May be D.
    pub c: u64,
    /// D, in the output type.
    pub d: u64,
    /// The bias, in [`Config::bias_dtype`](crate::Config::bias_dtype), of
    /// [`Epilogue::bias_length`](crate::Epilogue::bias_length) elements, the same for all products
    /// of a batch. Ignored if the epilogue adds none.
    pub bias: u64,
}

impl Pointers {
    /// The addresses of a product without a bias.
    pub fn new(a: u64, b: u64, c: u64, d: u64) -> Self {
        Pointers { a, b, c, d, bias: 0 }
    }

    /// The same addresses with a bias.
    pub fn with_bias(self, bias: u64) -> Self {
        Pointers { bias, ..self }
    }
}

/// alpha as it is passed to kernels. It is 0 if k is 0, because alpha may be infinite.
pub(crate) fn factor_of_products(k: usize, alpha: f64) -> f64 {
    if k == 0 { 0.0 } else { alpha }
}

/// The arguments of the kernel of `plan` for a problem with a row-major D, operands that it reads
/// in place, and this epilogue. A kernel with swapped operands computes Dᵀ = Bᵀ·Aᵀ, from the same
/// bytes. If beta is 0, C stands in D's place.
pub(crate) fn work(
    problem: &Problem,
    plan: &Plan,
    epilogue: Epilogue,
    pointers: &Pointers,
    workspace: u64,
) -> Work {
    let batch = problem.batch.normalised();
    let (m, n) = in_kernel_order(plan, problem.m as u32, problem.n as u32);
    let (a, b) = in_kernel_order(
        plan,
        matrix(pointers.a, problem.a.leading_dimension, batch.a),
        matrix(pointers.b, problem.b.leading_dimension, batch.b),
    );
    let (a_policy, b_policy) = in_kernel_order(plan, plan.l2.a, plan.l2.b);
    let d = matrix(pointers.d, problem.d_leading_dimension, batch.d);
    let c = matrix(pointers.c, problem.c_leading_dimension, batch.c);
    Work {
        m,
        n,
        k: problem.k as u32,
        batch: batch.count as u32,
        alpha: factor_of_products(problem.k, problem.alpha),
        beta: problem.beta,
        a,
        b,
        c: if problem.beta == 0.0 { d } else { c },
        d,
        raster_rows: plan.raster_rows,
        clusters: plan.clusters,
        split_tiles: plan.split_tiles,
        workers: plan.workers,
        unordered: plan.unordered,
        workspace,
        l2: L2Policies { a: a_policy, b: b_policy, d: plan.l2.d },
        bias: pointers.bias,
        parameters: epilogue.parameters(),
        ..Work::default()
    }
}

/// The kernel's argument for a matrix, or for the first matrix of a batch.
fn matrix(address: u64, leading_dimension: usize, batch_stride: usize) -> MatrixArgument {
    MatrixArgument {
        address,
        leading_dimension: leading_dimension as u64,
        batch_stride: batch_stride as u64,
    }
}

/// Whether TMA moves C and D at these addresses.
pub(crate) fn moves_by_tma(
    spec: &Spec,
    problem: &Problem,
    reads_c: bool,
    [c, d]: [u64; 2],
) -> bool {
    let batch = problem.batch.normalised();
    let d = matrix(d, problem.d_leading_dimension, batch.d);
    let c = if reads_c { matrix(c, problem.c_leading_dimension, batch.c) } else { d };
    spec.moves_by_tma(problem.d_layout().line_length() as u64, &c, &d)
}

/// Reorders a pair that belongs to (M, A) and (N, B) of the problem into the kernel's (M, A) and
/// (N, B).
pub(crate) fn in_kernel_order<T>(plan: &Plan, of_a: T, of_b: T) -> (T, T) {
    if plan.swapped() { (of_b, of_a) } else { (of_a, of_b) }
}
