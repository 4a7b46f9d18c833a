//! What the families of kernels have in common, for those who choose and launch them: [`AnySpec`] → [`AnyKernel`] → launch.
//! A name says which family it is of: every name that begins with `f64-` is a DMMA kernel's, with
//! `f32-` one's on CUDA cores.

use std::fmt;
use std::str::FromStr;

use pgemm_ir::{Argument, Element, Kernel, Launch, OperandMajor};
use serde::{Deserialize, Serialize};

use crate::dmma::{DmmaError, DmmaKernel, DmmaSpec, DmmaSpecError};
use crate::ffma::{FfmaError, FfmaKernel, FfmaSpec, FfmaSpecError};
use crate::fusion::Epilogue;
use crate::gemm::{GemmKernel, KernelError, build};
use crate::launch::{Work, Workspace};
use crate::spec::{Cluster, KernelSpec, OutputMajor, RegisterBudget, Schedule, SpecError, Tile};

/// The spec of a GEMM kernel of any family: D = alpha·A·B + beta·C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AnySpec {
    /// MMAs of warpgroups on operands in shared memory: all types but f64 and f32.
    Wgmma(KernelSpec),
    /// MMAs of warps on f64.
    Dmma(DmmaSpec),
    /// Multiply-adds of threads on f32.
    Ffma(FfmaSpec),
}

