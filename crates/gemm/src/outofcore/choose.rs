//! The choice of the fastest blocking for a given amount of memory, by a model of its steps at the
//! rates of the link and the tensor cores.

use pgemm_plan::Problem;

use super::blocking::{Blocking, Shapes, SlotOffsets};
use super::rates::Rates;
use super::schedule::Schedule;
use super::tile::{Operand, Tile};

/// Extents of blocks are multiples of this, unless a block spans the matrix.
const GRANULE: usize = 256;
/// The preferred upper limit for the products of a schedule, because launches and events take time
/// too.
const MAX_PRODUCTS: usize = 2048;
/// Products of a schedule at most whose first tiles may be larger than others.
const WIDE_FIRST: usize = 512;
/// Number of blockings that are compared by the growth of their groups. They are the fastest by the
/// simpler estimate.
const COMPARED: usize = 2048;
/// Number of blockings whose schedules are built and compared. They are the fastest by the growth
/// of their groups.
const FINALISTS: usize = 32;

/// The fastest blocking within `bytes` bytes of device memory, with its schedule.
///
/// # Errors
/// The bytes that are needed at least.
pub(crate) fn choose(
    shapes: &Shapes,
    bytes: u64,
    rates: &Rates,
) -> Result<(Blocking, Schedule), u64> {
    let mut least = u64::MAX;
    let mut fitting = vec![];
    for many in [false, true] {
        for blocking in candidates(shapes, rates, many) {
            let needed = SlotOffsets::new(&blocking, shapes).bytes();
            least = least.min(needed);
            if needed <= bytes {
                fitting.push(blocking);
            }
        }
        if !fitting.is_empty() {
            break;
        }
    }
    let compared = fastest(fitting, COMPARED, |blocking| by_parts(shapes, blocking, rates));
    let compared = compared.into_iter().map(|(_, blocking)| blocking).collect();
    let finalists = fastest(compared, FINALISTS, |blocking| estimate(shapes, blocking, rates));
    let mut best: Option<(f64, Blocking, Schedule)> = None;
    for (estimated, blocking) in finalists {
        // Candidates come in the order of their estimates, and schedules are rarely faster than
        // estimated.
        if best.as_ref().is_some_and(|(seconds, ..)| estimated > *seconds) {
            break;
        }
        let schedule = Schedule::new(&blocking, shapes.problem.beta != 0.0);
        let seconds = schedule.seconds(shapes, &blocking, rates);
        if best.as_ref().is_none_or(|(least, ..)| seconds < *least) {
            best = Some((seconds, blocking, schedule));
        }
    }
    best.map(|(_, blocking, schedule)| (blocking, schedule)).ok_or(least)
}

/// The `count` blockings with the least estimated seconds, with their estimates.
fn fastest(
    blockings: Vec<Blocking>,
    count: usize,
    seconds: impl Fn(&Blocking) -> f64,
) -> Vec<(f64, Blocking)> {
    let mut rated: Vec<_> =
        blockings.into_iter().map(|blocking| (seconds(&blocking), blocking)).collect();
    rated.sort_by(|(seconds, _), (others, _)| seconds.total_cmp(others));
    rated.truncate(count);
    rated
}

/// All candidates with at most [`MAX_PRODUCTS`] products, or at most `many`.
fn candidates(shapes: &Shapes, rates: &Rates, many: bool) -> impl Iterator<Item = Blocking> {
    let Problem { m, n, k, .. } = shapes.problem;
    let depths = if shapes.may_cut_k() { cuts(k) } else { vec![k.max(1)] };
    let blocks = cuts(m).into_iter().flat_map(move |block_m| {
        let depths = depths.clone();
        cuts(n).into_iter().flat_map(move |block_n| {
            depths.clone().into_iter().map(move |block_k| [block_m, block_n, block_k])
        })
    });
    let busy = keeps_busy(shapes, rates);
    blocks
        .filter(move |block| (Blocking::plain([m, n, k], *block).products() > MAX_PRODUCTS) == many)
        .flat_map(move |block| groupings([m, n, k], block, busy))
}

