//! The kernel of scales: a power of two for each line of a matrix of binary32, divided by which its
//! largest magnitude is at least 2^13 and below 2^14. A CTA has all of some lines, so that nobody
//! waits for anybody else: each thread keeps the largest of what it reads, and one thread for each
//! line takes the largest of those.

use pgemm_ir::{Element, Occupancy, RegionKind, SmemRequest, Special, Val, ty};

use super::job::Job;
use super::matrix::{BATCH, MatrixRepack, THREADS, TRANSPOSED, WARPGROUPS};
use super::quantity::RepackQuantity;
use super::split::{BINARY32, SplitSpec};
use super::{CTAS_PER_SM, REGISTERS};
use crate::params::Params;
use crate::spec::Terms;

/// Threads that share a line, and lines of a CTA where the direction stays.
const ALONG: u32 = 32;
const LINES: u32 = THREADS / ALONG;
/// Lines of a CTA where the matrix is transposed: chunks of [`LINES`] times four lines.
const TRANSPOSED_LINES: u32 = LINES * 4;
/// Words of shared memory for a line's maxima: a word more spreads lines over the banks.
const PITCH: u32 = ALONG + 1;

/// Its parameters are those of the split to f16.
const SPEC: SplitSpec = SplitSpec { element: Element::F16, terms: Terms::X3 };

/// CTAs for each matrix.
pub(super) fn ctas(matrix: &MatrixRepack) -> u32 {
    let lines = if matrix.transposed { TRANSPOSED_LINES } else { LINES };
    matrix.result().0.div_ceil(lines)
}

pub(super) fn write(params: &Params<'_, RepackQuantity>) {
    let b = params.b;
    let (job, index) = Job::declare(params, BINARY32, Some(SPEC));
    let bytes = TRANSPOSED_LINES * PITCH * 4;
    let region = b.region("maxima", RegionKind::Data(Element::S32), SmemRequest::whole(bytes, 16));
    b.warp_roles(Occupancy::ctas(CTAS_PER_SM), |roles| {
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
    let transposed = job.columns.eq(TRANSPOSED);
    // Which line, or chunk of lines, and which part of it.
    let (beside, part) = (
        transposed.select(thread % LINES, thread / ALONG),
        transposed.select(thread / LINES, thread % ALONG),
    );
    let maxima = maxima(job, transposed, index * LINES + beside, part);
    let keep = |line: Val<'k, ty::U32>, largest| {
        b.store_shared(smem.offset((line * PITCH + part) * 4), [largest]);
    };
    b.if_else(
        transposed,
        || (0..4).zip(&maxima).for_each(|(i, largest)| keep(beside * 4 + i, *largest)),
        || keep(beside, maxima[1..].iter().fold(maxima[0], |all, largest| all.max(*largest))),
    );
    b.sync_cta();
    let lines = transposed.select::<ty::U32>(TRANSPOSED_LINES, LINES);
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

/// The largest magnitudes, as bits, of each word of the chunks that a thread reads: those of line
/// `place` or, where the matrix is transposed, of column `place`.
fn maxima<'k>(
    job: &Job<'k>,
    transposed: Val<'k, ty::Bool>,
    place: Val<'k, ty::U32>,
    part: Val<'k, ty::U32>,
) -> Vec<Val<'k, ty::U32>> {
    let b = job.source.b;
    let chunks = job.source.full + job.source.rest.ne(0).select::<ty::U32>(1, 0);
    let count = transposed.select(job.source.lines, chunks);
    let none = vec![b.constant::<ty::U32>(0); 4];
    b.for_carry(0, count, ALONG * BATCH, none, |first, largest| {
        let chunks = (0..BATCH).map(|i| {
            let along = first + part + i * ALONG;
            job.source.chunk(transposed.select(along, place), transposed.select(place, along))
        });
        let read = job.source.read(&chunks.collect::<Vec<_>>());
        let larger = |(i, largest): (usize, Val<'k, ty::U32>)| {
            read.iter().fold(largest, |all, words| all.max(words[i] & 0x7fff_ffff))
        };
        largest.into_iter().enumerate().map(larger).collect()
    })
}

/// The bits of the power of two 13 below the exponent of a magnitude with these bits, but a normal
/// number: finer ones make no number of f16 that binary32 does not have.
fn power_of_two<'k>(largest: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
    ((largest >> 23).max(14) - 13) << 23
}
