//! [`ScalesKernel`]: a power of two for each line of a matrix of binary32, by which its largest magnitude is at least 2^13 and
//! below 2^14. A CTA has all of some lines, so that nobody waits for anybody else: each thread keeps the largest of what
//! it reads, and one thread for each line takes the largest of those.

use pgemm_ir::{
    Argument, Element, Kernel, KernelBuilder, Launch, RegionKind, SmemRequest, Special, Val, ty,
};

use super::split::{BINARY32, MatrixSplit, SplitSpec};
use super::{
    BATCH, CTAS_PER_SM, Job, REGISTERS, RelayoutError, RelayoutKind, THREADS, TURNS, Units,
    WARPGROUPS, built, job, launch,
};
use crate::arithmetic::Terms;

/// Threads that share a line, and lines of a CTA where the direction stays.
const ALONG: u32 = 32;
const LINES: u32 = THREADS / ALONG;
/// Lines of a CTA where directions change: chunks of [`LINES`] times four lines.
const TURNED_LINES: u32 = LINES * 4;
/// Words of shared memory for a line's maxima: a word more spreads lines over the banks.
const PITCH: u32 = ALONG + 1;

/// A kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct ScalesKernel {
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

/// Its parameters are those of the split to f16.
const SPEC: SplitSpec = SplitSpec { element: Element::F16, terms: Terms::X3 };

impl ScalesKernel {
    /// Builds, verifies and legalises the kernel.
    ///
    /// # Errors
    /// [`RelayoutError`] if the language refuses it, which it does not.
    pub fn build() -> Result<ScalesKernel, RelayoutError> {
        Ok(ScalesKernel { kernel: built("scales_f32", write)? })
    }

    /// The launch that finds the scales of one matrix or two. Parameters `source_I` and `scales_I` are the addresses of matrix I; its
    /// destination is not looked at.
    pub fn bind(&self, first: &MatrixSplit, second: Option<&MatrixSplit>) -> Launch {
        launch(first, second, |split| {
            let mut part =
                split.matrix.part(Units::plain(BINARY32, RelayoutKind::Turns), ctas(split));
            part.arguments.push(Argument::U64(split.scales));
            part
        })
    }
}

/// CTAs for each matrix.
fn ctas(split: &MatrixSplit) -> u32 {
    let lines = if split.matrix.turned { TURNED_LINES } else { LINES };
    split.matrix.result().0.div_ceil(lines)
}

fn write(b: &KernelBuilder) {
    b.ctas_per_sm(CTAS_PER_SM);
    let (job, index) = job(b, BINARY32, Some(SPEC));
    let bytes = TURNED_LINES * PITCH * 4;
    let region = b.region("maxima", RegionKind::Data(Element::S32), SmemRequest::whole(bytes, 16));
    b.warp_roles(|roles| {
        roles.role("reader", WARPGROUPS, REGISTERS, |_| {
            b.grid_dependency_launch();
            b.grid_dependency_wait();
            scale(&job, index, b.smem_address(region));
        });
    });
}

/// The scales of the lines of one CTA.
fn scale<'k>(job: &Job<'k>, index: Val<'k, ty::U32>, smem: Val<'k, ty::Smem>) {
    let b = job.source.b;
    let thread = b.special(Special::Thread);
    let turned = job.columns.eq(TURNS);
    // Which line, or chunk of lines, and which part of it.
    let (beside, part) = (
        turned.select(thread % LINES, thread / ALONG),
        turned.select(thread / LINES, thread % ALONG),
    );
    let maxima = maxima(job, turned, index * LINES + beside, part);
    let keep = |line: Val<'k, ty::U32>, largest| {
        b.store_shared(smem.offset((line * PITCH + part) * 4), [largest]);
    };
    b.if_else(
        turned,
        || (0..4).zip(&maxima).for_each(|(i, largest)| keep(beside * 4 + i, *largest)),
        || keep(beside, maxima[1..].iter().fold(maxima[0], |all, largest| all.max(*largest))),
    );
    b.barrier_sync(0, THREADS);
    let lines = turned.select::<ty::U32>(TURNED_LINES, LINES);
    let line = index * lines + thread;
    b.if_(thread.lt(lines) & line.lt(job.result.lines), || {
        let row = smem.offset(thread * (PITCH * 4));
        let largest = b.for_carry(0, ALONG, 1, b.constant::<ty::U32>(0), |part, largest| {
            let [other] = b.load_shared::<ty::U32, 1>(row.offset(part * 4));
            largest.max(other)
        });
        let scales = job.result.split.and_then(|split| split.scales);
        if let Some(scales) = scales {
            b.store_global(scales + line.widen() * 4, [power_of_two(largest)]);
        }
    });
}

/// The largest magnitudes, as bits, of each word of the chunks that a thread reads: those of line `place` or, where directions
/// change, of column `place`.
fn maxima<'k>(
    job: &Job<'k>,
    turned: Val<'k, ty::Bool>,
    place: Val<'k, ty::U32>,
    part: Val<'k, ty::U32>,
) -> Vec<Val<'k, ty::U32>> {
    let b = job.source.b;
    let chunks = job.source.full + job.source.rest.ne(0).select::<ty::U32>(1, 0);
    let count = turned.select(job.source.lines, chunks);
    let none = vec![b.constant::<ty::U32>(0); 4];
    b.for_carry(0, count, ALONG * BATCH, none, |first, largest| {
        let chunks = (0..BATCH).map(|i| {
            let along = first + part + i * ALONG;
            job.source.chunk(turned.select(along, place), turned.select(place, along))
        });
        let read = job.source.read(&chunks.collect::<Vec<_>>());
        let larger = |(i, largest): (usize, Val<'k, ty::U32>)| {
            read.iter().fold(largest, |all, words| all.max(words[i] & 0x7fff_ffff))
        };
        largest.into_iter().enumerate().map(larger).collect()
    })
}

/// The bits of the power of two 13 below the exponent of a magnitude with these bits, but a normal number: finer ones make
/// no number of f16 that binary32 does not have.
fn power_of_two<'k>(largest: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
    ((largest >> 23).max(14) - 13) << 23
}