/// Rows or columns that keep the tensor cores busy during the upload of a row or column of the
/// other operand, plus a tenth.
fn keeps_busy(shapes: &Shapes, rates: &Rates) -> usize {
    let bytes = f64::from(shapes.element(Operand::A).bytes());
    let extent = 1.1 * rates.operations_per_second * bytes / (2.0 * rates.up_bytes_per_second);
    (extent as usize).next_multiple_of(GRANULE)
}

/// Estimated seconds by the work and the order of uploads, without building the schedule.
fn estimate(shapes: &Shapes, blocking: &Blocking, rates: &Rates) -> f64 {
    if blocking.grid()[2] == 1 && blocking.products() <= MAX_PRODUCTS {
        by_growth(shapes, blocking, rates)
    } else {
        by_parts(shapes, blocking, rates)
    }
}

/// The estimate by rows and columns of blocks. Each is computed after its upload and then
/// downloaded. Tiles of the previous group are reused.
fn by_growth(shapes: &Shapes, blocking: &Blocking, rates: &Rates) -> f64 {
    let reads_c = shapes.problem.beta != 0.0;
    let of_tile = |operand, row, column| {
        let tile = Tile { operand, row, column };
        (shapes.moved_bytes(blocking, tile), shapes.copied_lines(blocking, tile))
    };
    let [mut up, mut computed, mut down] = [0f64; 3];
    let mut held = [0..0, 0..0];
    for (first, extents) in blocking.groups() {
        for (axis, before) in blocking.growth(first, extents) {
            let index = first[axis] + before[axis];
            if !held[axis].contains(&index) {
                let (bytes, lines) = match axis {
                    0 => of_tile(Operand::A, index, 0),
                    _ => of_tile(Operand::B, 0, index),
                };
                up += rates.up(bytes, lines);
            }
            // All blocks of a line between its two ends are equal.
            let [from, count] = [first[1 - axis], before[1 - axis]];
            let ends =
                [(from, 1), (from + 1, count.saturating_sub(2)), (from + count.max(1) - 1, 1)];
            for (other, times) in ends.into_iter().take(if count > 1 { 3 } else { count }) {
                let [row, column] = if axis == 0 { [index, other] } else { [other, index] };
                let (bytes, lines) = of_tile(Operand::C, row, column);
                let times = times as f64;
                if reads_c {
                    up += times * rates.up(bytes, lines);
                }
                let product = rates.product(blocking.extents([row, column, 0]));
                computed = computed.max(up) + times * product;
                down = down.max(computed) + times * rates.down(bytes, lines);
            }
        }
        held = [0, 1].map(|axis| first[axis]..first[axis] + extents[axis]);
    }
    down
}

/// The estimate by the total times of the parts, and by the work that cannot overlap.
fn by_parts(shapes: &Shapes, blocking: &Blocking, rates: &Rates) -> f64 {
    let Problem { m, n, k, beta, .. } = shapes.problem;
    let size = |operand| f64::from(shapes.element(operand).bytes());
    let [rows, columns, depth] = blocking.grid();
    let groups = [rows.div_ceil(blocking.group[0]), columns.div_ceil(blocking.group[1])];
    let (a, b) = ((m * k) as f64 * size(Operand::A), (k * n) as f64 * size(Operand::B));
    let d = (m * n) as f64 * size(Operand::C);
    let [a_times, b_times] = match (depth, blocking.down_columns) {
        (1, _) if groups.contains(&1) => [1, 1],
        (1, true) => [groups[1], 1],
        (1, false) => [1, groups[0]],
        _ => [columns, rows],
    };
    // Seconds to copy a matrix of these bytes in this number of tiles.
    let tile = |operand| Tile { operand, row: 0, column: 0 };
    let lines = |operand, tiles: usize| tiles * shapes.copied_lines(blocking, tile(operand));
    let a = rates.up(a as u64, lines(Operand::A, rows * depth));
    let b = rates.up(b as u64, lines(Operand::B, depth * columns));
    let d_lines = lines(Operand::C, rows * columns);
    let c = if beta == 0.0 { 0.0 } else { rates.up(d as u64, d_lines) };
    let up = a * a_times as f64 + b * b_times as f64 + c;
    let down = rates.down(d as u64, d_lines);
    let products = blocking.products() as f64;
    let computing = products * rates.product(blocking.extents([0; 3]));
    let of_tile = |operand| {
        let tile = tile(operand);
        (shapes.moved_bytes(blocking, tile), shapes.copied_lines(blocking, tile))
    };
    let first = [Operand::A, Operand::B].map(|operand| {
        let (bytes, lines) = of_tile(operand);
        rates.up(bytes, lines)
    });
    let (bytes, lines) = of_tile(Operand::C);
    let apart = first[0] + first[1] + rates.down(bytes, lines);
    up.max(down).max(computing) + apart
}

