//! The kernel of scales. It computes a power of two for each line of a matrix of binary32. The
//! line's largest magnitude, divided by this scale, is at least 2^13 and below 2^14. A CTA has the
//! whole of some lines, so that no CTA waits for another. Each thread keeps the largest magnitude
//! that it reads. One thread for each line then takes the maximum of those.

use pgemm_ir::{Element, Occupancy, RegionKind, SmemRequest, Special, Val, ty};

use super::job::Job;
use super::matrix::{BATCH, MatrixRepack, THREADS, TRANSPOSED, WARPGROUPS};
use super::quantity::RepackQuantity;
use super::split::{BINARY32, SplitSpec};
use super::{CTAS_PER_SM, REGISTERS};
use crate::params::Params;
use crate::spec::Terms;

/// Number of threads that share a line, and number of lines of a CTA if the direction stays.
const ALONG: u32 = 32;
const LINES: u32 = THREADS / ALONG;
/// Number of lines of a CTA if the matrix is transposed: chunks of [`LINES`] times four lines.
const TRANSPOSED_LINES: u32 = LINES * 4;
/// Words of shared memory for the maxima of a line. One additional word spreads lines over the
/// banks.
const PITCH: u32 = ALONG + 1;

/// The split whose parameters the kernel has, which is the split to f16.
const SPEC: SplitSpec = SplitSpec { element: Element::F16, terms: Terms::X3 };

/// Number of CTAs for each matrix.
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

/// Computes the scales of the lines of one CTA.
fn scale<'k>(job: &Job<'k>, index: Val<'k, ty::U32>, smem: Val<'k, ty::Smem>) {
    let b = job.source.b;
    let thread = b.special(Special::Thread);
    let transposed = job.columns.eq(TRANSPOSED);
    // The line or chunk of lines of the thread, and its part of it.
    let (position, part) = (
        transposed.select(thread % LINES, thread / ALONG),
        transposed.select(thread / LINES, thread % ALONG),
    );
    let maxima = maxima(job, transposed, index * LINES + position, part);
    let keep = |line: Val<'k, ty::U32>, largest| {
        b.store_shared(smem.offset((line * PITCH + part) * 4), [largest]);
    };
    b.if_else(
        transposed,
        || (0..4).zip(&maxima).for_each(|(i, largest)| keep(position * 4 + i, *largest)),
        || keep(position, maxima[1..].iter().fold(maxima[0], |all, largest| all.max(*largest))),
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
            b.store_global(scales + line.to_u64() * 4, [power_of_two(largest)]);
        }
    });
}

/// The largest magnitudes, as bits, of each word of the chunks that a thread reads. They are the
/// chunks of line `place`, or of column `place` if the matrix is transposed.
fn maxima<'k>(
    job: &Job<'k>,
    transposed: Val<'k, ty::Bool>,
    place: Val<'k, ty::U32>,
    part: Val<'k, ty::U32>,
) -> Vec<Val<'k, ty::U32>> {
    let b = job.source.b;
    let chunks = job.source.full + job.source.remainder.ne(0).select::<ty::U32>(1, 0);
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

/// The bits of the power of two 13 below the exponent of a magnitude with these bits, but at least
/// a normal number. Smaller scales would make no number of f16 that binary32 does not have.
fn power_of_two<'k>(largest: Val<'k, ty::U32>) -> Val<'k, ty::U32> {
    ((largest >> 23).max(14) - 13) << 23
}
