//! Assigns slots to values. Values that are never alive together share a slot, so that the state of
//! a warp stays small.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::program::{Slot, Step};

/// First and last step at which a value is alive.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    last: usize,
    uniform: bool,
}

/// Replaces value numbers in `steps` by slots and returns how many uniform and varying slots there
/// are. `loops` are the first and last steps of loops.
pub(crate) fn assign(steps: &mut [Step], loops: &[(usize, usize)]) -> (usize, usize) {
    let mut ranges: Vec<Option<Range>> = Vec::new();
    for (at, step) in steps.iter_mut().enumerate() {
        step.visit_slots(&mut |slot, _| {
            let (value, uniform) = match *slot {
                Slot::Constant(_) => return,
                Slot::Uniform(value) => (value as usize, true),
                Slot::Varying(value) => (value as usize, false),
            };
            if ranges.len() <= value {
                ranges.resize(value + 1, None);
            }
            ranges[value].get_or_insert(Range { first: at, last: at, uniform }).last = at;
        });
    }

    // A value from before a loop that is used in it must survive every iteration. Inner loops come
    // first: a range that grows to the end of an inner loop may then end in the outer one.
    let mut loops = loops.to_vec();
    loops.sort_by_key(|&(first, _)| Reverse(first));
    for range in ranges.iter_mut().flatten() {
        for &(first, last) in &loops {
            if range.first < first && (first..=last).contains(&range.last) {
                range.last = last;
            }
        }
    }

    let mut order: Vec<usize> =
        (0..ranges.len()).filter(|&value| ranges[value].is_some()).collect();
    order.sort_by_key(|&value| ranges[value].map(|range| range.first));
    let mut slots = vec![0; ranges.len()];
    let mut counts = [0u32; 2];
    let mut free: [Vec<u32>; 2] = Default::default();
    let mut alive = BinaryHeap::new();
    for value in order {
        let Some(range) = ranges[value] else { continue };
        while let Some(&Reverse((last, slot, class))) = alive.peek() {
            if last >= range.first {
                break;
            }
            alive.pop();
            let class: usize = class;
            free[class].push(slot);
        }
        let class = usize::from(range.uniform);
        let slot = free[class].pop().unwrap_or_else(|| {
            counts[class] += 1;
            counts[class] - 1
        });
        slots[value] = slot;
        alive.push(Reverse((range.last, slot, class)));
    }

    for step in steps {
        step.visit_slots(&mut |slot, _| match slot {
            Slot::Constant(_) => {}
            Slot::Uniform(value) | Slot::Varying(value) => *value = slots[*value as usize],
        });
    }
    (counts[1] as usize, counts[0] as usize)
}