/// Extents to cut a dimension into, from the whole to the least.
fn cuts(extent: usize) -> Vec<usize> {
    let mut cuts = vec![extent.max(1)];
    let parts = [2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 256, 1024, 4096, usize::MAX];
    for part in parts {
        let cut = extent.div_ceil(part).next_multiple_of(GRANULE);
        if cut < extent && cuts.last() != Some(&cut) {
            cuts.push(cut);
        }
    }
    cuts
}

/// Groups and slots for these blocks. D gets two slots if there are two blocks. A and B get the
/// slots of a group and one more that is filled in the meantime. If k is cut and memory is short,
/// one of each does, one after the other. Else the first tiles of A or of B may be as large as
/// keeps the tensor cores `busy`, or two or four times others.
fn groupings(whole: [usize; 3], block: [usize; 3], busy: usize) -> Vec<Blocking> {
    let plain = Blocking::plain(whole, block);
    let first = plain.first;
    let [rows, columns, depth] = plain.grid();
    let of_d = (rows * columns).min(2);
    let mut found = vec![];
    if depth > 1 {
        for ahead in [1, 2, 3] {
            let of_d = of_d.min(ahead);
            let slots = [ahead.min(rows * depth), ahead.min(columns * depth), of_d];
            found.push(Blocking { slots, ..plain });
            found.push(Blocking { slots, down_columns: true, ..plain });
        }
        return found;
    }
    let mut firsts = vec![first];
    for axis in [0, 1] {
        for extent in [2 * block[axis], 4 * block[axis], busy] {
            if rows * columns <= WIDE_FIRST && block[axis] < extent && extent < whole[axis] {
                let mut wide = first;
                wide[axis] = extent;
                firsts.push(wide);
            }
        }
    }
    for first in firsts {
        let [rows, columns, _] = Blocking { first, ..plain }.grid();
        let of_d = (rows * columns).min(2);
        let mut push = |group, [of_a, of_b]: [usize; 2]| {
            let slots = [of_a.min(rows), of_b.min(columns), of_d];
            let one = group == [rows, columns];
            let ways = if one { &[false][..] } else { &[false, true] };
            let blocking = Blocking { first, group, slots, ..plain };
            found.extend(ways.iter().map(|&down_columns| Blocking { down_columns, ..blocking }));
        };
        for &group_rows in &sizes(rows) {
            for &group_columns in &sizes(columns) {
                push([group_rows, group_columns], [group_rows + 1, group_columns + 1]);
            }
        }
        // All blocks as one group in which the tiles of one side become free before the whole side
        // is uploaded.
        for eighths in 5..8 {
            push([rows, columns], [(rows * eighths).div_ceil(8), columns]);
            push([rows, columns], [rows, (columns * eighths).div_ceil(8)]);
        }
    }
    found
}

/// Blocks of a group along an axis.
fn sizes(extent: usize) -> Vec<usize> {
    let powers = (0..).map(|power| 1usize << (2 * power)).take_while(|size| *size < extent);
    let mut sizes: Vec<usize> =
        powers.chain([extent * 3 / 4, extent]).filter(|&size| size > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of groups says nothing if there is one.
    #[test]
    fn only_several_groups_are_walked_in_both_directions() {
        let all = groupings([4096, 3072, 512], [1024, 1024, 512], 2048);
        let is_one = |blocking: &&Blocking| {
            let [rows, columns, _] = blocking.grid();
            blocking.group == [rows, columns]
        };
        let (one, several): (Vec<&Blocking>, Vec<&Blocking>) = all.iter().partition(is_one);
        assert!(!one.is_empty() && one.iter().all(|blocking| !blocking.down_columns));
        let (down, across): (Vec<&Blocking>, Vec<&Blocking>) =
            several.iter().copied().partition(|blocking| blocking.down_columns);
        assert!(!down.is_empty());
        assert_eq!(down.len(), across.len());
    }
}