/// A spec that no kernel can be built from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnySpecError {
    /// Of a kernel of warpgroups, or of types without a kernel.
    #[error(transparent)]
    Wgmma(#[from] SpecError),
    /// Of an f64 kernel.
    #[error(transparent)]
    Dmma(#[from] DmmaSpecError),
    /// Of an f32 kernel.
    #[error(transparent)]
    Ffma(#[from] FfmaSpecError),
}

/// A kernel that could not be built from a spec.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AnyKernelError {
    /// Of warpgroups.
    #[error(transparent)]
    Wgmma(#[from] KernelError),
    /// Of f64.
    #[error(transparent)]
    Dmma(#[from] DmmaError),
    /// Of f32.
    #[error(transparent)]
    Ffma(#[from] FfmaError),
}

/// A kernel of any family, ready for a backend.
#[derive(Clone, Debug)]
pub enum AnyKernel {
    /// Of warpgroups.
    Wgmma(GemmKernel),
    /// Of f64.
    Dmma(DmmaKernel),
    /// Of f32.
    Ffma(FfmaKernel),
}

impl AnySpec {
    /// Element types of the kernel's A and B.
    pub fn operands(&self) -> [Element; 2] {
        match self {
            AnySpec::Wgmma(spec) => [spec.a, spec.b],
            AnySpec::Dmma(_) => [Element::F64; 2],
            AnySpec::Ffma(_) => [Element::F32; 2],
        }
    }

    /// Element type of C and D.
    pub fn output(&self) -> Element {
        match self {
            AnySpec::Wgmma(spec) => spec.output,
            AnySpec::Dmma(_) => Element::F64,
            AnySpec::Ffma(_) => Element::F32,
        }
    }

    /// Majors of the kernel's A and B.
    pub fn majors(&self) -> (OperandMajor, OperandMajor) {
        match self {
            AnySpec::Wgmma(spec) => (spec.a_major, spec.b_major),
            AnySpec::Dmma(spec) => (spec.a_major, spec.b_major),
            AnySpec::Ffma(spec) => (spec.a_major, spec.b_major),
        }
    }

    /// Major of C and D. Where it is M, the kernel computes row-major problems as Dᵀ = Bᵀ·Aᵀ.
    pub fn d_major(&self) -> OutputMajor {
        match self {
            AnySpec::Wgmma(spec) => spec.d_major,
            AnySpec::Dmma(_) | AnySpec::Ffma(_) => OutputMajor::N,
        }
    }

    /// What happens to results before they are stored, in terms of the kernel's D.
    pub fn epilogue(&self) -> Epilogue {
        match self {
            AnySpec::Wgmma(spec) => spec.epilogue,
            AnySpec::Dmma(spec) => spec.epilogue,
            AnySpec::Ffma(spec) => spec.epilogue,
        }
    }

    /// The same with another epilogue, in terms of the kernel's D.
    pub fn with_epilogue(self, epilogue: Epilogue) -> AnySpec {
        match self {
            AnySpec::Wgmma(spec) => AnySpec::Wgmma(KernelSpec { epilogue, ..spec }),
            AnySpec::Dmma(spec) => AnySpec::Dmma(DmmaSpec { epilogue, ..spec }),
            AnySpec::Ffma(spec) => AnySpec::Ffma(FfmaSpec { epilogue, ..spec }),
        }
    }

    /// CTA tile.
    pub fn tile(&self) -> Tile {
        match self {
            AnySpec::Wgmma(spec) => spec.tile,
            AnySpec::Dmma(spec) => spec.tile,
            AnySpec::Ffma(spec) => spec.tile,
        }
    }

    /// Stages of the shared-memory ring.
    pub fn stages(&self) -> u32 {
        match self {
            AnySpec::Wgmma(spec) => spec.stages,
            AnySpec::Dmma(spec) => spec.stages,
            AnySpec::Ffma(spec) => spec.stages,
        }
    }

    /// CTAs that share operands by multicast.
    pub fn cluster(&self) -> Cluster {
        match self {
            AnySpec::Wgmma(spec) => spec.cluster,
            AnySpec::Dmma(_) | AnySpec::Ffma(_) => Cluster::NONE,
        }
    }

    /// CTAs that an SM computes with at once, each a tile of its own. Kernels of which the next launch's CTAs may begin beside
    /// the last's have one.
    pub fn ctas_at_once(&self) -> u32 {
        match self {
            AnySpec::Wgmma(_) | AnySpec::Dmma(_) => 1,
            AnySpec::Ffma(spec) => spec.ctas_per_sm(),
        }
    }

    /// Consumer warpgroups.
    pub fn consumers(&self) -> u32 {
        match self {
            AnySpec::Wgmma(spec) => spec.consumers,
            AnySpec::Dmma(spec) => spec.warpgroups(),
            AnySpec::Ffma(spec) => spec.warpgroups(),
        }
    }

    /// How these share the work.
    pub fn schedule(&self) -> Schedule {
        match self {
            AnySpec::Wgmma(spec) => spec.schedule,
            AnySpec::Dmma(_) | AnySpec::Ffma(_) => Schedule::Cooperative,
        }
    }

    /// An upper bound of the shared memory of a CTA, in bytes.
    pub fn smem_bytes(&self) -> u32 {
        match self {
            AnySpec::Wgmma(spec) => spec.smem_bytes(),
            AnySpec::Dmma(spec) => spec.smem_bytes(),
            AnySpec::Ffma(spec) => spec.smem_bytes(),
        }
    }

    /// Registers per thread of producer and consumers.
    pub fn registers(&self) -> RegisterBudget {
        match self {
            AnySpec::Wgmma(spec) => spec.registers(),
            AnySpec::Dmma(spec) => spec.registers(),
            AnySpec::Ffma(spec) => spec.registers(),
        }
    }

    /// alpha or beta as the kernel takes it.
    pub fn factor(&self, value: f64) -> Argument {
        match self {
            AnySpec::Wgmma(spec) => spec.factor(value),
            AnySpec::Dmma(_) => Argument::F64(value),
            AnySpec::Ffma(_) => Argument::F32(value as f32),
        }
    }

    /// Whether a kernel can be built from it.
    ///
    /// # Errors
    /// What is impossible, with a legal value close to it.
    pub fn validate(&self) -> Result<(), AnySpecError> {
        match self {
            AnySpec::Wgmma(spec) => Ok(spec.validate()?),
            AnySpec::Dmma(spec) => Ok(spec.validate()?),
            AnySpec::Ffma(spec) => Ok(spec.validate()?),
        }
    }

    /// Builds, verifies and legalises its kernel.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate), and a kernel that breaks the language's rules.
    pub fn build(&self) -> Result<AnyKernel, AnyKernelError> {
        match self {
            AnySpec::Wgmma(spec) => Ok(AnyKernel::Wgmma(build(spec)?)),
            AnySpec::Dmma(spec) => Ok(AnyKernel::Dmma(DmmaKernel::build(spec)?)),
            AnySpec::Ffma(spec) => Ok(AnyKernel::Ffma(FfmaKernel::build(spec)?)),
        }
    }
}

impl AnyKernel {
    /// What it was built from.
    pub fn spec(&self) -> AnySpec {
        match self {
            AnyKernel::Wgmma(gemm) => AnySpec::Wgmma(gemm.spec),
            AnyKernel::Dmma(gemm) => AnySpec::Dmma(gemm.spec),
            AnyKernel::Ffma(gemm) => AnySpec::Ffma(gemm.spec),
        }
    }

    /// The code, verified and legalised.
    pub fn kernel(&self) -> &Kernel {
        match self {
            AnyKernel::Wgmma(gemm) => &gemm.kernel,
            AnyKernel::Dmma(gemm) => &gemm.kernel,
            AnyKernel::Ffma(gemm) => &gemm.kernel,
        }
    }

    /// The memory for partial sums that `work` needs.
    pub fn workspace(&self, work: &Work) -> Workspace {
        match self {
            AnyKernel::Wgmma(gemm) => gemm.workspace(work),
            AnyKernel::Dmma(gemm) => gemm.workspace(work),
            AnyKernel::Ffma(gemm) => gemm.workspace(work),
        }
    }

    /// The launch of this kernel on `work`: the arguments in the order of the kernel's parameters.
    pub fn bind(&self, work: &Work) -> Launch {
        match self {
            AnyKernel::Wgmma(gemm) => gemm.bind(work),
            AnyKernel::Dmma(gemm) => gemm.bind(work),
            AnyKernel::Ffma(gemm) => gemm.bind(work),
        }
    }
}

impl From<KernelSpec> for AnySpec {
    fn from(spec: KernelSpec) -> AnySpec {
        AnySpec::Wgmma(spec)
    }
}

impl From<DmmaSpec> for AnySpec {
    fn from(spec: DmmaSpec) -> AnySpec {
        AnySpec::Dmma(spec)
    }
}

impl From<FfmaSpec> for AnySpec {
    fn from(spec: FfmaSpec) -> AnySpec {
        AnySpec::Ffma(spec)
    }
}

impl fmt::Display for AnySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnySpec::Wgmma(spec) => spec.fmt(f),
            AnySpec::Dmma(spec) => spec.fmt(f),
            AnySpec::Ffma(spec) => spec.fmt(f),
        }
    }
}

impl FromStr for AnySpec {
    type Err = AnySpecError;

    fn from_str(name: &str) -> Result<Self, AnySpecError> {
        if name.starts_with("f64-") {
            return Ok(AnySpec::Dmma(name.parse()?));
        }
        if name.starts_with("f32-") {
            return Ok(AnySpec::Ffma(name.parse()?));
        }
        Ok(AnySpec::Wgmma(name.parse()?))
    }
}

impl TryFrom<String> for AnySpec {
    type Error = AnySpecError;

    fn try_from(name: String) -> Result<Self, AnySpecError> {
        name.parse()
    }
}

impl From<AnySpec> for String {
    fn from(spec: AnySpec) -> String {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{L2Policies, MatrixArgument};

    const NAMES: [&str; 3] = [
        "bf16-knm-f32-128x64x64-s8-w2-c2x1",
        "f64-mk-f64-128x64x16-s6-w2x4-k8",
        "f32-mk-f32-64x128x16-s6-t8x8-w2x2",
    ];

    #[test]
    fn a_name_says_its_family() {
        let specs = NAMES.map(|name| name.parse::<AnySpec>().unwrap());
        assert!(matches!(specs, [AnySpec::Wgmma(_), AnySpec::Dmma(_), AnySpec::Ffma(_)]));
        for (name, spec) in NAMES.into_iter().zip(specs) {
            assert_eq!(spec.to_string(), name);
            // What files hold.
            assert_eq!(AnySpec::try_from(String::from(spec)), Ok(spec));
        }
        for (bad, form) in [
            ("f64-kk", "an f64 kernel"),
            ("f32-kk", "an f32 kernel"),
            ("s32-kk", "not a kernel spec"),
            ("", ""),
        ] {
            let error = bad.parse::<AnySpec>().unwrap_err().to_string();
            assert!(error.contains(form), "{error}");
        }
    }

    #[test]
    fn a_kernel_of_each_family_is_built_and_bound() {
        let matrix = MatrixArgument { address: 1 << 20, leading_dimension: 512, batch_stride: 0 };
        let work = Work {
            m: 500,
            n: 300,
            k: 200,
            batch: 1,
            alpha: 0.1,
            beta: 0.0,
            a: matrix,
            b: matrix,
            c: matrix,
            d: matrix,
            raster_rows: 1,
            clusters: 3,
            split_tiles: 0,
            workers: 0,
            unordered: false,
            workspace: 0,
            l2: L2Policies::default(),
            scales: None,
            bias: 0,
        };
        for name in NAMES {
            let spec: AnySpec = name.parse().unwrap();
            let built = spec.build().unwrap();
            assert_eq!(built.spec(), spec);
            assert_eq!(built.workspace(&work).bytes, 0);
            let launch = built.bind(&work);
            assert_eq!(launch.grid, [3 * spec.cluster().size(), 1, 1]);
            let params = &built.kernel().params;
            assert_eq!(launch.arguments.len(), params.len());
            let alpha = params.iter().position(|param| param.name == "alpha").unwrap();
            assert_eq!(launch.arguments[alpha], spec.factor(work.alpha));
        }
    }
}
