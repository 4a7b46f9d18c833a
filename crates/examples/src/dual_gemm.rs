//! Two products of one matrix in one kernel, `silu(X·Wg) · (X·Wu)`, by parts of the library with an
//! output of its own. It is the first half of the feed-forward layer of many language models
//! (Shazeer, "GLU Variants Improve Transformer", 2020).

use persistent_gemm::Result;
use persistent_gemm::language::{KernelBuilder, TensorMap, TensorMapArgument};
use persistent_gemm::parts::{
    Binding, GemmParts, MatrixArgument, Output, OutputTile, PartsError, Spec, StagedStores,
    TileSums, Work,
};
use persistent_gemm::program::{Arguments, Program};

/// Operands of bf16, K-major; tiles of 128×128 with two sets of accumulators; clusters of two CTAs
/// that share the tiles of the weights.
const SPEC: &str = "bf16-kk-bf16-128x128x64-s4-w2-c2x1-gated_n";

/// The kernel, and what computes the arguments of its launches.
pub struct DualGemm {
    /// The kernel.
    pub program: Program,
    binding: Binding,
}

/// Addresses and extents of a launch.
#[derive(Clone, Copy, Debug)]
pub struct DualProblem {
    /// `X`: `tokens` rows of `model` bf16.
    pub x: u64,
    /// `Wg` and `Wu`: `hidden` rows of `model` bf16 each, as layers store their weights.
    pub weights: [u64; 2],
    /// The result: `tokens` rows of `hidden` bf16.
    pub out: u64,
    /// Rows of X and of the result.
    pub tokens: u32,
    /// Columns of the result, a multiple of 8.
    pub hidden: u32,
    /// Columns of X, a multiple of 8.
    pub model: u32,
}

impl DualGemm {
    /// The kernel.
    ///
    /// # Errors
    /// None that a caller could cause: a kernel that breaks a rule of the language is refused.
    pub fn new() -> Result<DualGemm> {
        let spec: Spec = SPEC.parse().map_err(PartsError::from)?;
        let b = KernelBuilder::new("dual_gemm", spec.cluster.size());
        let gemm = GemmParts::declare(&b, &spec)?;
        let staging = gemm.staging()?;
        let out = b.tensor_map("out", staging.tensor_map(0));
        let stores = StagedStores::declare(&b, "staging", staging, spec.consumers());
        let binding = gemm.write(&SwiGlu { stores, out });
        Ok(DualGemm { program: Program::new(b.finish()?)?, binding })
    }

    /// The grid of a launch on a device with `sms` SMs, and `arguments`, those of the program, with
    /// all values.
    ///
    /// # Errors
    /// [`ProgramError`](persistent_gemm::error::ProgramError) if an address or a row of a matrix is
    /// not whole units of 16 bytes, which TMA needs.
    pub fn launch(
        &self,
        problem: &DualProblem,
        sms: u32,
        arguments: Arguments,
    ) -> Result<([u32; 3], Arguments)> {
        let DualProblem { x, weights: [gate, up], out, tokens, hidden, model } = *problem;
        let matrix = |address| MatrixArgument {
            address,
            leading_dimension: model.into(),
            ..MatrixArgument::default()
        };
        let work = Work {
            m: tokens,
            n: hidden,
            k: model,
            a: matrix(x),
            b: matrix(gate),
            second: matrix(up),
            raster_rows: 8,
            ..Work::default()
        };
        let work = Work { clusters: self.binding.clusters(&work, sms), ..work };
        let arguments = arguments.with_each(self.binding.arguments(&work)?)?;
        let out = TensorMapArgument {
            address: out,
            extents: vec![hidden.into(), tokens.into()],
            strides: vec![u64::from(hidden) * 2],
        };
        Ok((self.binding.grid(&work), arguments.with("out", out)?))
    }
}

/// The output of the kernel.
struct SwiGlu<'k> {
    stores: StagedStores<'k>,
    out: TensorMap<'k>,
}

impl<'k> Output<'k> for SwiGlu<'k> {
    type Prepared = ();
    type State = ();

    fn start(&self) {}

    fn prepare(&self, _: &OutputTile<'k>) {}

    fn finish(&self, tile: &OutputTile<'k>, sums: &TileSums<'_, 'k>, (): (), (): ()) {
        let place = [tile.row, tile.column];
        self.stores.store(tile.warpgroup, &self.out, place, &[], &|block, group| {
            let (gate, up) = (sums.quad(0, block, group), sums.quad(1, block, group));
            std::array::from_fn(|i| gate[i] * up[i] * (1.0 + (-gate[i]).exp()).reciprocal())
        });
    }

    fn drain(&self) {
        self.stores.drain();
    }
}
