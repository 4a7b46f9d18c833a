//! Errors of requests that are impossible by their arguments or on this machine.

use std::path::{Path, PathBuf};

use persistent_gemm::Epilogue;
use persistent_gemm::host::BackendKind;
use pgemm_cute::{AnyLayout, Layout};
use pgemm_files::memory::bytes;
use pgemm_kernels::Spec;
use pgemm_ptx::ptxas::PtxasError;

/// Why a command cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// `run` without sizes and files.
    #[error(
        "nothing to multiply: give --m, --n and --k for random matrices, or --a, --b and --out for \
         matrices in files"
    )]
    NothingToMultiply,

    /// `run` on files without any use of the result.
    #[error(
        "D would be thrown away: give --out FILE to keep it, or --verify to only compare it with \
         the reference"
    )]
    ResultUnused,

    /// A bias is given, but the epilogue adds none.
    #[error(
        "--bias names a bias, and the epilogue {epilogue} adds none: write --epilogue bias_n, or \
         bias_m, or leave --bias out"
    )]
    UnusedBias {
        /// The epilogue.
        epilogue: Epilogue,
    },

    /// A process that the command started failed.
    #[error("a process of `pgemm {what}` failed ({status}); what it wrote is above")]
    Child {
        /// The command.
        what: &'static str,
        /// How it ended.
        status: String,
    },

    /// A kernel whose tiling has no drawing.
    #[error(
        "{spec} cannot be drawn: drawings show kernels of wgmma that read both operands from shared \
         memory, such as bf16-kn-bf16-256x192x64-s3-w2-c1x1. Name one of these"
    )]
    NoTiling {
        /// The kernel.
        spec: Spec,
    },

    /// Kernels cannot be assembled here.
    #[error(
        "{count} of {all} kernels are not among those that this version is shipped with, and have \
         to be assembled: {source}"
    )]
    NoAssembler {
        /// Kernels that have to be assembled.
        count: usize,
        /// All kernels.
        all: usize,
        /// Why there is no assembler.
        source: PtxasError,
    },

    /// A pack without tuned results and problems.
    #[error(
        "there is nothing to pack: {} has no results of `pgemm autotune`. Name a file or folder of \
         results with --tuned, or problems with --problem or --model",
        folder.as_deref().unwrap_or(Path::new("the user's cache folder")).display()
    )]
    NothingToPack {
        /// The folder of results that was looked into.
        folder: Option<PathBuf>,
    },

    /// A file of layers is malformed.
    #[error(
        "{}: {source}. A file of layers is JSON, such as {{ \"dtypes\": [\"bf16\"], \"m\": [1, 256], \
         \"layers\": [ {{ \"n\": 4096, \"k\": 4096 }} ] }}",
        path.display()
    )]
    Layers {
        /// The file.
        path: PathBuf,
        /// Where and why reading it failed.
        source: serde_json::Error,
    },

    /// This build has no shipped kernels.
    #[error(
        "this build has no kernels that were assembled in advance: make them with `pgemm cubins \
         assemble` and build again"
    )]
    NoShippedKernels,

    /// A line of a list of problems and kernels cannot be read.
    #[error("{}, line {line}: {finding}", path.display())]
    KernelList {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        finding: String,
    },

    /// A list of problems and kernels is empty.
    #[error(
        "{} names no problem: write a problem and its kernels in each line, as in 'bf16 kk \
         512x512x512 SPEC:SPLIT:RASTER:LAUNCH'",
        path.display()
    )]
    NoKernels {
        /// The file.
        path: PathBuf,
    },

    /// `bench` without sizes and suite.
    #[error(
        "nothing to measure: give --size N or --problem MxNxK, each as often as you like, --suite, \
         or --bandwidth"
    )]
    NothingToMeasure,

    /// A problem without elements, or without products to add up.
    #[error("{problem} has nothing to time: give extents, and a batch, of at least 1")]
    NothingToTime {
        /// Its extents.
        problem: String,
    },

    /// `bench --also` with a resident kernel for single launches, or with a launched kernel for
    /// streams.
    #[error(
        "--also {spec}: kernels whose names end in -resident are for --stream, and --stream takes \
         no others (--spec names the one that it launches)"
    )]
    OtherKindOfKernel {
        /// The kernel.
        spec: Box<Spec>,
    },

    /// `plot` of reports without anything to draw.
    #[error(
        "nothing to draw: none of these runs timed problems or jobs in a row, as `pgemm bench --json \
         FILE` does"
    )]
    NothingToDraw,

    /// Files of results without rows.
    #[error(
        "nothing to show: none of the runs that were asked for has results. Leave --run out to \
         take all runs"
    )]
    NoResults,

    /// Two files of results to compare without a problem in common.
    #[error(
        "nothing to compare: no problem was timed in both files. Problems are the same if their \
         names and their launch mode are"
    )]
    NothingInCommon,

    /// `numbers` of types without such values.
    #[error(
        "no product of these types has these values: integers are for s8 and u8, normal, uniform \
         and wide for all others"
    )]
    NoSuchNumbers,

    /// `run --device-memory` on another backend.
    #[error(
        "--device-memory is about a GPU's memory, and the backend is {backend}: leave it out, or \
         use --backend cuda"
    )]
    BlocksWithoutDevice {
        /// The backend.
        backend: BackendKind,
    },

    /// A batch by blocks.
    #[error("--device-memory computes one product by blocks, and not a batch: leave --batch out")]
    BlocksOfBatch,

    /// The left inverse of a layout that is not injective.
    #[error("{layout} maps two coordinates to the same index, so it has no left inverse")]
    NoLeftInverse {
        /// The layout given.
        layout: Box<Layout>,
    },

    /// An operation of the layout algebra on a swizzled layout.
    #[error(
        "'{layout}' is swizzled: operations take plain layouts, shape:stride. Leave the swizzle \
         out, or only print or draw it"
    )]
    Swizzled {
        /// The layout given.
        layout: Box<AnyLayout>,
    },

    /// Matrices that would be killed for want of memory.
    #[error(
        "{m}x{n}x{k} needs about {} of host memory, and {} are available: use a smaller \
         problem{}{}",
        bytes(*needed),
        bytes(*available),
        if *verify { ", or leave --verify out, which keeps the product in double \
            precision" } else { "" },
        if *emulated { ", or use --backend cpu, since the emulator keeps records of every \
            access" } else { "" }
    )]
    HostMemory {
        /// Rows of A and D.
        m: usize,
        /// Columns of B and D.
        n: usize,
        /// Columns of A, rows of B.
        k: usize,
        /// The needed bytes.
        needed: u64,
        /// Bytes that the operating system has.
        available: u64,
        /// Whether the reference was requested.
        verify: bool,
        /// Whether the emulator was to compute it.
        emulated: bool,
    },
}
